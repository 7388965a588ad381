package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/doctor"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
)

// fullDisk is a writer that always fails.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	for _, args := range [][]string{{"show"}, {"show", "-o", "json"}, {"version"}} {
		s, stderr := testSystem()
		s.stdout = fullDisk{}
		if code := run(s, args); code != exitSystemError ||
			!strings.Contains(stderr.String(), "no space left") {
			t.Errorf("rules %v: exit code %d, stderr %q; want %d and the error of the writer", args,
				code, stderr, exitSystemError)
		}
	}
}

func TestDifferencesAreGroupedByPosition(t *testing.T) {
	differences := []rules.Difference{
		{Kind: rules.Missing, Where: "chain a", Want: "tcp dport 80 accept"},
		{Kind: rules.Extra, Where: "chain b", Got: "drop"},
		{Kind: rules.Reordered, Where: "chain a", Want: "return", Got: "return"},
		{Kind: rules.Changed, Where: "chain b", Want: "priority 1", Got: "priority 2"},
	}
	s, _ := testSystem()
	const plain = `chain a
  missing    tcp dport 80 accept
  reordered  return
chain b
  extra      drop
  changed    want  priority 1
             found priority 2
`
	if got := s.differencesText(differences); got != plain {
		t.Errorf("got\n%s\nwant\n%s", got, plain)
	}
	out := new(strings.Builder)
	s.color, s.stdout = true, out
	const want = "\x1b[1mchain a\x1b[0m\n\x1b[31m  missing    tcp dport 80 accept\x1b[0m\n"
	if err := s.printText(s.differencesText(differences[:1])); err != nil || out.String() != want {
		t.Errorf("got %q, error %v, want %q", out, err, want)
	}
}

// TestFindingsAreOneLine checks that the name of a process in the namespace can neither forge a
// line of the output nor control the terminal.
func TestFindingsAreOneLine(t *testing.T) {
	s, _ := testSystem()
	text := s.doctorText(doctorResult{Findings: []doctor.Finding{{
		Severity: doctor.Note, Topic: "sockets", Summary: "x\x1b[2J\n  ok", Next: "y\nz",
	}}})
	if strings.Count(text, "\n") != 3 || strings.Contains(text, "\x1b") {
		t.Errorf("text %q, want 3 printable lines", text)
	}
}

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want int
	}{
		{"no error", nil, 0},
		{"a difference", failure{code: exitDifferent}, 1},
		{"an error of cobra or of parsing", errors.New("x"), 2},
		{"an error from the kernel", systemError(errors.New("x")), 3},
		{"no error from the kernel", systemError(nil), 0},
		{"a failed validation", failure{exitInvalid, errors.New("x")}, 126},
		{
			"a failed validation joined with other errors",
			errors.Join(errors.New("y"), failure{exitInvalid, errors.New("x")}), 126,
		},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%s: exit code %d, want %d", test.name, got, test.want)
		}
	}
}

// TestPrintedTextIsPrintable checks that text has color codes only from the command, and only if
// the output has colors, and has no other control characters.
func TestPrintedTextIsPrintable(t *testing.T) {
	const name = "\x1b[8mé\x1b[0m\t\x1b[2J\u202e\xff"
	const printed = "\ufffd[8mé\ufffd[0m\t\ufffd[2J\ufffd\ufffd"
	for painter, want := range map[color.Painter]string{
		true:  printed + "\x1b[31m" + printed + "\x1b[0m\x1b[1mb\x1b[0m\n",
		false: printed + printed + "b\n",
	} {
		out := new(strings.Builder)
		s := system{stdout: out, color: painter}
		err := s.printText(name + s.paint(color.Red, name) + s.paint(color.Bold, "b") + "\n")
		if err != nil || out.String() != want {
			t.Errorf("color %t: got %q, error %v, want %q", painter, out, err, want)
		}
	}
}

// TestJSONIsPrintable checks that JSON on stdout and stderr has no characters that control a
// terminal, such as U+009B, or that reorder its text.
func TestJSONIsPrintable(t *testing.T) {
	const name, want = "\u009b31m\u202e", `\u009b31m\u202e`
	for stream, print := range map[string]func(*system) error{
		"print":     func(s *system) error { return s.print("", warningDocument{name}) },
		"printLine": func(s *system) error { return s.printLine(warningDocument{name}) },
		"warn":      func(s *system) error { s.warn("%s", name); return nil },
	} {
		out := new(strings.Builder)
		s := system{stdout: out, stderr: out, json: true}
		if err := print(&s); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: got %q, error %v, want %s", stream, out, err, want)
		}
	}
}

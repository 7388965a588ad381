package save_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// FuzzParse verifies that errors about any text contain a position, and that Parse returns the same
// tables for the tables that Print has written.
func FuzzParse(f *testing.F) {
	for _, tc := range ruleCases {
		family, text := tc.save()
		f.Add(family == rules.IPv6, text)
	}
	f.Add(false, "*nat\n-N A\n-I A 1 -j DROP\n-D A 1\n-F\n-X\n-P OUTPUT DROP\nCOMMIT\n")
	f.Fuzz(func(t *testing.T, isIPv6 bool, text string) {
		family := rules.IPv4
		if isIPv6 {
			family = rules.IPv6
		}
		tables, err := save.Parse(family, "f", strings.NewReader(text))
		if err != nil {
			wantPosition(t, err, text)
			return
		}
		var printed strings.Builder
		if save.Print(&printed, tables) != nil {
			return // the tables contain unknown matches, or rules that are too long
		}
		second, err := save.Parse(family, "f", strings.NewReader(printed.String()))
		if err != nil {
			t.Fatalf("Parse rejects a printed text: %v\nin:\n%s", err, printed.String())
		}
		if diff := cmp.Diff(withoutLines(tables), withoutLines(second), compareOptions); diff != "" {
			t.Errorf("printed:\n%s\n-parsed +printed and parsed:\n%s", printed.String(), diff)
		}
	})
}

// FuzzParseIstioLog verifies that errors about any log contain a position, and that the lines of
// rules are in the log.
func FuzzParseIstioLog(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.log"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no logs in testdata, error %v", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add("info\t a title that begins with a blank")
	f.Add(`{"level":"info","msg":"Final iptables state (IPv4):\n*nat\n-A OUTPUT -j DROP\nCOMMIT"}`)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := save.ParseIstioLog("f", strings.NewReader(text))
		if err != nil {
			wantPosition(t, err, text)
			return
		}
		if (l.Redirect == nil) == (l.NoRedirect == nil) {
			t.Errorf("parameters %v, error %v, want exactly one of them", l.Redirect, l.NoRedirect)
		}
		for _, table := range l.Tables {
			for _, c := range table.Chains {
				for _, r := range c.Rules {
					if r.Line == 0 || r.Line > rules.Line(strings.Count(text, "\n")+1) {
						t.Errorf("rule %s is on line %d, want a line of the log", r.String(), r.Line)
					}
				}
			}
		}
	})
}

// wantPosition verifies that the first error is a SyntaxError at a position in the text.
func wantPosition(t *testing.T, err error, text string) {
	e := (*save.SyntaxError)(nil)
	if !errors.As(err, &e) {
		t.Fatalf("not a syntax error: %v", err)
	}
	lines := strings.Split(text, "\n")
	if e.Line < 1 || e.Line > len(lines) || e.Want == "" {
		t.Fatalf("error %+v, want a line from 1 to %d and the expected text", e, len(lines))
	}
	line := lines[e.Line-1]
	if e.Column == 0 && strings.HasPrefix(strings.TrimSpace(line), "{") {
		return
	}
	if e.Column < 1 || e.Column > len(line)+1 ||
		!strings.HasPrefix(line[e.Column-1:], e.Token) && !strings.Contains(e.Token, " ") {
		t.Fatalf("the token of %+v is not at its column of %q", e, line)
	}
}

package guest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseEventReturnsTheWrittenEvent(t *testing.T) {
	line := `a "quoted" line`
	for _, e := range []Event{
		{Kernel: "5.10.0-46-cloud-amd64"},
		{Step: "tests", Line: &line},
		{Step: "tests", Exit: &Exit{Code: 1, Took: time.Second}},
		{Failed: "no plan"},
		{Done: true},
	} {
		// A kernel message may precede the event on its line, and the console changes line endings.
		got, ok, err := ParseEvent("[    1.0] " + strings.TrimSuffix(e.line(), "\n") + "\r\n")
		if err != nil || !ok || !cmp.Equal(e, got) {
			t.Errorf("%s: isEvent %t, error %v, event (-want +got)\n%s", e.line(), ok, err, cmp.Diff(e, got))
		}
	}
}

func TestKernelOutputIsNotAnEvent(t *testing.T) {
	if e, ok, err := ParseEvent("[    4.3] reboot: Power down\n"); ok || err != nil {
		t.Errorf("event %v, ok %v, error %v; want no event", e, ok, err)
	}
	if _, ok, err := ParseEvent(eventPrefix + `{"Step":"te[  3.0] oops` + "\n"); !ok || err == nil {
		t.Errorf("ok %v, error %v, want an error for a damaged event", ok, err)
	}
}

func TestStepIsReportedLineByLine(t *testing.T) {
	for _, row := range []struct {
		name  string
		step  Step
		lines []string
		code  int
		err   string
	}{
		{"both outputs, environment and directory", Step{
			Command: []string{"sh", "-c", "echo $X; pwd >&2; printf end"}, Env: []string{"X=1"},
			Dir: "/",
		}, []string{"1", "/", "end"}, 0, ""},
		{"an exit code", Step{Command: []string{"sh", "-c", "exit 3"}}, nil, 3, ""},
		{
			"a missing program",
			Step{Command: []string{"/nowhere/program"}},
			nil, -1,
			"no such file",
		},
		{
			"a killed program",
			Step{Command: []string{"sh", "-c", "kill -9 $$"}},
			nil, -1,
			"killed",
		},
		{
			"a program that hangs",
			Step{
				Command: []string{"sh", "-c", "exec cat /dev/zero >/dev/null"},
				Limit:   20 * time.Millisecond,
			},
			nil, -1, "not finished after 20ms",
		},
		{
			"a program that hangs, with a child that keeps its output open",
			Step{
				Command: []string{"sh", "-c", "sleep 60 & echo begin; wait"},
				Limit:   3 * time.Second,
			},
			[]string{"begin"},
			-1, "not finished after 3s",
		},
		{
			"a program that ends before a child that keeps its output open",
			Step{Command: []string{"sh", "-c", "sleep 60 & echo end"}},
			[]string{"end"},
			0, "WaitDelay expired",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			var lines []string
			begin := time.Now()
			exit := run(row.step, func(line string) { lines = append(lines, line) })
			if exit.Code != row.code || !strings.Contains(exit.Error, row.err) ||
				(row.err == "") != (exit.Error == "") {
				t.Errorf("exit %+v, want code %d and error %q", exit, row.code, row.err)
			}
			if diff := cmp.Diff(row.lines, lines); diff != "" {
				t.Errorf("reported lines (-want +got):\n%s", diff)
			}
			if elapsed := time.Since(begin); elapsed > 30*time.Second {
				t.Errorf("the step ended after %s, want at most 30s", elapsed)
			}
		})
	}
}

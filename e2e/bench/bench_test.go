package bench_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/e2e/bench"
)

// A shell that executes two programs, the second one in its own place.
func TestMeasureCountsProgramsAndMemory(t *testing.T) {
	small := shell("/bin/true; exec /bin/true")
	large := shell("dd if=/dev/zero of=/dev/null bs=50000000 count=1")
	costs, err := bench.Measure(bench.Row{Name: "shell", Contestants: []bench.Contestant{small, large}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got := costs[0].Executed; got != 2 {
		t.Errorf("programs executed: %d, want 2", got)
	}
	if got := costs[0].Memory; got < 100_000 || got > 10_000_000 {
		t.Errorf("memory of a shell: %d bytes", got)
	}
	if got := costs[1].Memory; got < 50_000_000 {
		t.Errorf("memory of a shell whose child takes 50 MB: %d bytes", got)
	}
	for i, c := range costs {
		if len(c.Samples) != 3 || c.Wall() <= 0 || c.CPU() <= 0 || c.Fastest() > c.Wall() {
			t.Errorf("contestant %d: %+v", i, c)
		}
	}
}

func TestARowThatCannotRunSaysWhy(t *testing.T) {
	undone := 0
	task := bench.Task{Command: script("echo no such module >&2; exit 3"), Undo: func() { undone++ }}
	failing := bench.Contestant{Name: "failing", Prepare: func() (*bench.Task, error) { return &task, nil }}
	measure := func() error {
		_, err := bench.Measure(bench.Row{Name: "row", Contestants: []bench.Contestant{failing}}, 3)
		return err
	}
	if err := measure(); err == nil || !strings.Contains(err.Error(), "no such module") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v; want output and status", err)
	}
	task.Command, task.Check = script("true"), func() error { return errors.New("nothing is done") }
	if err := measure(); err == nil || !strings.Contains(err.Error(), "row: failing: nothing is done") {
		t.Errorf("error %v; want that of the check", err)
	}
	if undone != 2 {
		t.Errorf("undone %d times, want 2", undone)
	}
	failing.Prepare = func() (*bench.Task, error) { return nil, errors.New("no root") }
	if err := measure(); err == nil {
		t.Error("no error without the prepared state")
	}
}

func TestPrintTellsWhetherGoalsAreMet(t *testing.T) {
	row := bench.Row{
		Name:        "ADD",
		Contestants: []bench.Contestant{{Name: "ours", Ours: true}, {Name: "ours too", Ours: true}, {Name: "theirs"}, {Name: "another"}},
		Goals:       []bench.Goal{{bench.WallTime, 0.2}, {bench.Memory, 0.5}},
	}
	cost := func(memory int64, wall ...time.Duration) bench.Cost {
		c := bench.Cost{Memory: memory}
		for _, w := range wall {
			c.Samples = append(c.Samples, bench.Sample{Wall: w * time.Millisecond, CPU: w * time.Millisecond})
		}
		return c
	}
	var out bytes.Buffer
	bench.Print(&out, row, []bench.Cost{cost(10e6, 9, 10, 30), cost(1e6, 1, 2, 3), cost(25e6, 50, 80, 60), cost(15e6, 49, 49, 49)})
	for _, want := range []string{
		"ours     10.0   1.0x         9.0   1.0x    10.0       10.0   1.0x",
		"theirs     60.0   6.0x        50.0   5.6x    60.0       25.0   2.5x",
		"goal: wall time at most 0.20 of any peer's: MISSED, 0.20 of another",
		"goal: memory at most 0.50 of any peer's: MISSED, 0.67 of another",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}

// shell is a contestant that runs a script.
func shell(text string) bench.Contestant {
	return bench.Contestant{Name: text, Prepare: func() (*bench.Task, error) {
		return &bench.Task{Command: script(text), Undo: func() {}}, nil
	}}
}

func script(text string) *bench.Command {
	return &bench.Command{Path: "/bin/sh", Env: os.Environ(), Stdin: []byte(text)}
}

package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Init runs as the first process of the machine. It prepares the machine, runs the steps in
// PlanFile, writes events to the console, and powers off the machine.
func Init(console io.Writer) {
	report := func(e Event) { _, _ = io.WriteString(console, e.line()) }
	if err := runPlan(report); err != nil {
		report(Event{Failed: err.Error()})
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// runPlan prepares the machine, runs the steps, and reports the events.
func runPlan(report func(Event)) error {
	if err := prepare(); err != nil {
		return err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	report(Event{Kernel: unix.ByteSliceToString(name.Release[:])})
	var steps []Step
	if err := readJSON(PlanFile, &steps); err != nil {
		return err
	}
	for _, s := range steps {
		exit := run(s, func(line string) { report(Event{Step: s.Name, Line: &line}) })
		report(Event{Step: s.Name, Exit: &exit})
	}
	report(Event{Done: true})
	return nil
}

// run runs a step, reports each line of its output, and returns its result.
func run(s Step, report func(line string)) Exit {
	ctx := context.Background()
	if s.Limit > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, s.Limit)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	cmd.Env, cmd.Dir = append(os.Environ(), s.Env...), s.Dir
	// Without a delay, Wait would wait for children of the ended step that keep its output open.
	// The delay has no effect with StdoutPipe, so the output is an io.Pipe.
	cmd.WaitDelay = time.Second
	lines, output := io.Pipe()
	cmd.Stdout, cmd.Stderr = output, output
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return Exit{Code: -1, Error: err.Error()}
	}
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		reportLines(lines, report)
	}()
	err := cmd.Wait()
	_ = output.Close()
	<-reported
	exit := Exit{Code: cmd.ProcessState.ExitCode(), Took: time.Since(begin)}
	var exitErr *exec.ExitError
	switch {
	case ctx.Err() != nil:
		exit.Error = fmt.Sprintf("not finished after %s", s.Limit)
	case err != nil && (!errors.As(err, &exitErr) || !exitErr.Exited()):
		exit.Error = err.Error()
	}
	return exit
}

// reportLines reports each line until the end of r.
func reportLines(r io.Reader, report func(line string)) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			report(strings.TrimRight(line, "\n"))
		}
		if err != nil {
			return
		}
	}
}

// readJSON decodes a file, and stores the value in target.
func readJSON(file string, target any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, target); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

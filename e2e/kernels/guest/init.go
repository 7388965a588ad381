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

	"github.com/sluice-mesh/sluice/e2e/kernels/kmod"
)

// Init is the first process. It prepares the machine, runs the steps of PlanFile, writes events to
// the console, and powers the machine off.
func Init(console io.Writer) {
	tell := func(e Event) { _, _ = io.WriteString(console, e.line()) }
	if err := work(tell); err != nil {
		tell(Event{Failed: err.Error()})
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func work(tell func(Event)) error {
	if err := prepare(); err != nil {
		return err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	tell(Event{Kernel: unix.ByteSliceToString(name.Release[:])})
	var steps []Step
	if err := read(PlanFile, &steps); err != nil {
		return err
	}
	for _, s := range steps {
		exit := run(s, func(line string) { tell(Event{Step: s.Name, Line: &line}) })
		tell(Event{Step: s.Name, Exit: &exit})
	}
	tell(Event{Done: true})
	return nil
}

// run runs a step.
func run(s Step, tell func(line string)) Exit {
	ctx := context.Background()
	if s.Limit > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, s.Limit)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	cmd.Env, cmd.Dir = append(os.Environ(), s.Env...), s.Dir
	// Children of a killed step may keep the pipe open.
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Exit{Code: -1, Error: err.Error()}
	}
	cmd.Stderr = cmd.Stdout
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return Exit{Code: -1, Error: err.Error()}
	}
	eachLine(out, tell)
	err = cmd.Wait()
	exit := Exit{Code: cmd.ProcessState.ExitCode(), Took: time.Since(begin)}
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		exit.Error = fmt.Sprintf("not finished after %s", s.Limit)
	case err != nil && (!errors.As(err, &ended) || !ended.Exited()):
		exit.Error = err.Error()
	}
	return exit
}

func eachLine(r io.Reader, tell func(line string)) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			tell(strings.TrimRight(line, "\n"))
		}
		if err != nil {
			return
		}
	}
}

// Modprobe loads the module that the kernel requests.
func Modprobe(request string) error {
	var modules kmod.Index
	if err := read(ModulesFile, &modules); err != nil {
		return err
	}
	return modules.Load(request)
}

func read(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
)

// A Machine is one to boot.
type Machine struct {
	// Arch is the processor's architecture by Go's name: amd64 or arm64.
	Arch string
	// Kernel and Initramfs are files.
	Kernel, Initramfs string
	// Limit is how long the machine may run by the clock of the host.
	Limit time.Duration
	// Log gets all that the console shows.
	Log io.Writer
}

// emulator is how an architecture is emulated.
type emulator struct {
	program string
	args    []string
	console string
}

// Of amd64's newest processor one thing is left out that qemu emulates by halting all others
// (cx16).
var emulators = map[string]emulator{
	"amd64": {"qemu-system-x86_64", []string{"-cpu", "max,-cx16"}, "ttyS0"},
	"arm64": {"qemu-system-aarch64", []string{"-machine", "virt", "-cpu", "cortex-a72"}, "ttyAMA0"},
}

// Emulator is the program that emulates the architecture: one of Debian's package qemu-system-x86
// or qemu-system-arm.
func Emulator(arch string) string { return emulators[arch].program }

// memory is what a machine has, in MiB: five times what tests were seen to need besides the
// initramfs.
const memory = "1024"

// Run boots the machine and calls tell with each event, in order, until the guest turns it off. It
// returns the processor time that this took. The error says that it has not come about: with the
// end of what the console showed.
//
// The clock of the machine counts its instructions (icount), and where nothing is to do the time is
// skipped: a busy host makes the machine slower but no timeout in it shorter.
func (m Machine) Run(ctx context.Context, tell func(guest.Event)) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.Limit, fmt.Errorf("not finished after %s", m.Limit))
	defer cancel()
	e, ok := emulators[m.Arch]
	if !ok {
		return 0, fmt.Errorf("no emulator for %s", m.Arch)
	}
	args := append([]string{
		"-accel", "tcg", "-icount", "shift=0,sleep=off", "-m", memory, "-nodefaults", "-no-reboot", "-display", "none",
		"-serial", "stdio", "-kernel", m.Kernel, "-initrd", m.Initramfs,
		"-append", "console=" + e.console + " quiet loglevel=1 panic=-1",
	}, e.args...)
	cmd := exec.CommandContext(ctx, e.program, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	console, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	done, tail, readErr := listen(io.TeeReader(console, m.Log), tell)
	if readErr != nil {
		_ = cmd.Process.Kill()
	}
	err = errors.Join(readErr, cmd.Wait())
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case done && err == nil:
		return used, nil
	case err == nil:
		err = errors.New("the machine has stopped before the end")
	}
	return used, fmt.Errorf("%s: %w\n%s%s", e.program, err, stderr.String(), tail)
}

// listen reads the console to its end. It reports whether the guest has done its work, and else how
// the console ended.
func listen(console io.Reader, tell func(guest.Event)) (done bool, tail string, err error) {
	lines := bufio.NewReader(console)
	var last []string
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			const kept = 20
			last = append(last, line)
			last = last[max(0, len(last)-kept):]
			e, ok, err := guest.ParseEvent(line)
			switch {
			case err != nil:
				return false, strings.Join(last, ""), err
			case ok && e.Failed != "":
				return false, strings.Join(last, ""), fmt.Errorf("guest: %s", e.Failed)
			case ok:
				done = done || e.Done
				tell(e)
			}
		}
		if err != nil {
			return done, strings.Join(last, ""), nil
		}
	}
}

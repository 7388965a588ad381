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

// A Machine is a virtual machine.
type Machine struct {
	// Arch is Go's name of the processor's architecture: amd64 or arm64.
	Arch string
	// Kernel and Initramfs are paths of files.
	Kernel, Initramfs string
	// Limit is the time limit by the host's clock.
	Limit time.Duration
	// Log receives all output of the console.
	Log io.Writer
}

// An emulator is qemu for an architecture.
type emulator struct {
	program string
	args    []string // arguments of qemu for this architecture only
	console string   // the kernel's name of the console
}

// emulators maps architectures to emulators. The CPU model for amd64 excludes cx16, because qemu
// stops all processors to emulate it.
var emulators = map[string]emulator{
	"amd64": {"qemu-system-x86_64", []string{"-cpu", "max,-cx16"}, "ttyS0"},
	"arm64": {"qemu-system-aarch64", []string{"-machine", "virt", "-cpu", "cortex-a72"}, "ttyAMA0"},
}

// Emulator returns the program that emulates the architecture, from Debian's package
// qemu-system-x86 or qemu-system-arm.
func Emulator(arch string) string { return emulators[arch].program }

// memory is the machine's memory in MiB. It suffices for the initramfs and five times the measured
// memory use of the tests.
const memory = "1024"

// Run boots the machine and calls report for each event, in order, until the guest powers it off.
// It returns the processor time used. If the machine stops before the guest has run all steps, or
// qemu fails, the error contains the end of the console's output.
//
// The machine's clock counts instructions (icount), and skips idle time. A busy host therefore
// makes the machine slower, but does not make its timeouts shorter.
func (m Machine) Run(ctx context.Context, report func(guest.Event)) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.Limit,
		fmt.Errorf("not finished after %s", m.Limit))
	defer cancel()
	e, known := emulators[m.Arch]
	if !known {
		return 0, fmt.Errorf("no emulator for %s", m.Arch)
	}
	args := append([]string{
		"-accel", "tcg", "-icount", "shift=0,sleep=off", "-m", memory, "-nodefaults", "-no-reboot",
		"-display", "none",
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
	done, tail, readErr := readConsole(io.TeeReader(console, m.Log), report)
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
		err = errors.New("the machine stopped before the guest was done")
	}
	return used, fmt.Errorf("%s: %w\n%s%s", e.program, err, stderr.String(), tail)
}

// readConsole reads the console until its end, or until an event is invalid or reports that the
// guest failed. It reports whether the guest has run all steps, and returns the last lines of the
// output.
func readConsole(console io.Reader, report func(guest.Event)) (done bool, tail string, err error) {
	lines := bufio.NewReader(console)
	var last []string
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			const maxLines = 20 // enough to see why a machine stopped
			last = append(last, line)
			last = last[max(0, len(last)-maxLines):]
			e, isEvent, err := guest.ParseEvent(line)
			switch {
			case err != nil:
				return false, strings.Join(last, ""), err
			case isEvent && e.Failed != "":
				return false, strings.Join(last, ""), fmt.Errorf("guest: %s", e.Failed)
			case isEvent:
				done = done || e.Done
				report(e)
			}
		}
		if err != nil {
			return done, strings.Join(last, ""), nil
		}
	}
}

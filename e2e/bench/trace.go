package bench

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
)

// A footprint is the memory and the executed programs of a command and its descendants.
type footprint struct {
	memory   int64 // of the largest process, in bytes
	executed int   // programs, without the command itself
}

// traced executes the command under ptrace, which makes it slow, so that its time is not measured.
// The memory that wait4 reports includes the memory of this process before exec, and is not usable.
func (c *Command) traced() (Sample, error) {
	var f footprint
	// All ptrace requests must come from the thread that started the process. do does not change
	// threads.
	err := c.do(func(cmd *exec.Cmd) error {
		runtime.LockOSThread() // also without a namespace to enter
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: unix.SIGKILL}
		if err := cmd.Start(); err != nil {
			return err
		}
		status, err := f.traceProcesses(cmd.Process.Pid)
		// follow has already waited for the process.
		_ = cmd.Process.Release()
		if err == nil && status != 0 {
			err = fmt.Errorf("exit status %d", status)
		}
		return err
	})
	return Sample{report.Memory: float64(f.memory), report.Executed: float64(f.executed)}, err
}

const traceOptions = unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACECLONE |
	unix.PTRACE_O_TRACEEXEC |
	unix.PTRACE_O_TRACEEXIT | unix.PTRACE_O_EXITKILL

// traceProcesses waits for the process and all its descendants, and returns the exit status of the process.
func (f *footprint) traceProcesses(root int) (status int, err error) {
	known := map[int]bool{}
	for {
		var ws unix.WaitStatus
		// __WNOTHREAD excludes children of other threads, such as those of other benchmarks.
		pid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return status, nil
		case err != nil:
			return 0, fmt.Errorf("wait4: %w", err)
		}
		if !ws.Stopped() {
			if pid == root {
				status = ws.ExitStatus()
			}
			continue
		}
		signal := f.stopped(pid, ws, known)
		if err := unix.PtraceCont(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return 0, fmt.Errorf("ptrace of process %d: %w", pid, err)
		}
	}
}

// stopped records why a thread has stopped, and returns the signal to continue with.
func (f *footprint) stopped(pid int, ws unix.WaitStatus, known map[int]bool) (signal int) {
	first := !known[pid]
	known[pid] = true
	switch {
	case first && len(known) == 1:
		// The command itself, after its exec.
		_ = unix.PtraceSetOptions(pid, traceOptions)
		return 0
	case first && ws.StopSignal() == unix.SIGSTOP:
		return 0 // initial stop of a new thread or process
	case ws.StopSignal() != unix.SIGTRAP:
		return int(ws.StopSignal())
	}
	switch ws.TrapCause() {
	case unix.PTRACE_EVENT_EXEC:
		f.executed++
	case unix.PTRACE_EVENT_EXIT:
		// The memory of an exiting process is not always available.
		memory, _ := LargestMemory(pid)
		f.memory = max(f.memory, memory)
	}
	return 0
}

// LargestMemory returns the maximum resident memory of a process, or of the process of a thread,
// since its exec, in bytes.
func LargestMemory(pid int) (int64, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "VmHWM:"); found {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"),
				10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("process %d: no VmHWM in its status", pid)
}

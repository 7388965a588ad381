package bench

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
)

// A footprint is the memory and the number of executed programs of a command and its descendants.
type footprint struct {
	memory   int64 // of the largest process, in bytes
	executed int   // number of executed programs, without the command itself
}

// countResources executes the command under ptrace, and returns its memory and the number of
// executed programs. It does not return the time, because ptrace makes the command slow. The memory
// is not taken from wait4, which would include the memory that the command's process shares with
// this process between fork and exec.
func (c *Command) countResources() (Sample, error) {
	var f footprint
	// All ptrace requests must come from the thread that started the process.
	err := c.withCmd(func(cmd *exec.Cmd) error {
		runtime.LockOSThread() // withCmd locks the thread only if it enters a namespace
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: unix.SIGKILL}
		if err := cmd.Start(); err != nil {
			return err
		}
		status, err := f.traceProcesses(cmd.Process.Pid)
		// traceProcesses has already waited for the process.
		_ = cmd.Process.Release()
		if err == nil && status != 0 {
			err = fmt.Errorf("exit status %d", status)
		}
		return err
	})
	return Sample{report.Memory: float64(f.memory), report.Executed: float64(f.executed)}, err
}

// traceOptions trace descendants too, stop each process at its exec and before its exit, and kill
// all of them if this process exits.
const traceOptions = unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
	unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACEEXIT |
	unix.PTRACE_O_EXITKILL

// traceProcesses waits for the process root and all its descendants, and returns the exit status of
// root.
func (f *footprint) traceProcesses(root int) (status int, err error) {
	known := map[int]bool{} // IDs of the threads that have stopped before
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
		signal := f.recordStop(pid, ws, known)
		if err := unix.PtraceCont(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return 0, fmt.Errorf("continue the traced process %d: %w", pid, err)
		}
	}
}

// recordStop records an exec or exit of a thread that has stopped, and returns the signal with
// which the thread continues; 0 for none.
func (f *footprint) recordStop(pid int, ws unix.WaitStatus, known map[int]bool) (signal int) {
	isFirstStop := !known[pid]
	known[pid] = true
	switch {
	case isFirstStop && len(known) == 1:
		// This is the command itself, after its exec.
		_ = unix.PtraceSetOptions(pid, traceOptions)
		return 0
	case isFirstStop && ws.StopSignal() == unix.SIGSTOP:
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

// LargestMemory returns the maximum resident memory of a process since its exec, in bytes. pid may
// also be the ID of a thread of the process.
func LargestMemory(pid int) (int64, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	status, err := process.NewStatus()
	if err == nil && status.VmHWM == 0 { // a zombie has no memory
		err = fmt.Errorf("process %d: no VmHWM in its status", pid)
	}
	return int64(status.VmHWM), err
}

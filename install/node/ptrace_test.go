package node_test

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// changesFile contains the system calls that change files.
var changesFile = map[uint64]bool{
	unix.SYS_WRITE: true, unix.SYS_FSYNC: true, unix.SYS_FCHMOD: true, unix.SYS_FTRUNCATE: true,
	unix.SYS_MKDIRAT:  true,
	unix.SYS_RENAMEAT: true, unix.SYS_RENAMEAT2: true, unix.SYS_UNLINKAT: true,
	unix.SYS_LINKAT: true,
}

// killBefore runs a job in a process, and kills the process before the nth system call of the job
// that changes files. It reports whether the process was killed: it is not if the job makes fewer
// such system calls.
func killBefore(t *testing.T, tn *testNode, job string, nth int) bool {
	t.Helper()
	runtime.LockOSThread() // only the thread that started the process may trace it
	defer runtime.UnlockOSThread()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), jobEnv+"="+job+" "+tn.dir, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tr := tracer{t: t, pid: cmd.Process.Pid, remaining: nth}
	defer cmd.Process.Release() //nolint:errcheck // the process was already waited for
	return tr.run()
}

// A tracer traces a process that runs a job, and kills the process.
type tracer struct {
	t         *testing.T
	pid       int
	remaining int          // system calls that change files until the kill
	started   bool         // the job has begun
	seen      map[int]bool // threads that have stopped at least once
}

func (tr *tracer) run() (killed bool) {
	tr.seen = map[int]bool{}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			tr.t.Fatal(err)
		case pid == tr.pid && status.Signaled():
			return killed
		case pid == tr.pid && status.Exited():
			if status.ExitStatus() != 0 {
				tr.t.Errorf("the job failed with exit status %d", status.ExitStatus())
			}
			return false
		case !status.Stopped():
			continue // a thread has ended
		}
		signal := tr.signalFor(pid, status)
		if signal == unix.SIGKILL {
			killed = true
			_ = unix.Kill(tr.pid, unix.SIGKILL)
			continue
		}
		// A thread that was killed in the meantime cannot continue.
		_ = unix.PtraceSyscall(pid, int(signal))
	}
}

// signalFor returns the signal that a stopped thread receives when it continues: none, the signal
// that stopped it, or SIGKILL.
func (tr *tracer) signalFor(pid int, status unix.WaitStatus) unix.Signal {
	first := !tr.seen[pid]
	if tr.seen[pid] = true; first && pid == tr.pid {
		options := unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
		if err := unix.PtraceSetOptions(pid, options); err != nil {
			tr.t.Fatal(err)
		}
	}
	switch signal := status.StopSignal(); {
	case signal == unix.SIGTRAP|0x80:
		if tr.countChange(pid) {
			return unix.SIGKILL
		}
		return 0
	case signal == unix.SIGTRAP, signal == unix.SIGSTOP && first:
		return 0
	default:
		return signal
	}
}

// countChange counts the system call that a thread enters if it changes files, and reports whether
// the process is to be killed before it.
func (tr *tracer) countChange(pid int) bool {
	var info struct { // ptrace(2), PTRACE_GET_SYSCALL_INFO
		op     uint8
		_      [3]uint8
		_      uint32
		_, _   uint64
		number uint64
		args   [6]uint64
		_      uint64
	}
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, 0x420e, uintptr(pid), unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info)), 0, 0)
	const entry = 1
	if errno != 0 || info.op != entry || !changesFile[info.number] {
		return false
	}
	if info.number == unix.SYS_WRITE && info.args[0] == 1 { // the job prints a line when it begins
		tr.started = true
		return false
	}
	if tr.started {
		tr.remaining--
	}
	return tr.started && tr.remaining == 0
}

package xtables

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// replaceInUserNamespace executes c.set(optionReplace, b) in a process of the user namespace that
// owns the network namespace of the thread. Only such a process may set a table with an owner match
// (owner_check in net/netfilter/xt_owner.c). A process with several threads cannot enter a user
// namespace. Therefore replaceInUserNamespace clones this process: the clone has one thread, makes
// at most two system calls, and exits. It does not execute a program.
//
// The kernel writes the counters of the old table to an address that b contains. Both processes
// must share the memory at this address; see sharedMemory.
func (c *conn) replaceInUserNamespace(b []byte) error {
	owner, err := openOwningUserNamespace()
	if err != nil {
		return enterError(err)
	}
	defer func() { _ = unix.Close(owner) }()

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var allSignals, oldMask unix.Sigset_t
	for i := range allSignals.Val {
		allSignals.Val[i] = ^allSignals.Val[i]
	}
	// The clone must not run signal handlers, which need the other threads of the Go runtime.
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &allSignals, &oldMask); err != nil {
		return os.NewSyscallError("rt_sigprocmask", err)
	}
	pid, errno := setInClone(uintptr(owner), uintptr(c.fd), uintptr(c.level),
		uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	runtime.KeepAlive(b)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &oldMask, nil); err != nil {
		return os.NewSyscallError("rt_sigprocmask", err)
	}
	if errno != 0 {
		return os.NewSyscallError("clone", errno)
	}
	return waitForClone(int(pid))
}

// setsockoptFailed is set in the exit code of the clone if setsockopt failed, and not set if setns
// failed. The other bits are the errno. The exit code is 0 if both succeeded.
const setsockoptFailed = 0x80

// setInClone clones the process. In the clone, setInClone enters the user namespace and sets the
// option. The Go runtime does not work in the clone: setInClone must make only raw system calls,
// and must not grow the stack or allocate memory.
//
//go:norace
//go:nosplit
//go:noinline
func setInClone(owner, fd, level, b, length uintptr) (pid uintptr, errno syscall.Errno) {
	flags, stack := uintptr(syscall.SIGCHLD), uintptr(0)
	if runtime.GOARCH == "s390x" {
		flags, stack = stack, flags // CONFIG_CLONE_BACKWARDS2
	}
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, flags, stack, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	_, _, exitCode := syscall.RawSyscall(unix.SYS_SETNS, owner, unix.CLONE_NEWUSER, 0)
	if exitCode == 0 {
		if _, _, exitCode = syscall.RawSyscall6(unix.SYS_SETSOCKOPT, fd, level, optionReplace, b,
			length, 0); exitCode != 0 {
			exitCode |= setsockoptFailed
		}
	}
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(exitCode), 0, 0)
	}
}

// waitForClone waits until the clone exits, and returns the error of the clone's system calls.
func waitForClone(pid int) error {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("wait4", err)
		}
		break
	}
	switch code := status.ExitStatus(); {
	case code < 0:
		return fmt.Errorf("the process in the owning user namespace was killed: %s",
			status.Signal())
	case code == 0:
		return nil
	case code&setsockoptFailed != 0:
		return os.NewSyscallError("setsockopt", unix.Errno(code&^setsockoptFailed))
	default:
		return enterError(os.NewSyscallError("setns", unix.Errno(code)))
	}
}

// enterError returns the error for a user namespace that the process cannot enter.
func enterError(err error) error {
	return fmt.Errorf("enter the user namespace that owns the network namespace (the kernel"+
		" requires this to replace a table with an owner match): %w", err)
}

// openOwningUserNamespace opens the user namespace that owns the network namespace of the thread.
func openOwningUserNamespace() (int, error) {
	network, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(network) }()
	owner, err := unix.IoctlRetInt(network, unix.NS_GET_USERNS)
	if err != nil {
		return -1, os.NewSyscallError("ioctl NS_GET_USERNS", err)
	}
	return owner, nil
}

// sharedMemory returns memory that this process and its clones share.
func sharedMemory(size int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	return b, os.NewSyscallError("mmap", err)
}

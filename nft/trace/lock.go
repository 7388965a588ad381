package trace

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// lockName is an abstract socket address, which belongs to a network namespace and is released when
// the process ends for any reason.
const lockName = "@sluice.trace"

// Lock acquires the lock of the namespace. A session holds the lock if the kernel does not remove
// the session's rules at the end of the process. If such a session or another caller of Lock holds
// the lock, Lock returns [ErrBusy]. No such session can begin before release is called.
func Lock(ns *netns.NS) (release func(), err error) {
	fd := -1
	err = ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: lockName}); err != nil {
		_ = unix.Close(fd)
		if errors.Is(err, unix.EADDRINUSE) {
			return nil, ErrBusy
		}
		return nil, os.NewSyscallError("bind", err)
	}
	return func() { _ = unix.Close(fd) }, nil
}

// lockWait is the time limit of [LockSession]. A removal holds the lock for some milliseconds.
// retryInterval is the time between two attempts.
const (
	lockWait      = 2 * time.Second
	retryInterval = 10 * time.Millisecond
)

// LockSession is like [Lock], but for a new session: it waits while another process, such as the
// node agent, removes the rules of a killed session.
func LockSession(ns *netns.NS) (release func(), err error) {
	for end := time.Now().Add(lockWait); ; time.Sleep(retryInterval) {
		release, err = Lock(ns)
		if !errors.Is(err, ErrBusy) || time.Now().After(end) {
			return release, err
		}
	}
}

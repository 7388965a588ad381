package netns

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockName is an abstract socket address. Those belong to a network namespace, cost nothing to
// take, need no privilege and no file system, and are free again when their owner ends, however it
// does.
const lockName = "@sluice.lock"

// Lock keeps others who lock the same namespace waiting until release is called: what takes several
// steps, such as rules with their routes, is then done by one at a time. It is advisory, and
// bounded: when the lock is not free within wait, it returns without it, and taken is false. A
// process of the pod that takes the address can thus delay us, but not stop us.
func (n *NS) Lock(wait time.Duration) (release func(), taken bool, err error) {
	fd := -1
	err = n.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, false, os.NewSyscallError("socket", err)
	}
	release = func() { _ = unix.Close(fd) }
	// A holder needs a millisecond or so; it is rare that there is one.
	const pause = 200 * time.Microsecond
	for deadline := time.Now().Add(wait); ; time.Sleep(pause) {
		err := unix.Bind(fd, &unix.SockaddrUnix{Name: lockName})
		switch {
		case err == nil:
			return release, true, nil
		case !errors.Is(err, unix.EADDRINUSE):
			release()
			return nil, false, os.NewSyscallError("bind", err)
		case time.Now().After(deadline):
			return release, false, nil
		}
	}
}

package netns

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockName is an abstract socket address. Abstract addresses belong to a network namespace, need
// no privilege and no file system, and are released when the process ends for any reason.
const lockName = "@sluice.lock"

// LockTimeout is how long writers wait for the lock. Then they continue without the lock,
// so that no process of the pod can prevent them from writing. Writers usually hold the lock for
// about a millisecond.
const LockTimeout = 2 * time.Second

// Lock acquires the advisory lock of the namespace, which serializes changes of several steps, such
// as rules and their routes. If the lock is not free within wait, Lock returns without it, and
// acquired is false. A process of the pod that binds the address can therefore delay the caller,
// but not block it. Unless Lock returns an error, the caller must call release, even if acquired is
// false.
func (n *NS) Lock(wait time.Duration) (release func(), acquired bool, err error) {
	return n.LockName(lockName, wait)
}

// LockName is like [NS.Lock] for the lock with the given name, an abstract socket address.
func (n *NS) LockName(
	name string, wait time.Duration,
) (release func(), acquired bool, err error) {
	fd := -1
	err = n.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, false, os.NewSyscallError("socket", err)
	}
	release = func() { _ = unix.Close(fd) }
	const retryInterval = 200 * time.Microsecond
	for deadline := time.Now().Add(wait); ; time.Sleep(retryInterval) {
		err := unix.Bind(fd, &unix.SockaddrUnix{Name: name})
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

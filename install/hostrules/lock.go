package hostrules

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile is the lock file of the iptables programs (/run/xtables.lock, XT_LOCK_NAME in their
// source), as a path in the /proc directory of the node's first process.
const lockFile = "root/run/xtables.lock"

const (
	// lockTimeout is the maximum time to wait for the lock. kube-proxy holds the lock while it runs
	// iptables-restore.
	lockTimeout = 5 * time.Second
	// lockRetryInterval is the time between two attempts to take the lock: flock has no time limit.
	lockRetryInterval = 10 * time.Millisecond
)

// Lock takes the lock that the node's iptables programs hold while they replace a table of
// iptables-legacy, and returns a function that releases the lock. It needs CAP_SYS_PTRACE.
func (n *Node) Lock() (unlock func(), err error) {
	path := n.procFile(lockFile)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file of the iptables programs: %s: %w", path, err)
	}
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(lockRetryInterval) {
		switch err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return func() { _ = unix.Close(fd) }, nil
		case errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(deadline),
			errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			err = fmt.Errorf("another program has held it for %v", lockTimeout)
		}
		_ = unix.Close(fd)
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
}

package trace

import (
	"time"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// lockName is the name of the lock ([netns.NS.LockName]).
const lockName = "@sluice.trace"

// Lock acquires the lock of the namespace. A session holds the lock if the kernel does not remove
// the session's rules at the end of the process. If such a session or another caller of Lock holds
// the lock, Lock returns [ErrBusy]. No such session can begin before release is called.
func Lock(ns *netns.NS) (release func(), err error) { return lock(ns, 0) }

// lockWait is the time limit of [LockSession]. A removal holds the lock for some milliseconds.
const lockWait = 2 * time.Second

// LockSession is like [Lock], but for a new session: it waits while another process, such as the
// node agent, removes the rules of a killed session.
func LockSession(ns *netns.NS) (release func(), err error) { return lock(ns, lockWait) }

// lock acquires the lock within the given time, or returns [ErrBusy].
func lock(ns *netns.NS, wait time.Duration) (release func(), err error) {
	release, acquired, err := ns.LockName(lockName, wait)
	if err == nil && !acquired {
		release()
		return nil, ErrBusy
	}
	return release, err
}

package compat

import "github.com/sluice-mesh/sluice/nft/netns"

// withLock runs do while it holds the lock of the thread's namespace, so that other processes that
// apply rules wait. The lock is advisory. If another process does not release the lock within
// [netns.LockTimeout], or if the namespace has no lock, withLock runs do without it and exclusive
// is false.
func withLock(do func(exclusive bool) error) error {
	release, acquired, err := (*netns.NS)(nil).Lock(netns.LockTimeout)
	if err != nil {
		return do(false)
	}
	defer release()
	return do(acquired)
}

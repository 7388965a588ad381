package testbed

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/thread"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// As runs fn in the caller's network namespace on a thread whose file system
// uid and gid are the given ones, and returns fn's error. The sockets that fn
// makes, by socket or accept, are then owned by uid and gid in the eyes of
// "meta skuid" and "-m owner", for as long as they are open and whoever uses
// them.
//
// Capabilities over the network stay, so fn may bind port 53 or set
// IP_TRANSPARENT; those over files go when uid is not 0. To own sockets in
// another namespace call As inside [netns.NS.Do], not around it. As in Do,
// goroutines that fn starts stay outside, and a panic or t.Fatal in fn passes
// through. [unix.EPERM] is in the error when the process may not become uid and
// gid: root of a user namespace can become only those that it maps.
func As(uid, gid int, fn func() error) error {
	here, err := netns.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("as uid %d, gid %d: %w", uid, gid, err)
	}
	defer func() { _ = here.Close() }()
	return thread.Run(thread.Work{
		Enter: func() error {
			// Not Do, which would leave for a thread without the ids.
			if err := unix.Setns(here.FD(), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("as uid %d, gid %d: enter %s: %w", uid, gid, here.ID(), err)
			}
			if err := setIDs(uid, gid); err != nil {
				return err
			}
			// A change of ids made the whole process undumpable (commit_creds in
			// kernel/cred.c), its files in /proc another user's.
			return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
		},
		Do: fn,
		// No Leave: the thread ends, and its ids with it.
	})
}

// setIDs sets the ids of the calling thread, where syscall.Setuid would set
// those of all. The group comes first: a user other than root may not change it.
func setIDs(uid, gid int) error {
	// setfsgid(2): a refusal shows only in the next call's answer, and -1
	// changes nothing.
	for _, id := range []struct {
		name string
		want int
		set  func(int) (int, error)
	}{
		{"gid", gid, unix.SetfsgidRetGid},
		{"uid", uid, unix.SetfsuidRetUid},
	} {
		_, _ = id.set(id.want)
		if got, _ := id.set(-1); got != id.want {
			return fmt.Errorf("become %s %d: %w", id.name, id.want, unix.EPERM)
		}
	}
	return nil
}

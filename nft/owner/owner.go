// Package owner makes sockets that are another user's or group's.
package owner

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/thread"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// As runs fn in the caller's network namespace on a thread whose file system uid and gid are the
// given ones, and returns fn's error. The sockets that fn makes, by socket or accept, are then
// owned by uid and gid in the eyes of "meta skuid" and "-m owner", for as long as they are open, no
// matter which process uses them.
//
// Capabilities over the network stay, so fn may bind port 53 or set IP_TRANSPARENT; those over
// files go when uid is not 0. To own sockets in another namespace call As inside [netns.NS.Do], not
// around it. As in Do, goroutines that fn starts stay outside, and a panic or t.Fatal in fn passes
// through. When the calling thread has the ids already, fn is called directly, which needs no
// privilege; otherwise it takes CAP_SETUID and CAP_SETGID. [unix.EPERM] is in the error when the
// process may not become uid and gid: root of a user namespace can become only ids that it maps. As
// is safe for concurrent use.
func As(uid, gid int, fn func() error) error {
	// A caller that is moved to another thread between the two questions is on none with ids of its
	// own: those are locked.
	if current(unix.SetfsuidRetUid) == uid && current(unix.SetfsgidRetGid) == gid {
		return fn()
	}
	here, err := netns.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("as uid %d, gid %d: %w", uid, gid, err)
	}
	defer func() { _ = here.Close() }()
	return thread.Run(thread.Work{
		Enter: func() error {
			if err := enter(here); err != nil {
				return fmt.Errorf("as uid %d, gid %d: enter %s: %w", uid, gid, here.ID(), err)
			}
			return become(uid, gid)
		},
		Do: fn,
		// No Leave: the thread ends, and its ids with it.
	})
}

// enter moves the calling thread into the namespace. Not Do, which would leave for a thread without
// the ids.
func enter(n *netns.NS) error {
	// Only a caller that has left the process's namespace needs CAP_SYS_ADMIN, and that one has it.
	if n.ID() == (*netns.NS)(nil).ID() {
		return nil
	}
	return unix.Setns(n.FD(), unix.CLONE_NEWNET)
}

// changing is held while a thread changes its ids: that long the process is undumpable.
var changing sync.Mutex

// become sets the ids of the calling thread, where syscall.Setuid would set those of all. The group
// comes first: a user other than root may not change it.
func become(uid, gid int) error {
	changing.Lock()
	defer changing.Unlock()
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		return os.NewSyscallError("prctl", err)
	}
	// Changed ids make the whole process undumpable (commit_creds in kernel/cred.c), its files in
	// /proc another user's. The 2 of suid_dumpable in proc_sys_fs(5) cannot be set, but is what the
	// change has set then.
	defer func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(dumpable), 0, 0, 0) }()
	for _, id := range []struct {
		name string
		want int
		set  func(int) (int, error)
	}{
		{"gid", gid, unix.SetfsgidRetGid},
		{"uid", uid, unix.SetfsuidRetUid},
	} {
		// setfsgid(2): a refusal shows only in the next call's answer.
		_, _ = id.set(id.want)
		if current(id.set) != id.want {
			return fmt.Errorf("become %s %d: %w", id.name, id.want, unix.EPERM)
		}
	}
	return nil
}

// current returns the calling thread's id: -1 changes nothing, and the answer is what was set
// before.
func current(set func(int) (int, error)) int {
	id, _ := set(-1)
	return id
}

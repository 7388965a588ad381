// Package owner runs functions whose sockets belong to another user or group, and translates the
// ids of users and groups between user namespaces.
package owner

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/thread"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// As runs fn in the caller's network namespace on a thread with the file system ids uid and gid,
// and returns fn's error. "meta skuid" and "-m owner" match sockets that fn opens with socket(2) or
// accept(2) as owned by uid and gid, as long as the sockets are open and regardless of the process
// that uses them.
//
// The thread keeps its network capabilities, so that fn may bind port 53 or set IP_TRANSPARENT. If
// uid is not 0 the thread loses the capabilities for file access, such as CAP_DAC_OVERRIDE. To open
// sockets in another namespace, call As inside [netns.NS.Do]. As with Do, goroutines that fn starts
// do not have the ids, and a panic or [runtime.Goexit] in fn propagates to the caller of As.
//
// If the calling thread already has the ids, As calls fn directly and needs no privilege.
// Otherwise it needs CAP_SETUID and CAP_SETGID. The error wraps [unix.EPERM] if the process may not
// use the ids: root of a user namespace may use only ids that the user namespace maps. As is safe
// for concurrent use.
func As(uid, gid int, fn func() error) error {
	// The goroutine may move to another thread between the two calls. Both threads then have the
	// ids of the process, because a goroutine on a thread with other ids is locked to the thread.
	if current(unix.SetfsuidRetUid) == uid && current(unix.SetfsgidRetGid) == gid {
		return fn()
	}
	callerNS, err := netns.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("as uid %d, gid %d: %w", uid, gid, err)
	}
	defer func() { _ = callerNS.Close() }()
	return thread.Run(thread.Work{
		Enter: func() error {
			if err := enter(callerNS); err != nil {
				return fmt.Errorf("as uid %d, gid %d: enter %s: %w", uid, gid, callerNS.ID(), err)
			}
			return setIDs(uid, gid)
		},
		Do: fn,
		// No Leave: the thread is terminated instead of restoring its ids.
	})
}

// enter moves the calling thread into the namespace. It does not use [netns.NS.Do], which would run
// the function on another thread, without the ids.
func enter(n *netns.NS) error {
	// If this new thread is in the namespace already, skip setns, which needs CAP_SYS_ADMIN.
	// Otherwise the caller of As has entered a namespace other than the namespace of the process,
	// which needs CAP_SYS_ADMIN too.
	if n.ID() == (*netns.NS)(nil).ID() {
		return nil
	}
	return unix.Setns(n.FD(), unix.CLONE_NEWNET)
}

// dumpableMu is held while setIDs changes the dumpable attribute of the process.
var dumpableMu sync.Mutex

// setIDs sets the file system ids of the calling thread. [syscall.Setuid] would set the ids of all
// threads.
func setIDs(uid, gid int) error {
	dumpableMu.Lock()
	defer dumpableMu.Unlock()
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		return os.NewSyscallError("prctl", err)
	}
	// A change of ids makes the whole process undumpable (commit_creds in kernel/cred.c), and makes
	// root the owner of its files in /proc. Restore the attribute. PR_SET_DUMPABLE rejects the
	// value 2 (suid_dumpable in proc_sys_fs(5)); if the attribute was 2, the change of ids has set
	// it to 2 again.
	defer func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(dumpable), 0, 0, 0) }()
	for _, id := range []struct {
		name string
		want int
		set  func(int) (int, error)
	}{
		{"gid", gid, unix.SetfsgidRetGid},
		{"uid", uid, unix.SetfsuidRetUid},
	} {
		// setfsuid(2) and setfsgid(2) do not return errors: read the id to detect one.
		_, _ = id.set(id.want)
		if current(id.set) != id.want {
			return fmt.Errorf("set %s %d: %w", id.name, id.want, unix.EPERM)
		}
	}
	return nil
}

// current returns an id of the calling thread. set returns the previous id, and changes nothing if
// its argument is -1.
func current(set func(int) (int, error)) int {
	id, _ := set(-1)
	return id
}

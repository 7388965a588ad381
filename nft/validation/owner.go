package validation

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// owners knows whose the sockets of this process are, and makes sockets of others. All numbers of rules.Owner are those of the
// user namespace that owns the network namespace, as rules compare them.
type owners struct {
	self       rules.Owner
	uids, gids idMap
	// unmapped is why nobody else's sockets can be made, where the numbers could not be found out.
	unmapped error
}

// newOwners finds out what the ids of this process mean in the namespace.
func newOwners(ns *netns.NS) *owners {
	o := &owners{}
	o.uids, o.gids, o.unmapped = idMaps(ns)
	o.self = rules.Owner{UID: o.uids.inside(os.Geteuid()), GID: o.gids.inside(os.Getegid())}
	return o
}

// can tells whether the process may make sockets of the owner.
func (o *owners) can(owner rules.Owner) bool {
	return o.as(owner, func() error { return nil }) == nil
}

// changing is held while a thread has other ids: the change makes the process undumpable for that time.
var changing sync.Mutex

// as runs fn on the calling thread with the owner's file system ids: to rules, sockets that fn makes are the owner's for as long as
// they are open. Capabilities over the network stay. fn must be short, and may start no goroutine that matters.
func (o *owners) as(owner rules.Owner, fn func() error) error {
	if owner == o.self {
		return fn()
	}
	uid, knowsUID := o.uids.outside(owner.UID)
	gid, knowsGID := o.gids.outside(owner.GID)
	switch {
	case o.unmapped != nil:
		return o.unmapped
	case !knowsUID || !knowsGID:
		return fmt.Errorf("uid %d gid %d: not mapped into the user namespace", owner.UID, owner.GID)
	}
	changing.Lock()
	defer changing.Unlock()
	runtime.LockOSThread()
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		dumpable = 1
	}
	uidBefore, gidBefore, err := setIDs(uid, gid)
	if err == nil {
		err = fn()
	}
	if _, _, restoreErr := setIDs(uidBefore, gidBefore); restoreErr != nil {
		// The thread stays locked: it ends with its goroutine, and nobody else is given it.
		return fmt.Errorf("become uid %d gid %d again: %w", uidBefore, gidBefore, restoreErr)
	}
	// Changed ids have made the process undumpable (commit_creds in kernel/cred.c), its files in /proc another user's.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(dumpable), 0, 0, 0)
	runtime.UnlockOSThread()
	return err
}

// setIDs sets the file system ids of the calling thread and returns the former ones. The group comes first: a user other than root
// may not change it. On an error they are as before or restorable by another call.
func setIDs(uid, gid int) (uidBefore, gidBefore int, err error) {
	gidBefore, _ = unix.SetfsgidRetGid(gid)
	uidBefore, _ = unix.SetfsuidRetUid(uid)
	// setfsgid(2): a refusal shows only in the next call's answer, and -1 changes nothing.
	gidNow, _ := unix.SetfsgidRetGid(-1)
	uidNow, _ := unix.SetfsuidRetUid(-1)
	if gidNow != gid || uidNow != uid {
		err = fmt.Errorf("become uid %d gid %d: %w", uid, gid, unix.EPERM)
	}
	return uidBefore, gidBefore, err
}

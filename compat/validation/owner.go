package validation

import (
	"fmt"
	"os"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/owner"
	"github.com/sluice-mesh/sluice/rules"
)

// owners runs functions as other owners of sockets. All IDs are IDs of the user namespace that owns
// the network namespace, because rules compare these.
type owners struct {
	self       rules.Owner // the owner of the sockets of this process
	uids, gids owner.IDMap
	// mapErr is the reason why the ID mapping is unknown, or nil. If the mapping is unknown,
	// sockets of other users cannot be created.
	mapErr error
}

// newOwners reads the ID mapping of this process for the namespace.
func newOwners(ns *netns.NS) *owners {
	o := &owners{}
	o.uids, o.gids, o.mapErr = owner.IDMaps(ns, "/proc")
	o.self = rules.Owner{UID: o.uids.Inside(os.Geteuid()), GID: o.gids.Inside(os.Getegid())}
	return o
}

// mayRunAs reports whether the process may create sockets of the owner.
func (o *owners) mayRunAs(id rules.Owner) bool {
	return o.runAs(id, func() error { return nil }) == nil
}

// runAs runs fn with the owner's file system IDs (see [owner.As]). For rules, sockets that fn
// creates have this owner.
func (o *owners) runAs(id rules.Owner, fn func() error) error {
	if id == o.self {
		return fn()
	}
	uid, uidMapped := o.uids.Outside(id.UID)
	gid, gidMapped := o.gids.Outside(id.GID)
	switch {
	case o.mapErr != nil:
		return o.mapErr
	case !uidMapped || !gidMapped:
		return fmt.Errorf("uid %d gid %d: not mapped into the user namespace", id.UID, id.GID)
	}
	return owner.As(uid, gid, fn)
}

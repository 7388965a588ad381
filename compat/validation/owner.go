package validation

import (
	"fmt"
	"os"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/owner"
	"github.com/sluice-mesh/sluice/rules"
)

// owners knows the owner of the sockets of this process, and creates sockets with other owners. All
// ids are ids of the user namespace that owns the network namespace, as rules compare them.
type owners struct {
	self       rules.Owner
	uids, gids idMap
	// unmapped is the reason why sockets of other users cannot be created, if the id mapping is
	// unknown.
	unmapped error
}

// newOwners reads the id mapping of this process for the namespace.
func newOwners(ns *netns.NS) *owners {
	o := &owners{}
	o.uids, o.gids, o.unmapped = idMaps(ns)
	o.self = rules.Owner{UID: o.uids.inside(os.Geteuid()), GID: o.gids.inside(os.Getegid())}
	return o
}

// can reports whether the process may create sockets of the owner.
func (o *owners) can(whose rules.Owner) bool {
	return o.as(whose, func() error { return nil }) == nil
}

// as runs fn with the owner's file system ids (see [owner.As]): sockets that fn creates have this
// owner in rules.
func (o *owners) as(whose rules.Owner, fn func() error) error {
	if whose == o.self {
		return fn()
	}
	uid, knowsUID := o.uids.outside(whose.UID)
	gid, knowsGID := o.gids.outside(whose.GID)
	switch {
	case o.unmapped != nil:
		return o.unmapped
	case !knowsUID || !knowsGID:
		return fmt.Errorf("uid %d gid %d: not mapped into the user namespace", whose.UID, whose.GID)
	}
	return owner.As(uid, gid, fn)
}

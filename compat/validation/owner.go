package validation

import (
	"os"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/owner"
	"github.com/sluice-mesh/sluice/rules"
)

// owners runs functions that create sockets of other owners. All IDs are IDs of the user namespace
// that owns the network namespace, because rules compare these.
type owners struct {
	self rules.Owner // the owner of the sockets of this process
	// maps translates IDs between the namespace and this process. If the maps are unknown, sockets
	// of other users cannot be created.
	maps owner.Maps
}

// newOwners reads the ID mapping of this process for the namespace.
func newOwners(ns *netns.NS) *owners {
	o := &owners{maps: owner.MapsOf(ns, "/proc")}
	// If the maps are unknown, runAs returns the error for any other owner.
	o.self, _ = o.maps.Inside(rules.Owner{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())})
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
	uid, gid, err := o.maps.Outside(id)
	if err != nil {
		return err
	}
	return owner.As(uid, gid, fn)
}

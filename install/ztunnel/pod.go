package ztunnel

import (
	"fmt"
	"time"

	vishnetns "github.com/vishvananda/netns"

	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Pod is a pod that ztunnel serves.
type Pod struct {
	UID             string // metadata.uid, required
	Name, Namespace string
	ServiceAccount  string // spec.serviceAccountName, may be empty
	// Netns is the network namespace of the pod. The server duplicates the descriptor: the caller
	// may close it after the call. If the namespace is unknown, Netns is nil: after
	// [Server.Restore] a ztunnel then keeps the pod if it already serves it, and [Server.Add]
	// fails.
	Netns *netns.NS
}

// String returns namespace/name, or the UID if the pod has no name.
func (p Pod) String() string {
	if p.Name == "" {
		return "uid " + p.UID
	}
	return p.Namespace + "/" + p.Name
}

// An entry is a pod in the state of the server. Only its fields removed and users change.
type entry struct {
	Pod          // Netns is a duplicate
	removed bool // the entry was removed or replaced
	users   int  // number of connections that are sending Netns
}

// newEntry returns an entry with a duplicate of the pod's network namespace.
func newEntry(p Pod) (*entry, error) {
	e := &entry{Pod: p}
	if p.Netns == nil {
		return e, nil
	}
	ns, err := netns.FromHandle(vishnetns.NsHandle(p.Netns.FD()))
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", p, err)
	}
	e.Netns = ns
	return e, nil
}

// matches reports whether a pod needs no new entry. An unknown network namespace matches every
// namespace.
func (e *entry) matches(p Pod) bool {
	if e.Name != p.Name || e.Namespace != p.Namespace || e.ServiceAccount != p.ServiceAccount {
		return false
	}
	return p.Netns == nil || e.Netns != nil && e.Netns.ID() == p.Netns.ID()
}

// closeUnused closes the network namespace once the entry is removed and nothing sends it.
func (e *entry) closeUnused() {
	if e.removed && e.users == 0 {
		_ = e.Netns.Close()
	}
}

// A request is a message for a ztunnel.
type request struct {
	message *zds.Request
	uid     string // empty for the end of the snapshot
	text    string // for errors and logs, for example "add default/web"
	entry   *entry // of an add or a keep
	keep    bool
	since   time.Time // time when the message was sent
}

func (r *request) isAdd() bool { return r.entry != nil && !r.keep }

func addRequest(e *entry) *request {
	return &request{
		uid: e.UID, entry: e, text: "add " + e.String(),
		message: &zds.Request{Payload: &zds.Request_Add{Add: &zds.AddWorkload{
			Uid: e.UID,
			WorkloadInfo: &zds.WorkloadInfo{
				Name: e.Name, Namespace: e.Namespace, ServiceAccount: e.ServiceAccount,
			},
		}}},
	}
}

func keepRequest(e *entry) *request {
	return &request{
		uid: e.UID, entry: e, keep: true, text: "keep " + e.String(),
		message: &zds.Request{Payload: &zds.Request_Keep{Keep: &zds.KeepWorkload{Uid: e.UID}}},
	}
}

func deleteRequest(uid string) *request {
	return &request{
		uid: uid, text: "delete uid " + uid,
		message: &zds.Request{Payload: &zds.Request_Del{Del: &zds.DelWorkload{Uid: uid}}},
	}
}

func snapshotRequest() *request {
	return &request{
		text: "end of snapshot",
		message: &zds.Request{
			Payload: &zds.Request_SnapshotSent{SnapshotSent: &zds.SnapshotSent{}},
		},
	}
}

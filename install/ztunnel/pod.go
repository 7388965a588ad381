package ztunnel

import (
	"fmt"
	"time"

	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Pod is a pod that ztunnel serves.
type Pod struct {
	UID             string // metadata.uid, required
	Name, Namespace string
	ServiceAccount  string // spec.serviceAccountName, may be empty
	// Netns is the network namespace of the pod, or nil if it is unknown. Without it,
	// [Server.Restore] lets a ztunnel keep the pod if the ztunnel already serves it, and
	// [Server.Add] fails. The server duplicates the descriptor: the caller may close its own after
	// the call.
	Netns *netns.NS
}

// String returns namespace/name, or the UID if the pod has no name.
func (p Pod) String() string {
	if p.Name == "" {
		return "uid " + p.UID
	}
	return p.Namespace + "/" + p.Name
}

// A servedPod is a pod in the state of the server. If the pod changes, another servedPod replaces
// it: only the fields removed and users change.
type servedPod struct {
	Pod          // Netns is a duplicate
	removed bool // from the state of the server
	users   int  // number of connections that are sending Netns
}

// newServedPod returns a servedPod with a duplicate of the pod's network namespace.
func newServedPod(p Pod) (*servedPod, error) {
	served := &servedPod{Pod: p}
	if p.Netns == nil {
		return served, nil
	}
	ns, err := netns.FromHandle(p.Netns.Handle())
	if err != nil {
		return nil, fmt.Errorf("pod %s: duplicate the network namespace: %w", p, err)
	}
	served.Netns = ns
	return served, nil
}

// matches reports whether a pod needs no new servedPod. An unknown network namespace matches every
// namespace.
func (served *servedPod) matches(p Pod) bool {
	sameNetns := p.Netns == nil || served.Netns != nil && served.Netns.ID() == p.Netns.ID()
	return sameNetns && served.Name == p.Name && served.Namespace == p.Namespace &&
		served.ServiceAccount == p.ServiceAccount
}

// closeUnused closes the network namespace if the pod was removed and no connection is sending the
// namespace.
func (served *servedPod) closeUnused() {
	if served.removed && served.users == 0 {
		_ = served.Netns.Close()
	}
}

// A request is a message for a ztunnel.
type request struct {
	message *zds.Request
	uid     string     // empty for the end of the snapshot
	text    string     // for errors and logs, for example "add default/web"
	pod     *servedPod // of an add or a keep
	keep    bool
	since   time.Time // time when the message was sent
}

func (r *request) isAdd() bool { return r.pod != nil && !r.keep }

func addRequest(served *servedPod) *request {
	return &request{
		uid: served.UID, pod: served, text: "add " + served.String(),
		message: &zds.Request{Payload: &zds.Request_Add{Add: &zds.AddWorkload{
			Uid: served.UID,
			WorkloadInfo: &zds.WorkloadInfo{
				Name: served.Name, Namespace: served.Namespace, ServiceAccount: served.ServiceAccount,
			},
		}}},
	}
}

func keepRequest(served *servedPod) *request {
	return &request{
		uid: served.UID, pod: served, keep: true, text: "keep " + served.String(),
		message: &zds.Request{Payload: &zds.Request_Keep{Keep: &zds.KeepWorkload{Uid: served.UID}}},
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
		text:    "end of snapshot",
		message: &zds.Request{Payload: &zds.Request_SnapshotSent{SnapshotSent: &zds.SnapshotSent{}}},
	}
}

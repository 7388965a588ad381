package sandbox

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// Pod names a pod.
type Pod struct {
	Namespace, Name string
	// UID is by what the kubelet knows the pod. That of a static pod is in its annotation
	// kubernetes.io/config.hash.
	UID string
}

// String is the pod as logs and errors name it.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Source is where a sandbox was found.
type Source string

// The sources.
const (
	// Record is what the plugin's ADD has stored.
	Record Source = "record"
	// Runtime is the runtime's cache of results.
	Runtime Source = "runtime"
	// Proc is the node's /proc.
	Proc Source = "proc"
)

// Sandbox is a pod's network namespace.
type Sandbox struct {
	Pod Pod
	// Path is the namespace's file, which can be opened while the namespace lives; see
	// [Sandbox.Open].
	Path string
	// ID recognises the namespace while it lives.
	ID netns.ID
	// ContainerID is the runtime's id of the sandbox; empty if it was found in /proc.
	ContainerID string
	Source      Source
	// Created is when the namespace was made, or the process started that shows it, by the node's
	// clock; zero if that is not known.
	Created time.Time
}

// Open opens the namespace, to be closed soon: that keeps it from ending. [fs.ErrNotExist] is in
// the error if its file is gone, and it is an error too if the file is another namespace by now.
// Find the pod again then.
func (s Sandbox) Open() (*netns.NS, error) {
	ns, err := netns.Open(s.Path)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", s.Pod, err)
	}
	if ns.ID() != s.ID {
		_ = ns.Close()
		return nil, fmt.Errorf("pod %s: %s is %s by now, no longer %s", s.Pod, s.Path, ns.ID(), s.ID)
	}
	return ns, nil
}

// there reports whether the path is still the namespace.
func (s Sandbox) there() bool {
	id, err := identify(s.Path)
	return err == nil && id == s.ID
}

// identify returns what namespace a file is, if it is one at all.
func identify(path string) (netns.ID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return netns.ID{}, fmt.Errorf("%s: %w", path, err)
	}
	return netns.ID{Dev: st.Dev, Ino: st.Ino}, nil
}

// Missing is a pod whose sandbox was not found.
type Missing struct {
	Pod Pod
	// Err says why, by source. That is no failure: a pod that is about to start or to end has no
	// sandbox.
	Err error
}

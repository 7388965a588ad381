package sandbox

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// Pod identifies a pod.
type Pod struct {
	Namespace, Name string
	// UID is the UID of the pod in the kubelet. For a static pod it is in the annotation
	// kubernetes.io/config.hash.
	UID string
	// Unproven reports that the UID may belong to another pod, as in an annotation, which every
	// user can set. Then only the sources that contain the name of the pod are searched, not /proc.
	// Search for such a pod alone: the result of Find contains one sandbox for each UID.
	Unproven bool
}

// String returns the name of the pod for logs and errors.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Source is the source in which a sandbox was found.
type Source string

// The sources.
const (
	// Record is the record of the plugin's ADD.
	Record Source = "record"
	// Runtime is the runtime's cache of results.
	Runtime Source = "runtime"
	// Proc is the node's /proc.
	Proc Source = "proc"
)

// Sandbox is a pod's network namespace.
type Sandbox struct {
	Pod Pod
	// Path is the namespace's file, which can be opened while the namespace exists; see
	// [Sandbox.Open].
	Path string
	// ID identifies the namespace while it exists.
	ID netns.ID
	// ContainerID is the runtime's id of the sandbox; empty if it was found in /proc.
	ContainerID string
	Source      Source
	// Created is the creation time of the namespace, or the start time of the process that showed
	// it, by the node's clock; zero if unknown.
	Created time.Time
}

// Open opens the namespace. It should be closed soon, because an open namespace does not end. The
// error wraps [fs.ErrNotExist] if the file has been removed. It is also an error if the file is
// another namespace now; then find the pod again.
func (s Sandbox) Open() (*netns.NS, error) {
	ns, err := netns.Open(s.Path)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", s.Pod, err)
	}
	if ns.ID() != s.ID {
		_ = ns.Close()
		return nil, fmt.Errorf("pod %s: %s is now %s, not %s", s.Pod, s.Path, ns.ID(),
			s.ID)
	}
	return ns, nil
}

// exists reports whether the path is still the same namespace.
func (s Sandbox) exists() bool {
	id, err := identify(s.Path)
	return err == nil && id == s.ID
}

// identify returns the identity of a file if it is a namespace.
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
	// Err contains the reasons by source. It is not a failure: a pod that is starting or ending has
	// no sandbox.
	Err error
}

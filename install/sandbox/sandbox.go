package sandbox

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
)

// Pod identifies a pod.
type Pod struct {
	Namespace, Name string
	// UID is the UID of the pod in the kubelet. For a static pod this is the value of the
	// annotation kubernetes.io/config.mirror.
	UID string
	// Unproven is set if the UID may belong to another pod because it comes from an annotation,
	// which users can set. A network namespace in /proc is then accepted only if it has Address,
	// because /proc does not contain the names of pods.
	Unproven bool
	// Address is an address in the pod's status, which only the kubelet sets. It is needed only if
	// Unproven is set.
	Address netip.Addr
}

// PodOf returns the pod of an object of the API server. For a mirror pod this is its static pod.
func PodOf(object *decide.Pod) Pod {
	p := Pod{
		Namespace: object.Metadata.Namespace, Name: object.Metadata.Name, UID: object.Metadata.UID,
	}
	if hash := object.ConfigHash(); hash != "" {
		p.UID, p.Unproven = hash, true
		if addresses := object.Addresses(); len(addresses) > 0 {
			p.Address = addresses[0]
		}
	}
	return p
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
	// Path is the path of the network namespace for this process; see [Sandbox.Open].
	Path string
	// ID identifies the namespace while it exists.
	ID netns.ID
	// ContainerID is the runtime's ID of the sandbox; empty if the sandbox was found in /proc.
	ContainerID string
	Source      Source
	// Created is the creation time of the network namespace by the node's clock; zero if unknown.
	// If Path leads to a process in /proc, Created is the start time of the process.
	Created time.Time
}

// Open opens the network namespace. Close the result soon: the namespace is not removed while it is
// open. The error wraps [fs.ErrNotExist] if the file has been removed. If the path now leads to
// another namespace, Open returns another error: search for the pod again.
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

// exists reports whether the path still leads to the same namespace.
func (s Sandbox) exists() bool {
	id, err := identify(s.Path)
	return err == nil && id == s.ID
}

// identify returns the identity of the network namespace at a path. It does not check that the file
// is a network namespace.
func identify(path string) (netns.ID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return netns.ID{}, fmt.Errorf("%s: stat: %w", path, err)
	}
	return netns.ID{Dev: st.Dev, Ino: st.Ino}, nil
}

// Missing is the reason why the sandbox of a pod was not found.
type Missing struct {
	// Err contains the reason for each source. It is not necessarily a failure, because a pod that
	// is starting or ending has no sandbox.
	Err error
	// Ended is set if the pod has records of ADD, and each of their network namespaces has been
	// removed or belongs to another pod.
	Ended bool
}

package cluster

import "io"

// Options describes a cluster. The zero value is an IPv4 cluster without DNS in a new temporary
// directory.
type Options struct {
	// Name is the name of the node and the prefix of log lines. With StartKind, the names of the
	// nodes only begin with Name. Name need not be unique. The default is "node".
	Name string
	// Dir is the parent of the cluster's own directory, which is created at the start and removed
	// at the stop. It must be on a file system that can hold overlayfs's upper directory, so
	// neither overlayfs nor NFS. The default is os.TempDir().
	Dir string
	// Log receives a line for each step, and every few seconds during a long step. Writes are
	// serialized. Nil discards the log.
	Log io.Writer

	// DualStack adds IPv6 addresses to pods, services and the node.
	DualStack bool
	// DNS runs CoreDNS as the Service kube-system/kube-dns. It resolves names of the cluster only.
	DNS bool
	// FeatureGates are the feature gates of all Kubernetes programs.
	FeatureGates map[string]bool

	// CNIVersion is the CNI version in the conflist; the default is "1.0.0". From "1.1.0" on,
	// containerd calls STATUS.
	CNIVersion string
	// Runtime is the container runtime of StartVM's node: Containerd, the default, or CRIO.
	Runtime string
	// NodeImage is the node image of StartKind: BuildNodeImage, or the name of an image in a
	// registry. The default is kind's default image.
	NodeImage string

	// Images are image archives that the start functions load, as Cluster.LoadImage does.
	Images []string
}

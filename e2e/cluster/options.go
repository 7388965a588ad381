package cluster

import "io"

// Options describe a cluster. The zero value is one with IPv4 alone, without DNS, in a new folder
// of the system's temporary one.
type Options struct {
	// Name is that of the node, and begins the cluster's log lines; "node" when empty. Clusters may
	// have the same.
	Name string
	// Dir is the folder in which the cluster makes a folder of its own, which goes with it;
	// os.TempDir() when empty. It is on a file system that overlayfs can write to, so neither an
	// overlay nor NFS.
	Dir string
	// Logs is the folder to which Start collects what there is to know of a cluster that does not
	// come up. When empty it is a new one in bin/e2e/logs of the checkout.
	Logs string
	// Log gets a line for each step, and every few seconds of a long one. It is written to by one
	// goroutine at a time. Nil: nobody is told.
	Log io.Writer

	// DualStack gives pods, services and the node IPv6 addresses too.
	DualStack bool
	// DNS runs CoreDNS, as the Service kube-system/kube-dns. It knows no names outside of the
	// cluster.
	DNS bool
	// FeatureGates are those of all of Kubernetes' programs.
	FeatureGates map[string]bool

	// CNIVersion is the version in the default conflist, which is the file ConflistPath; "1.0.0"
	// when empty. From "1.1.0" on containerd asks plugins for their status.
	CNIVersion string
	// Conflist replaces that file's content.
	Conflist []byte
	// Runtime is the runtime of StartVM's node: Containerd, which is the default, or CRIO.
	Runtime string
	// NodeImage is that of the nodes of StartKind: BuildNodeImage, or a name that a registry knows.
	// When empty it is kind's own.
	NodeImage string

	// Images are archives, as of Cluster.LoadImage, that the node has when Start returns.
	Images []string
}

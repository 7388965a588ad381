// Package sandbox finds the network namespaces of a node's pods.
//
// It searches three sources, the cheapest first. Each source is searched only for pods that were
// not found in the preceding sources:
//
//	source   what it is                                     needs
//	record   records of the plugin's ADD                    run directory, netns directory
//	runtime  the runtime's cache of results (libcni's)      the cache, netns directory
//	proc     processes whose cgroup is below the pod's      the node's /proc, CAP_SYS_PTRACE
//
// The netns directory is the directory where the runtime mounts network namespaces. Entering a
// namespace requires CAP_SYS_ADMIN, and also CAP_SYS_PTRACE if its path is below /proc.
//
// The first two sources contain a path on the node. Either the path is in the node's directory of
// network namespaces, which may be mounted at another path for the finder, or it is the file of a
// process (/proc/PID/ns/net, as cri-dockerd uses) that still belongs to the pod. If two pods have
// the same path, the path belongs to the pod with the newest record or result. If a pod had several
// sandboxes, the finder returns the newest one that exists: the runtime removes the file of the old
// sandbox before it creates a new one.
//
// In /proc the finder accepts any process of the pod, because a sandbox may have no process of its
// own: containerd starts a pause container, CRI-O usually does not. If the processes of a pod are
// in several namespaces, namespaces in the node's directory of network namespaces take precedence,
// because pods cannot create files there. Among namespaces of equal precedence, the finder uses the
// namespace of the oldest process, because the processes that start a pod are older than processes
// of the pod that enter other namespaces. If the directory is not mounted, a new sandbox may not be
// found while processes of the old one still exist.
//
// The first two sources contain the name of the pod too; /proc does not. If a UID is not proven to
// be the pod's ([Pod.Unproven]), a network namespace in /proc is accepted only if it has the pod's
// address.
//
// The finder searches for pods by UID, because names are reused. In the path of a cgroup, only the
// outermost level that names a pod counts, because a pod may choose the names of the cgroups below
// its cgroup. The network namespaces of the node and of the finder are never sandboxes, so a pod
// with hostNetwork has none.
package sandbox

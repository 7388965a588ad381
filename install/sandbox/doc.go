// Package sandbox finds the network namespaces of a node's pods.
//
// It searches three sources, the cheapest first. Each source is searched only for pods that were
// not found in the sources before it:
//
//	source   what it is                                     needs
//	record   records of the plugin's ADD                    run directory, netns directory
//	runtime  the runtime's cache of results (libcni's)      the cache, netns directory
//	proc     processes whose cgroup is below the pod's      the node's /proc, CAP_SYS_PTRACE
//
// The netns directory is the directory where the runtime mounts network namespaces. Entering a
// namespace requires CAP_SYS_ADMIN, and also CAP_SYS_PTRACE if its path is below /proc.
//
// The first two sources contain a path on the node. The path must be in the node's directory of
// network namespaces, which may be mounted at another path for the finder, or be the file of a
// process (/proc/PID/ns/net, as cri-dockerd uses) that still belongs to the pod. If two pods have
// the same path, the newest record or result is used. If a pod had several sandboxes, the newest
// existing one is used: the runtime removes the file of the old sandbox before it creates a new
// one.
//
// In /proc any process of the pod is sufficient, whether the sandbox has a process (the pause
// container) or not (CRI-O). If the processes of a pod are in several namespaces, namespaces in the
// node's directory of network namespaces take precedence, because pods cannot create files there.
// Among namespaces of equal precedence, the one of the oldest process is used, because the
// processes that start a pod are older than processes of the pod that enter other namespaces. If
// the directory is not mounted, a new sandbox may not be found while processes of the old one still
// exist.
//
// The first two sources contain the name of the pod too; /proc does not. If a UID is not proven to
// be the pod's ([Pod.Unproven]), a network namespace in /proc is accepted only if it has the pod's
// address.
//
// Pods are searched for by UID, because names are reused. Of a cgroup's path only the outermost
// level that names a pod is used, because a pod may choose the names of cgroups below its own. The
// network namespaces of the node and of the finder are never sandboxes, so a pod with hostNetwork
// has none.
package sandbox

// Package sandbox finds the network namespaces of a node's pods.
//
// It asks three sources, the cheapest first, and the next one only for pods that are not found yet:
//
//	source   what it is                                     needs
//	record   what the plugin's ADD has stored               the plugin's run directory, the directory of network namespaces
//	runtime  the runtime's cache of results (libcni's)      that cache, the directory of network namespaces
//	proc     processes whose cgroup is below the pod's      the node's /proc, CAP_SYS_PTRACE
//
// To enter what is found needs CAP_SYS_ADMIN, and CAP_SYS_PTRACE if the path is one below /proc.
//
// The first two say a path of the node. It must lie directly in the node's directory of network
// namespaces, which the finder may see at another place, or be the file of a process
// (/proc/PID/ns/net, as cri-dockerd says), if that is still one of the pod. If two pods claim the
// same path, it belongs to the one that came last. If a pod had several sandboxes, that which came
// last and is still there counts: the runtime takes the old one's file away before it makes a new
// one.
//
// In /proc any process of the pod will do, whether the sandbox has one of its own (the pause
// container) or none (CRI-O). Of several namespaces, those count that are in the node's directory
// of network namespaces, where no pod can put one; and of these the one of the oldest process, for
// who starts a pod is there before whoever in the pod makes or enters other namespaces. So if that
// directory is not mounted, a pod may hide while its old sandbox is still dying.
//
// A pod is known by its UID alone, which must be equal: names are used again, and a pod may give
// any name to what is below its own cgroup, of which only the outermost level that belongs to a pod
// counts. The node's own namespace and the finder's are never anybody's sandbox, so a pod with
// hostNetwork has none.
package sandbox

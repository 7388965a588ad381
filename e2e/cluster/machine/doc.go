// Package machine emulates a machine with namespaces. The machine has its own processes, mounts,
// network, cgroups and host name. A directory of the host is its disk, and its init restarts its
// services. The package is independent of Kubernetes.
//
// Nothing of the machine outlives the process that started it. Three processes ensure this. Each
// reads a pipe from the previous one, which the kernel closes when that process ends for any
// reason:
//
//	the caller     has a Machine and sends requests
//	 └ the monitor RunMonitor: creates the cgroups, boots the machine, finally removes cgroups and directory
//	    └ init     Boot: the first process of the namespaces; at its end, the kernel kills all others
//
// If the monitor itself is killed, it leaves a directory and cgroups without processes. The next
// [NewDir] removes them.
package machine

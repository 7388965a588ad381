// Package machine emulates a machine with namespaces. The machine has its own processes, mounts,
// network, cgroups and host name. A directory of the host is its disk, and its init restarts its
// services. The package is independent of Kubernetes.
//
// Nothing of the machine outlives the process that started it. Three processes ensure this. Each
// reads a pipe from the previous one. When a process ends for any reason, the kernel closes its
// pipe to the next one:
//
//	the caller     has a Machine and sends requests
//	 └ the monitor RunMonitor: creates the cgroups and boots the machine;
//	    │          finally removes the cgroups and the directory
//	    └ init     Boot: the first process of the namespaces; when it ends,
//	               the kernel kills all other processes of the machine
//
// If the monitor itself is killed, it leaves a directory and cgroups without processes. The next
// [NewDir] removes them.
package machine

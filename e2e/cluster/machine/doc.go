// Package machine emulates a machine with namespaces: it has its own processes, mounts, network,
// cgroups and host name, a folder of the host as its disk, and services that its init restarts. It
// is independent of Kubernetes.
//
// Nothing of the machine outlives the process that started it. Three processes ensure this. Each
// reads a pipe from the previous one, which the kernel closes when that process ends for any
// reason:
//
//	the caller     has a Machine and sends requests
//	 └ the keeper  Keep: creates the machine's folder and cgroups, boots it, and finally removes everything
//	    └ init     Boot: the first process of the namespaces; when it ends, the kernel kills all others
//
// If the keeper itself is killed, it leaves a folder and cgroups without processes. Sweep, which
// each Start calls first, removes them.
package machine

// Package machine makes a machine out of namespaces: it has its own processes, mounts, network,
// cgroups and host name, a folder of this one as its disk, and services that its init keeps
// running. It knows no Kubernetes.
//
// Nothing of the machine outlives the process that started it. Three processes see to that, each
// tied to the one before by a pipe that is at its end when that one is gone, however it went:
//
//	the caller     has a Machine, and asks for what it wants
//	 └ the keeper  Keep: makes the machine's folder and cgroups, boots it, and takes all away in the end
//	    └ init     Boot: the first process of the namespaces, with which the kernel ends all the others
//
// A keeper that is killed itself leaves a folder and cgroups that hold nothing; Sweep, which every
// Start begins with, removes them.
package machine

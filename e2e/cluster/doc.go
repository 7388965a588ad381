// Package cluster runs Kubernetes clusters for tests on this machine, without changing the machine.
// [Start] runs the API server, scheduler, controller manager and etcd, and a node with kubelet,
// containerd, runc, kube-proxy (nftables) and the CNI plugins bridge and portmap. All are built
// from their Go modules. Start needs neither a container engine nor a registry.
//
//	c, err := cluster.Start(ctx, cluster.Options{DualStack: true, DNS: true, Log: os.Stderr})
//	...
//	defer c.Stop()
//	err = c.LoadImage(ctx, "bin/image.tar")
//	clients, err := kubernetes.NewForConfig(c.REST())
//
// # Node
//
// The node has its own mount, network, PID, IPC, UTS and cgroup namespaces. /usr is mounted
// read-only from this machine. /run, with the pods' network namespaces in /run/netns, and /tmp are
// tmpfs. The other directories, such as /etc/cni/net.d, /opt/cni/bin and /var/lib, are in the
// cluster's directory, which is the node's disk. All mounts are shared, so a pod that mounts
// /var/run/netns with HostToContainer sees the namespaces of later pods. The node is not
// connected to any other network; connections to addresses outside the cluster fail immediately.
//
// The test process accesses the API server through a port on the loopback interface, and the node
// through [Node.Command] and [Node.Path]. To send packets from the node or from a pod, a test runs
// a program there.
//
// # Limits
//
// The node shares the kernel of this machine. A privileged pod can change everything that has no
// namespace: modules, the time, and most of /proc/sys other than net. The kubelet does not change
// the kernel's sysctls, because files of the node are mounted over those that it sets.
//
// # Kind
//
// [StartKind] uses kind to create a cluster of two nodes. The nodes are containers with systemd.
// kubeadm installs the control plane as pods of the first node. The node image is pulled from a
// registry (by default kind's image), or, if Options.NodeImage is [BuildNodeImage], built from
// Debian's packages and the software of [Start]. If the Docker daemon is not running on this
// machine, it is unpacked from the distribution's packages and run in an emulated machine; see
// package docker. The pods' network, DNS and the methods of nodes are the same as with [Start], but
// kube-proxy cannot be stopped, because it is a pod of a DaemonSet.
//
// # Virtual machine
//
// [StartVM] creates a cluster with one node, a virtual machine that qemu emulates. The node runs
// Debian with its kernel, systemd, cgroup v2, AppArmor, and the packages of containerd, runc and
// the CNI plugins. If Options.Runtime is CRIO, the node runs CRI-O, built from its module, with
// crun and conmon of Debian. The control plane runs as with [Start], and is connected to the node
// by a tap interface. The node can reach no other host. [Node.Command] uses ssh, and [Node.Path]
// returns an empty string. The logs include the console and the journal.
//
// # Cleanup
//
// When the process that called Start, StartKind or StartVM ends for any reason, the cluster is
// removed shortly afterwards; see package machine. With E2E_KEEP=1, Stop prints how to access the
// cluster and waits for an interrupt.
package cluster

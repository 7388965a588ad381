// Package cluster runs a real Kubernetes for tests, on this machine and without changing it: the
// API server, scheduler, controller manager and etcd, and a node with kubelet, containerd, runc,
// kube-proxy (nftables) and the CNI plugins bridge and portmap, all built from their Go modules.
// There is neither a container engine nor a registry.
//
//	c, err := cluster.Start(ctx, cluster.Options{DualStack: true, DNS: true, Log: os.Stderr})
//	...
//	defer c.Stop()
//	err = c.LoadImage(ctx, "bin/image.tar")
//	clients, err := kubernetes.NewForConfig(c.REST())
//
// # The node
//
// It has namespaces of its own (mount, network, process, IPC, host name, cgroup) and a folder as
// its disk. /usr is this machine's, read-only; everything else is the node's own: /etc/cni/net.d,
// /opt/cni/bin, /var/lib and so on are on its disk, and /run, where containerd has the pods'
// network namespaces (/run/netns), is in memory. All its mounts are shared, so a pod that mounts
// /var/run/netns with HostToContainer sees later ones. The node's interface leads nowhere:
// addresses outside are unreachable at once.
//
// This process reaches the API server through a port of the loopback interface, and the node
// through [Node.Command] and [Node.Path]. A test that wants to send a packet in the node or in a
// pod runs a program there, by Command, exec, or a pod of its own.
//
// # What it is not
//
// The kernel is this machine's: what is not in a namespace (modules, the time, most of /proc/sys
// other than net) a privileged pod can change for all. The sysctls that the kubelet sets are
// covered by files of the node's own.
//
// # kind
//
// [StartKind] makes the same of two nodes by kind, as many people have it: containers with systemd,
// in which kubeadm installs the control plane as pods. The image of the nodes is kind's own, or,
// without a registry, one of Debian's packages and of what [Start] uses ([BuildNodeImage]). Where
// no docker runs, the distribution's is unpacked, and runs in namespaces, as package docker
// describes. The pods' network and DNS are those of [Start], and the nodes have the same methods;
// kube-proxy alone cannot be stopped, being a DaemonSet's.
//
// # A virtual machine
//
// [StartVM] makes the same of one node that qemu emulates: Debian, installed from its packages, with
// its kernel, systemd as the first process, cgroups of version 2, AppArmor, and the unit of its
// package of containerd, which runs its packages of runc and of the CNI plugins. Options.Runtime
// chooses CRI-O instead, built from its module, with crun and conmon of Debian. The control plane is
// that of [Start]. A tap interface in its network namespace leads to the node, and the node reaches
// nothing else. [Node.Command] runs over ssh, and there is no [Node.Path]; [Node.Reboot] restarts the
// machine. The console and the journal are among the logs.
//
// # The end
//
// When the process that called Start, StartKind or StartVM ends, in whatever way, nothing is left a
// moment later: see package machine. With E2E_KEEP=1, Stop waits for an interrupt first, and says how to
// reach the cluster.
package cluster

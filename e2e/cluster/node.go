package cluster

import (
	"context"
	"os/exec"
)

// The services of a node, in the order in which they start. The ones of the control plane run on
// the first node only.
const (
	Containerd        = "containerd"
	CRIO              = "crio"
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
)

// A Node is a machine of the cluster as its administrator sees it. Its methods are safe for
// concurrent use.
type Node interface {
	// Name is that of the Kubernetes object, and the host name.
	Name() string

	// Path returns where a file of the node is for this process: Path("/etc/cni/net.d"). It follows
	// no symbolic link of the node's that is absolute. It is valid until the node reboots or stops.
	// It is empty if the node is a virtual machine.
	Path(file string) string

	// Command returns a command that runs inside all the namespaces of the node, as root, with the
	// PATH of the node's services: kubectl (as cluster administrator), ctr -n k8s.io, crictl, nft,
	// ip, and what else the machine has in /usr. It is killed when ctx is done; on a virtual machine
	// only its connection is.
	Command(ctx context.Context, argv ...string) *exec.Cmd

	// StopService ends a service by SIGTERM, and soon after by SIGKILL, and returns when it is
	// gone. It stays away until StartService. Containers outlive containerd and kubelet. No error
	// if it is stopped already.
	StopService(ctx context.Context, service string) error

	// StartService starts a service that was stopped, and returns before it is ready. No error if
	// it runs.
	StartService(ctx context.Context, service string) error

	// KillService ends a service by SIGKILL, as a crash would. The node's init starts it again
	// within a second, unless it was stopped.
	KillService(ctx context.Context, service string) error

	// Reboot ends every process of the node at once, those of pods too, and with them every
	// namespace, mount and what is in /run; then it boots the node again from its disk. It returns
	// when the kubelet says that it is ready, which says nothing about pods.
	Reboot(ctx context.Context) error
}

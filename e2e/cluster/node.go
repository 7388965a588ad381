package cluster

import (
	"context"
	"fmt"
	"net"
	"os/exec"

	"github.com/sluice-mesh/sluice/nft/netns"
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

	// Listen listens on a TCP address of the node, such as 127.0.0.1:5000, for which this process
	// accepts the connections. The listener ends with the node's network: when the node reboots or
	// stops, nobody reaches it any more. A virtual machine, whose kernel is another, does not
	// support it ([errors.ErrUnsupported]).
	Listen(address string) (net.Listener, error)

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

// listen listens on an address in the network namespace of a file.
func listen(namespace, address string) (listener net.Listener, err error) {
	ns, err := netns.Open(namespace)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	err = ns.Do(func() error {
		listener, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s of a node: %w", address, err)
	}
	return listener, nil
}

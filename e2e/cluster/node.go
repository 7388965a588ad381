package cluster

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// The services of a node, in starting order. The services of the control plane run on the first
// node only, or on this machine if the node is a virtual machine.
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

// A Node is a node of the cluster. Its methods are safe for concurrent use.
type Node interface {
	// Name returns the name of the Node object, which is also the host name.
	Name() string

	// Path returns the path at which this process can open a file of the node, for example
	// Path("/etc/cni/net.d"). The file's path on the node must not contain absolute symbolic links,
	// because this process resolves them on its own file system. The returned path is valid until
	// the node reboots or stops. It is empty if the node is a virtual machine.
	Path(file string) string

	// Command returns a command that runs in all namespaces of the node, as root, with the PATH of
	// the node's services. The PATH includes kubectl (as cluster administrator), crictl, nft, ip,
	// ctr if the runtime is containerd (use -n k8s.io), and the programs in /usr. The command is
	// killed when ctx is done; on a virtual machine, only its ssh client is killed.
	Command(ctx context.Context, argv ...string) *exec.Cmd

	// Listen returns a listener of this process on a TCP address of the node, such as
	// 127.0.0.1:5000. The listener is unreachable after the node reboots or stops. A virtual
	// machine does not support Listen, and returns [errors.ErrUnsupported].
	Listen(address string) (net.Listener, error)

	// StopService stops a service, and returns when the service has ended. The service is not
	// restarted until StartService. A node of [Start] stops it with SIGKILL, because an API server
	// that ends gracefully removes its endpoint from the Service kubernetes, and after its next
	// start kube-proxy may take a minute to learn the new endpoint. Containers keep running while
	// containerd or the kubelet is stopped. Stopping a stopped service is not an error.
	StopService(ctx context.Context, service string) error

	// StartService starts a stopped service, and returns before it is ready. Starting a running
	// service is not an error.
	StartService(ctx context.Context, service string) error

	// KillService kills a service with SIGKILL. The node's init restarts the service within
	// seconds. On a kind node, the services of the control plane and kube-proxy run in pods, and
	// the kubelet restarts them, with a delay that increases after each kill.
	KillService(ctx context.Context, service string) error

	// Reboot ends all processes of the node, including the pods' processes, and removes all its
	// namespaces and mounts and the content of /run. Only a virtual machine stops its services
	// first; other nodes are killed. Then Reboot boots the node from its disk. It returns when the
	// node is ready, without waiting for pods.
	Reboot(ctx context.Context) error
}

// listen listens on a TCP address in the network namespace that namespaceFile refers to.
func listen(namespaceFile, address string) (listener net.Listener, err error) {
	ns, err := netns.Open(namespaceFile)
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

// run runs a command on a node, and returns its output.
func run(ctx context.Context, n Node, argv ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := n.Command(ctx, argv...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w: %s", n.Name(), argv[0], err,
			bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

package hostrules

import (
	"fmt"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Node gives access to the namespaces of the node that the agent's container runs on. It opens
// them at the first use and keeps them open. It is safe for concurrent use.
type Node struct {
	// ProcDir is the node's /proc in the agent's mount namespace.
	ProcDir string

	mu     sync.Mutex
	net    *netns.NS // network namespace; nil until both are opened
	cgroup int       // descriptor of the cgroup namespace if net is not nil
}

// procFile returns the path of a file in the /proc directory of the node's first process.
func (n *Node) procFile(file string) string { return filepath.Join(n.ProcDir, "1", file) }

// NetNS returns the path of the node's network namespace in the agent's mount namespace.
func (n *Node) NetNS() string { return n.procFile("ns/net") }

// Open opens the node's network namespace. This needs CAP_SYS_PTRACE.
func (n *Node) Open() (*netns.NS, error) {
	net, _, err := n.namespaces()
	if err != nil {
		return nil, err
	}
	return netns.FromHandle(net.Handle())
}

// namespaces returns the node's network namespace and the descriptor of its cgroup namespace.
func (n *Node) namespaces() (net *netns.NS, cgroup int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.net != nil {
		return n.net, n.cgroup, nil
	}
	if net, err = netns.Open(n.NetNS()); err != nil {
		return nil, -1, fmt.Errorf("open the network namespace of the node: %w", err)
	}
	cgroup, err = unix.Open(n.procFile("ns/cgroup"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = net.Close()
		return nil, -1, fmt.Errorf("open the cgroup namespace of the node: %s: %w",
			n.procFile("ns/cgroup"), err)
	}
	n.net, n.cgroup = net, cgroup
	return net, cgroup, nil
}

// Close closes the namespaces. The other methods must not be running, and must not be called
// afterwards.
func (n *Node) Close() {
	if n.net != nil {
		_ = n.net.Close()
		_ = unix.Close(n.cgroup)
	}
}

// IsHost reports whether a network namespace is the node's or the calling thread's. If the node's
// namespace cannot be opened, only the calling thread's is recognized.
func (n *Node) IsHost(id netns.ID) bool {
	if id == (*netns.NS)(nil).ID() { // nil is the namespace of the calling thread
		return true
	}
	net, _, err := n.namespaces()
	return err == nil && net.ID() == id
}

// Do runs fn on a thread in the node's network and cgroup namespaces, and returns the error of fn.
// It needs CAP_SYS_ADMIN and CAP_SYS_PTRACE. Goroutines that fn starts are not in these namespaces.
func (n *Node) Do(fn func() error) error {
	net, cgroup, err := n.namespaces()
	if err != nil {
		return err
	}
	enter := func() error {
		if err := unix.Setns(cgroup, unix.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("enter the cgroup namespace of the node: %w", err)
		}
		if err := unix.Setns(net.FD(), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace of the node: %w", err)
		}
		return nil
	}
	return netns.OnNewThread(enter, fn)
}

package testbed

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/owner"
	"github.com/sluice-mesh/sluice/rules"
)

// ProxyOwner and TProxyOwner are the owners that the injector configures for the proxy in REDIRECT
// mode and in TPROXY mode. ApplicationOwner is the owner of an application in the pod.
var (
	ProxyOwner       = rules.Owner{UID: 1337, GID: 1337}
	TProxyOwner      = rules.Owner{UID: 0, GID: 1337}
	ApplicationOwner = rules.Owner{UID: 1000, GID: 1000}
)

// Options configure a [Network]. The zero value is a pod with eth0 and lo, with IPv4 and IPv6.
type Options struct {
	// Pod is an existing namespace for the pod. The caller must close it. If Pod is nil, New
	// creates a namespace.
	Pod *netns.NS
	// IDBase is added to the user and group ids of the pod's processes. It is the first host id of
	// the pod's user namespace.
	IDBase int
	// Interface is the name of a second interface of the pod, which connects the pod to a machine.
	// If Interface is empty, the pod has no second interface.
	Interface string
}

// A Network is a test network of a pod, a neighbor, and their servers. Its methods are safe for
// concurrent use.
type Network struct {
	Pod, Neighbor *netns.NS
	Machine       *netns.NS // connected to the pod's second interface; nil without this interface

	options Options
	owned   []*netns.NS // the namespaces that Close closes

	outside, machine *server // the servers of the neighbor and the machine

	mu          sync.Mutex
	closed      bool
	application *server
	proxy       *proxy
}

// New creates the namespaces and connects them. The neighbor answers each [Call] to its own
// addresses or to an address outside the networks of the pod and of the machine, on any port. If
// CAP_SYS_ADMIN or CAP_NET_ADMIN is missing, the error wraps [unix.EPERM].
func New(o Options) (*Network, error) {
	n := &Network{options: o}
	if err := n.createNetwork(); err != nil {
		return nil, errors.Join(fmt.Errorf("create a pod and its neighbor: %w", err), n.Close())
	}
	n.outside = newServer(identity{ns: n.Neighbor}, acceptAs(Outside))
	if n.Machine != nil {
		n.machine = newServer(identity{ns: n.Machine}, acceptAs(Machine))
	}
	return n, nil
}

// StartApplication starts the pod's application. The application listens on the port of every call
// that may reach the pod, unless the proxy already listens on that port.
func (n *Network) StartApplication(owner rules.Owner) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.application != nil {
		return errors.New("start the application: the network is closed or has an application")
	}
	n.application = newServer(n.identity(owner), acceptAs(Application))
	return nil
}

// identity returns the identity of a process in the pod.
func (n *Network) identity(owner rules.Owner) identity {
	return identity{
		ns: n.Pod, uid: n.options.IDBase + int(owner.UID), gid: n.options.IDBase + int(owner.GID),
	}
}

// StopProxy closes all sockets of the proxy, as a crash does. Without a proxy it does nothing.
func (n *Network) StopProxy() {
	n.mu.Lock()
	p := n.proxy
	n.proxy = nil
	n.mu.Unlock()
	p.close()
}

// Close stops all servers, closes all connections of the servers, and closes the namespaces that
// New created, which the kernel then destroys. Closing again does nothing.
func (n *Network) Close() error {
	n.mu.Lock()
	n.closed = true
	servers := []*server{n.application, n.outside, n.machine}
	n.mu.Unlock()
	n.StopProxy()
	for _, s := range servers {
		s.close()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, ns := range n.owned {
		errs = append(errs, ns.Close())
	}
	n.owned = nil
	return errors.Join(errs...)
}

// identity is the network namespace, user and group of a process.
type identity struct {
	ns       *netns.NS
	uid, gid int
}

// as runs fn with the user and group of the identity, in the caller's namespace.
func (i identity) as(fn func() error) error { return owner.As(i.uid, i.gid, fn) }

// do runs fn in the namespace and with the user and group of the identity. The sockets that fn
// opens belong to that user and group.
func (i identity) do(fn func() error) error {
	return i.ns.Do(func() error { return i.as(fn) })
}

package testbed

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/owner"
	"github.com/sluice-mesh/sluice/rules"
)

// Owners of the pod's processes: the proxy that the injector configures for REDIRECT and for
// TPROXY, and an application.
var (
	ProxyOwner       = rules.Owner{UID: 1337, GID: 1337}
	TProxyOwner      = rules.Owner{UID: 0, GID: 1337}
	ApplicationOwner = rules.Owner{UID: 1000, GID: 1000}
)

// Options configure a [Network]. The zero value is a pod with eth0, lo and both families.
type Options struct {
	// Pod is an existing namespace for the pod, which the caller must close. nil means a new one.
	Pod *netns.NS
	// IDBase is added to the user and group ids of the pod's processes. It is the first host id of
	// the pod's user namespace.
	IDBase int
	// Interface is the name of a second interface of the pod, which connects it to a machine. Empty
	// means no second interface.
	Interface string
}

// A Network is a test network of a pod, a neighbor, and their servers. Its methods are safe for
// concurrent use.
type Network struct {
	Pod, Neighbor *netns.NS
	Machine       *netns.NS // connected to the second interface, or nil without the interface

	options Options
	owned   []*netns.NS // Close closes these

	outside, machine *server // the servers of the neighbor and the machine

	mu          sync.Mutex
	closed      bool
	application *server
	proxy       *proxy
}

// New creates the namespaces and connects them. The neighbor answers the calls of [Network.Dial] to
// every address outside the networks of the pod and of the machine, on every port. Without
// CAP_SYS_ADMIN or CAP_NET_ADMIN the error wraps [unix.EPERM].
func New(o Options) (*Network, error) {
	b := &Network{options: o}
	if err := b.createNetwork(); err != nil {
		return nil, errors.Join(fmt.Errorf("create a pod and its neighbor: %w", err), b.Close())
	}
	b.outside = newServer(identity{ns: b.Neighbor}, acceptAs(Outside))
	if b.Machine != nil {
		b.machine = newServer(identity{ns: b.Machine}, acceptAs(Machine))
	}
	return b, nil
}

// StartApplication starts the pod's application. It listens on the port of every call that may
// reach the pod, except the ports of a proxy that was started before.
func (b *Network) StartApplication(owner rules.Owner) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.application != nil {
		return errors.New("start the application: the network is closed or has an application")
	}
	b.application = newServer(b.identity(owner), acceptAs(Application))
	return nil
}

// identity returns the identity of a process in the pod.
func (b *Network) identity(owner rules.Owner) identity {
	return identity{
		ns: b.Pod, uid: b.options.IDBase + int(owner.UID), gid: b.options.IDBase + int(owner.GID),
	}
}

// StopProxy ends the proxy like a crash. Without a proxy it does nothing.
func (b *Network) StopProxy() {
	b.mu.Lock()
	p := b.proxy
	b.proxy = nil
	b.mu.Unlock()
	p.close()
}

// Close ends all servers and connections and closes the namespaces, which the kernel then destroys.
// Closing again does nothing.
func (b *Network) Close() error {
	b.mu.Lock()
	b.closed = true
	servers := []*server{b.application, b.outside, b.machine}
	b.mu.Unlock()
	b.StopProxy()
	for _, s := range servers {
		s.close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, n := range b.owned {
		errs = append(errs, n.Close())
	}
	b.owned = nil
	return errors.Join(errs...)
}

// identity is the network namespace, user and group of a process.
type identity struct {
	ns       *netns.NS
	uid, gid int
}

// as runs fn with the user and group of the identity, in the caller's namespace.
func (i identity) as(fn func() error) error { return owner.As(i.uid, i.gid, fn) }

// do runs fn on a thread with the identity, so that the sockets that fn opens belong to it.
func (i identity) do(fn func() error) error {
	return i.ns.Do(func() error { return i.as(fn) })
}

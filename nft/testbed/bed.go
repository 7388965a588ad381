package testbed

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/owner"
	"github.com/sluice-mesh/sluice/rules"
)

// Owners of the pod's processes: a proxy as the injector makes it for REDIRECT and for TPROXY, and
// an application.
var (
	ProxyOwner       = rules.Owner{UID: 1337, GID: 1337}
	TProxyOwner      = rules.Owner{UID: 0, GID: 1337}
	ApplicationOwner = rules.Owner{UID: 1000, GID: 1000}
)

// Options say how a bed is made. The zero value is the usual pod: eth0 and lo, both families.
type Options struct {
	// Pod is an existing namespace to make the pod in, which stays the caller's to close; nil for a
	// new one.
	Pod *netns.NS
	// IDBase is added to the user and group ids of the pod's processes: where the ids of the pod's
	// user namespace begin.
	IDBase int
	// Interface is the name of a second interface of the pod, behind which there is a machine;
	// empty for none.
	Interface string
}

// Bed is a pod, the neighbour, and the servers in them. Its methods are safe for concurrent use.
type Bed struct {
	Pod, Neighbour *netns.NS
	Machine        *netns.NS // behind the second interface; nil without

	options Options
	owned   []*netns.NS // to be closed

	outside, machine *server // of the neighbour and the machine

	mu          sync.Mutex
	closed      bool
	application *server
	proxy       *proxy
}

// New makes the namespaces and joins them. The neighbour listens: it accepts connections and
// datagrams to every address outside of the pod, on every port. [unix.EPERM] is in the error
// without CAP_SYS_ADMIN and CAP_NET_ADMIN.
func New(o Options) (*Bed, error) {
	b := &Bed{options: o}
	if err := b.join(); err != nil {
		return nil, errors.Join(fmt.Errorf("make a pod and its neighbour: %w", err), b.Close())
	}
	b.outside = newServer(identity{ns: b.Neighbour}, plain(Outside))
	if b.Machine != nil {
		b.machine = newServer(identity{ns: b.Machine}, plain(Machine))
	}
	return b, nil
}

// StartApplication starts the pod's application. It listens on every port that a call is made to,
// but for the proxy's, when the proxy was started first.
func (b *Bed) StartApplication(owner rules.Owner) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.application != nil {
		return errors.New("start the application: the bed is closed or has one")
	}
	b.application = newServer(b.identity(owner), plain(Application))
	return nil
}

// identity is that of a process of the pod.
func (b *Bed) identity(owner rules.Owner) identity {
	return identity{ns: b.Pod, uid: b.options.IDBase + int(owner.UID), gid: b.options.IDBase + int(owner.GID)}
}

// StopProxy ends the proxy, as a crash would; without one it does nothing.
func (b *Bed) StopProxy() {
	b.mu.Lock()
	p := b.proxy
	b.proxy = nil
	b.mu.Unlock()
	p.close()
}

// Close ends all servers and connections and lets go of the namespaces, which then vanish. Closing
// again does nothing.
func (b *Bed) Close() error {
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

// identity is who a process is to the kernel: its namespace and ids.
type identity struct {
	ns       *netns.NS
	uid, gid int
}

// as runs fn with the identity's ids in the caller's namespace.
func (i identity) as(fn func() error) error { return owner.As(i.uid, i.gid, fn) }

// do runs fn on a thread of the identity: the sockets that fn makes are the identity's.
func (i identity) do(fn func() error) error {
	return i.ns.Do(func() error { return i.as(fn) })
}

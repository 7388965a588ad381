package established

import (
	"errors"
	"net/netip"
	"time"

	"github.com/sluice-mesh/sluice/nft/conntrack"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/nft/sockdiag"
	"github.com/sluice-mesh/sluice/rules"
)

// maxSockets is the maximum number of TCP sockets that are kept in memory. It is a variable for
// tests. TestMemoryOfManyConnections measures the memory.
var maxSockets = 1 << 17

// maxCached is the maximum number of outcomes, and of devices, that are kept in memory.
const maxCached = 1 << 13

// A pair contains the source and the destination of one direction of a connection, or the local and
// the peer address of a socket.
type pair struct{ from, to netip.AddrPort }

// pairOf converts a tuple of conntrack.
func pairOf(t conntrack.Tuple) pair { return pair{t.Source, t.Destination} }

// reverse returns the pair of the other direction.
func (p pair) reverse() pair { return pair{p.to, p.from} }

// A tuple identifies one direction of a connection.
type tuple struct {
	protocol rules.Protocol
	pair
}

// reverse returns the tuple of the other direction.
func (t tuple) reverse() tuple { return tuple{t.protocol, t.pair.reverse()} }

// A listener identifies the TCP sockets of a user that listen on a port.
type listener struct {
	port uint16
	uid  uint32
}

// A socketInfo contains the properties of a connected TCP socket.
type socketInfo struct {
	sockdiag.Properties
	// hasEntry reports whether a conntrack entry contains the addresses of the socket.
	hasEntry bool
}

// A socketTable contains the TCP sockets of a namespace. Its large maps contain no pointers.
type socketTable struct {
	// sockets maps the local and the peer address of each connected socket to the socket.
	sockets map[[2]endpoint]socketInfo
	// peers maps the peer address of each connected socket to the socket's local address.
	peers map[endpoint]endpoint
	// listeners contains the listening sockets, and ports their ports.
	listeners map[listener]bool
	ports     map[uint16]bool
	addresses map[netip.Addr]bool // the addresses of the namespace
}

// An endpoint is an address and a port in 18 bytes, instead of 32 for a [netip.AddrPort]. An IPv4
// address is IPv4-mapped.
type endpoint struct {
	addr [16]byte
	port uint16
}

func newEndpoint(a netip.AddrPort) endpoint { return endpoint{a.Addr().As16(), a.Port()} }

func (e endpoint) addrPort() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(e.addr).Unmap(), e.port)
}

// endpoints returns the key of a pair in a socketTable.
func (p pair) endpoints() [2]endpoint { return [2]endpoint{newEndpoint(p.from), newEndpoint(p.to)} }

var (
	// errTime is the error for a deadline that has passed.
	errTime = errors.New("the time limit has passed")
	// errTooMany is the error for more than maxSockets sockets.
	errTooMany = errors.New("too many sockets")
)

// newSocketTable returns a table without sockets.
func newSocketTable() *socketTable {
	return &socketTable{
		sockets: map[[2]endpoint]socketInfo{}, peers: map[endpoint]endpoint{},
		listeners: map[listener]bool{}, ports: map[uint16]bool{}, addresses: map[netip.Addr]bool{},
	}
}

// readAddresses adds the addresses of the namespace of the thread.
func (t *socketTable) readAddresses() error {
	addrs, err := route.AllAddresses(nil)
	for _, a := range addrs {
		t.addresses[a.Unmap()] = true
	}
	return err
}

// readSockets adds the TCP sockets of the namespace of the thread.
func (t *socketTable) readSockets(deadline time.Time) error {
	// List the listeners separately: the kernel does not visit other sockets for a list of
	// listeners.
	for _, states := range []sockdiag.States{sockdiag.Listening, sockdiag.Connected} {
		for s, err := range sockdiag.List(rules.TCP, states) {
			switch {
			case err != nil:
				return err
			case time.Now().After(deadline):
				return errTime
			case len(t.sockets)+len(t.listeners) == maxSockets:
				return errTooMany
			}
			t.add(s)
		}
	}
	return nil
}

// add adds a listening or connected TCP socket.
func (t *socketTable) add(s sockdiag.Socket) {
	if s.State == sockdiag.Listen {
		t.listeners[listener{s.Local.Port(), s.UID}], t.ports[s.Local.Port()] = true, true
		return
	}
	key := pair{s.Local, s.Peer}.endpoints()
	t.sockets[key], t.peers[key[1]] = socketInfo{Properties: s.Properties}, key[0]
}

// removeSockets removes all sockets, which releases their memory.
func (t *socketTable) removeSockets() {
	t.sockets, t.peers, t.listeners, t.ports = nil, nil, nil, nil
}

// socket returns the connected socket that sends the packets of the tuple, or nil. UDP sockets are
// unknown.
func (t *socketTable) socket(at tuple) *socketInfo {
	if at.protocol != rules.TCP {
		return nil
	}
	if s, ok := t.sockets[at.endpoints()]; ok {
		return &s
	}
	return nil
}

// peerOf returns the local address of the socket that is connected to the address. It is invalid if
// there is no such socket.
func (t *socketTable) peerOf(a netip.AddrPort) netip.AddrPort {
	if local, ok := t.peers[newEndpoint(a)]; ok {
		return local.addrPort()
	}
	return netip.AddrPort{}
}

// addEntry marks the sockets of the connection as having a conntrack entry.
func (t *socketTable) addEntry(c *conntrack.Entry) {
	if c.Protocol != rules.TCP {
		return
	}
	original, reply := pairOf(c.Original), pairOf(c.Reply)
	for _, p := range []pair{original, original.reverse(), reply, reply.reverse()} {
		if s, ok := t.sockets[p.endpoints()]; ok && !s.hasEntry {
			s.hasEntry = true
			t.sockets[p.endpoints()] = s
		}
	}
}

// isLocal reports whether the namespace has the address.
func (t *socketTable) isLocal(a netip.Addr) bool { return a.IsLoopback() || t.addresses[a] }

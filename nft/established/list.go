package established

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/dump"
	"github.com/sluice-mesh/sluice/rules"
)

// A pair contains the source and the destination of one direction of a connection, or the local and
// the peer address of a socket.
type pair struct{ from, to netip.AddrPort }

// reverse returns the pair of the other direction.
func (p pair) reverse() pair { return pair{p.to, p.from} }

// A tuple identifies one direction of a connection.
type tuple struct {
	protocol rules.Protocol
	pair
}

// A conntrackEntry contains the fields of a conntrack entry that a decision needs.
type conntrackEntry struct {
	original tuple
	reply    pair
	zone     uint16
}

// An entryKey identifies a conntrack entry.
type entryKey struct {
	tuple
	zone uint16
}

// States of sockets (include/net/tcp_states.h in the kernel).
const (
	tcpTimeWait   = 6
	tcpClose      = 7
	tcpListen     = 10
	tcpNewSynRecv = 12
)

// A connectionTable lists the connections and sockets of a namespace.
type connectionTable struct {
	entries []conntrackEntry
	// sockets maps the local and the peer address of each connected TCP socket to the socket.
	sockets map[pair]*netlink.Socket
	// peers maps the peer address of each of these sockets to the local address.
	peers map[netip.AddrPort]netip.AddrPort
	// listeners maps ports to listening TCP sockets.
	listeners map[uint16][]*netlink.Socket
	addresses map[netip.Addr]bool // local addresses
	// marks maps the cookies of TCP sockets to their marks. It is nil if no rule matches marks.
	marks map[[2]uint32]uint32
}

// maxAttempts bounds the attempts to dump a list without a concurrent change. The result of the
// last attempt is used even if it was interrupted, because it contains all unchanged objects.
const maxAttempts = 5

// list repeats a dump until it is not interrupted, at most maxAttempts times. objects names the
// listed objects in errors.
func list[T any](objects string, read func() ([]T, error)) ([]T, error) {
	found, err := dump.Retry(maxAttempts, read)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list %s: %w", objects, err)
	}
	return found, nil
}

// readTable lists the connections and sockets of the namespace of the handle, without marks.
func readTable(h *netlink.Handle) (*connectionTable, error) {
	t := &connectionTable{
		sockets: map[pair]*netlink.Socket{}, peers: map[netip.AddrPort]netip.AddrPort{},
		listeners: map[uint16][]*netlink.Socket{}, addresses: map[netip.Addr]bool{},
	}
	addrs, err := list("addresses", func() ([]netlink.Addr, error) {
		return h.AddrList(nil, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		t.addresses[decodeAddr(a.IP)] = true
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		flows, err := list("conntrack entries", func() ([]*netlink.ConntrackFlow, error) {
			return h.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(family))
		})
		if err != nil {
			return nil, err
		}
		for _, f := range flows {
			if f.Forward.Protocol == uint8(rules.TCP) || f.Forward.Protocol == uint8(rules.UDP) {
				t.entries = append(t.entries, decodeEntry(f))
			}
		}
		sockets, err := list("sockets", func() ([]*netlink.Socket, error) {
			return h.SocketDiagTCP(family)
		})
		if err != nil {
			return nil, err
		}
		for _, s := range sockets {
			t.addSocket(s)
		}
	}
	return t, nil
}

// addSocket adds a TCP socket.
func (t *connectionTable) addSocket(s *netlink.Socket) {
	switch s.State {
	case tcpListen:
		t.listeners[s.ID.SourcePort] = append(t.listeners[s.ID.SourcePort], s)
	case tcpTimeWait, tcpClose, tcpNewSynRecv: // these sockets transfer no data
	default:
		p := socketPair(s)
		t.sockets[p], t.peers[p.to] = s, p.from
	}
}

// isLocal reports whether the namespace has the address.
func (t *connectionTable) isLocal(a netip.Addr) bool { return a.IsLoopback() || t.addresses[a] }

// decodeEntry converts a conntrack entry of package netlink.
func decodeEntry(f *netlink.ConntrackFlow) conntrackEntry {
	forward := pair{
		addrPort(f.Forward.SrcIP, f.Forward.SrcPort), addrPort(f.Forward.DstIP, f.Forward.DstPort),
	}
	return conntrackEntry{
		original: tuple{rules.Protocol(f.Forward.Protocol), forward}, zone: f.Zone,
		reply: pair{
			addrPort(f.Reverse.SrcIP, f.Reverse.SrcPort),
			addrPort(f.Reverse.DstIP, f.Reverse.DstPort),
		},
	}
}

// socketPair returns the local and the peer address of a socket.
func socketPair(s *netlink.Socket) pair {
	return pair{
		addrPort(s.ID.Source, s.ID.SourcePort), addrPort(s.ID.Destination, s.ID.DestinationPort),
	}
}

// addrPort converts an address and a port of package netlink.
func addrPort(ip net.IP, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(decodeAddr(ip), port)
}

// decodeAddr converts an address of package netlink. It returns an IPv4-mapped address as IPv4.
func decodeAddr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

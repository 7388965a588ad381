package established

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// A pair is the ends of a socket or of one direction of a connection: its own or the source, and
// the other or the destination.
type pair struct{ from, to netip.AddrPort }

func (p pair) reversed() pair { return pair{p.to, p.from} }

// A tuple names one direction of a connection.
type tuple struct {
	protocol rules.Protocol
	pair
}

// An entry is one of conntrack's.
type entry struct {
	original tuple
	reply    pair
	zone     uint16
}

// key recognises the entry.
type key struct {
	tuple
	zone uint16
}

// States of sockets, of linux/net/tcp_states.h.
const (
	tcpTimeWait   = 6
	tcpClose      = 7
	tcpListen     = 10
	tcpNewSynRecv = 12
)

// A table is what a namespace has of connections.
type table struct {
	entries []entry
	// sockets are the TCP sockets that have a peer, by their ends.
	sockets map[pair]*netlink.Socket
	// peers are the ends of these sockets in this namespace, by their other ends.
	peers map[netip.AddrPort]netip.AddrPort
	// listeners are the TCP sockets that accept connections, by port.
	listeners map[uint16][]*netlink.Socket
	addresses map[netip.Addr]bool // of this host
}

// attempts is how often a dump is repeated that a change has interrupted. The last one counts
// nevertheless: it lists what has not changed.
const attempts = 5

// list repeats a dump that was interrupted.
func list[T any](what string, dump func() ([]T, error)) (found []T, err error) {
	for range attempts {
		if found, err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list %s: %w", what, err)
	}
	return found, nil
}

// read lists the connections of the namespace of the handle.
func read(h *netlink.Handle) (*table, error) {
	t := &table{
		sockets: map[pair]*netlink.Socket{}, peers: map[netip.AddrPort]netip.AddrPort{},
		listeners: map[uint16][]*netlink.Socket{}, addresses: map[netip.Addr]bool{},
	}
	own, err := list("addresses", func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	for _, a := range own {
		t.addresses[addressOf(a.IP)] = true
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		flows, err := list("entries of conntrack", func() ([]*netlink.ConntrackFlow, error) {
			return h.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(family))
		})
		if err != nil {
			return nil, err
		}
		for _, f := range flows {
			if f.Forward.Protocol == uint8(rules.TCP) || f.Forward.Protocol == uint8(rules.UDP) {
				t.entries = append(t.entries, entryOf(f))
			}
		}
		sockets, err := list("sockets", func() ([]*netlink.Socket, error) { return h.SocketDiagTCP(family) })
		if err != nil {
			return nil, err
		}
		for _, s := range sockets {
			t.add(s)
		}
	}
	return t, nil
}

func (t *table) add(s *netlink.Socket) {
	switch s.State {
	case tcpListen:
		t.listeners[s.ID.SourcePort] = append(t.listeners[s.ID.SourcePort], s)
	case tcpTimeWait, tcpClose, tcpNewSynRecv: // no data comes or goes
	default:
		ends := endsOf(s)
		t.sockets[ends], t.peers[ends.to] = s, ends.from
	}
}

// isLocal reports whether an address is one of this host.
func (t *table) isLocal(a netip.Addr) bool { return a.IsLoopback() || t.addresses[a] }

func entryOf(f *netlink.ConntrackFlow) entry {
	forward := pair{endOf(f.Forward.SrcIP, f.Forward.SrcPort), endOf(f.Forward.DstIP, f.Forward.DstPort)}
	return entry{
		original: tuple{rules.Protocol(f.Forward.Protocol), forward}, zone: f.Zone,
		reply: pair{endOf(f.Reverse.SrcIP, f.Reverse.SrcPort), endOf(f.Reverse.DstIP, f.Reverse.DstPort)},
	}
}

func endsOf(s *netlink.Socket) pair {
	return pair{endOf(s.ID.Source, s.ID.SourcePort), endOf(s.ID.Destination, s.ID.DestinationPort)}
}

func endOf(ip net.IP, port uint16) netip.AddrPort { return netip.AddrPortFrom(addressOf(ip), port) }

func addressOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

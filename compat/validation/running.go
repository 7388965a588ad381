package validation

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// An entry is a socket of the namespace.
type entry struct {
	protocol    rules.Protocol
	local, peer netip.AddrPort
	listens     bool
}

// States of linux/net/tcp_states.h. An unconnected UDP socket has the state closed.
const (
	tcpListen = 10
	tcpClose  = 7
)

// sockets lists the TCP and UDP sockets of the namespace. It needs no privilege, but
// CONFIG_INET_DIAG in the kernel.
func sockets(ns *netns.NS) ([]entry, error) {
	var h *netlink.Handle
	err := ns.Do(func() (err error) {
		h, err = netlink.NewHandle(unix.NETLINK_INET_DIAG)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a socket for the list of sockets: %w", err)
	}
	defer h.Close()
	var found []entry
	for _, dump := range []struct {
		protocol rules.Protocol
		list     func(uint8) ([]*netlink.Socket, error)
	}{{rules.TCP, h.SocketDiagTCP}, {rules.UDP, h.SocketDiagUDP}} {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			list, err := dump.list(family)
			// Changes during the dump do not concern the sockets of interest.
			if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
				return nil, fmt.Errorf("list the sockets: %w", err)
			}
			for _, s := range list {
				found = append(found, entry{
					protocol: dump.protocol,
					local:    endOf(s.ID.Source, s.ID.SourcePort),
					peer:     endOf(s.ID.Destination, s.ID.DestinationPort),
					listens: s.State == tcpListen ||
						dump.protocol == rules.UDP && s.State == tcpClose,
				})
			}
		}
	}
	return found, nil
}

func endOf(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}

// listening reports whether a socket listens on the port.
func listening(list []entry, protocol rules.Protocol, port uint16) bool {
	return slices.ContainsFunc(list, func(e entry) bool {
		return e.listens && e.protocol == protocol && e.local.Port() == port
	})
}

// takerOf returns the local address of the other end of the caller's connection.
func takerOf(list []entry, caller netip.AddrPort) (local netip.AddrPort, found bool) {
	i := slices.IndexFunc(list, func(e entry) bool {
		return e.protocol == rules.TCP && !e.listens && e.peer == caller
	})
	if i < 0 {
		return netip.AddrPort{}, false
	}
	return list[i].local, true
}

// translated returns the source of the replies that conntrack expects to the caller's datagram,
// which is its actual destination. It needs CAP_NET_ADMIN.
func translated(ns *netns.NS, caller, to netip.AddrPort) (netip.AddrPort, error) {
	var h *netlink.Handle
	err := ns.Do(func() (err error) {
		h, err = netlink.NewHandle(unix.NETLINK_NETFILTER)
		return err
	})
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("open a socket for conntrack: %w", err)
	}
	defer h.Close()
	family := netlink.InetFamily(unix.AF_INET)
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	flows, err := h.ConntrackTableList(netlink.ConntrackTable, family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return netip.AddrPort{}, fmt.Errorf("list conntrack's entries: %w", err)
	}
	for _, f := range flows {
		if f.Forward.Protocol == uint8(rules.UDP) &&
			endOf(f.Forward.SrcIP, f.Forward.SrcPort) == caller &&
			endOf(f.Forward.DstIP, f.Forward.DstPort) == to {
			return endOf(f.Reverse.SrcIP, f.Reverse.SrcPort), nil
		}
	}
	return netip.AddrPort{}, errors.New("conntrack has no entry of the datagram")
}

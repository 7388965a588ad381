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

// A socketEntry is a socket in the kernel's list of the namespace.
type socketEntry struct {
	protocol    rules.Protocol
	local, peer netip.AddrPort
	isListening bool
}

// States of include/net/tcp_states.h. An unconnected UDP socket has the state TCP_CLOSE.
const (
	tcpListen = 10
	tcpClose  = 7
)

// sockets returns the TCP and UDP sockets of the namespace. It needs no privilege, but a kernel
// with CONFIG_INET_DIAG.
func sockets(ns *netns.NS) ([]socketEntry, error) {
	h, err := ns.Netlink(unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	var found []socketEntry
	for _, dump := range []struct {
		protocol rules.Protocol
		list     func(uint8) ([]*netlink.Socket, error)
	}{{rules.TCP, h.SocketDiagTCP}, {rules.UDP, h.SocketDiagUDP}} {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			list, err := dump.list(family)
			// Changes during the dump do not affect the sockets that the caller looks for.
			if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
				return nil, fmt.Errorf("list the sockets: %w", err)
			}
			for _, s := range list {
				found = append(found, socketEntry{
					protocol: dump.protocol,
					local:    addrPort(s.ID.Source, s.ID.SourcePort),
					peer:     addrPort(s.ID.Destination, s.ID.DestinationPort),
					isListening: s.State == tcpListen ||
						dump.protocol == rules.UDP && s.State == tcpClose,
				})
			}
		}
	}
	return found, nil
}

// addrPort converts an address of package netlink.
func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}

// isListening reports whether a socket listens on the port.
func isListening(entries []socketEntry, protocol rules.Protocol, port uint16) bool {
	return slices.ContainsFunc(entries, func(e socketEntry) bool {
		return e.isListening && e.protocol == protocol && e.local.Port() == port
	})
}

// acceptedAddr returns the local address of the socket in the namespace that accepted the caller's
// connection, or false if there is no such socket.
func acceptedAddr(
	entries []socketEntry, caller netip.AddrPort,
) (local netip.AddrPort, found bool) {
	i := slices.IndexFunc(entries, func(e socketEntry) bool {
		return e.protocol == rules.TCP && !e.isListening && e.peer == caller
	})
	if i < 0 {
		return netip.AddrPort{}, false
	}
	return entries[i].local, true
}

// translatedDestination returns the destination after NAT of the caller's datagram to the address
// to, according to conntrack. It needs CAP_NET_ADMIN.
func translatedDestination(ns *netns.NS, caller, to netip.AddrPort) (netip.AddrPort, error) {
	h, err := ns.Netlink(unix.NETLINK_NETFILTER)
	if err != nil {
		return netip.AddrPort{}, err
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
			addrPort(f.Forward.SrcIP, f.Forward.SrcPort) == caller &&
			addrPort(f.Forward.DstIP, f.Forward.DstPort) == to {
			return addrPort(f.Reverse.SrcIP, f.Reverse.SrcPort), nil
		}
	}
	return netip.AddrPort{}, errors.New("conntrack has no entry for the datagram")
}

package kerneltest

import (
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// isLocal reports whether the pod has the address.
func isLocal(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	return slices.ContainsFunc(addresses, func(known struct{ device, prefix string }) bool {
		return netip.MustParsePrefix(known.prefix).Addr() == a
	})
}

// outInterface returns the interface through which the pod sends a packet with the destination and
// the mark.
func outInterface(to netip.Addr, mark uint32) string {
	if mark == LocalMark || isLocal(to) {
		return "lo"
	}
	for _, a := range addresses {
		if netip.MustParsePrefix(a.prefix).Contains(to) {
			return a.device
		}
	}
	return "eth0"
}

// outInterfaceOf returns the interface through which the pod sends the packet, unless the sender
// selects one.
func outInterfaceOf(p *rules.Packet) string {
	if p.Owner == nil { // a copy of an arriving packet is routed as if its mark were 0
		return outInterface(p.Destination.Addr(), 0)
	}
	return outInterface(p.Destination.Addr(), p.Mark)
}

// addrType returns the routing type of the address.
func addrType(a netip.Addr) rules.AddrType {
	switch {
	case isLocal(a):
		return rules.Local
	case a.IsLinkLocalUnicast() && a.Is6():
		return rules.AddrTypeUnknown // it depends on the interface
	case a == netip.IPv6Unspecified():
		return rules.AddrTypeUnknown // its type in nf_tables is unspec, which the model lacks
	case a.IsMulticast():
		return rules.Multicast
	case a == netip.MustParseAddr("255.255.255.255"), a == netip.MustParseAddr("10.244.1.255"),
		a == netip.MustParseAddr("10.0.2.255"), a == netip.IPv4Unspecified():
		return rules.Broadcast
	}
	return rules.Unicast
}

// Complete sets the fields of a packet that depend on the network: the outgoing interface, the
// destination after a redirection, the types of the addresses, and the reverse path. It clears
// Bound and SelectsInterface if the sender cannot select an interface for the destination.
func (n *Network) Complete(p *rules.Packet) {
	from, to := p.Source.Addr(), p.Destination.Addr()
	p.SourceType, p.DestinationType = addrType(from), addrType(to)
	if p.Hook == rules.Output {
		p.Bound = p.Bound && p.Owner != nil && !isLocal(to)
		p.SelectsInterface = p.SelectsInterface && p.Owner != nil && to.Is4() && !isLocal(to)
		if !p.Bound && !p.SelectsInterface {
			p.OutInterface = outInterfaceOf(p)
		}
		return
	}
	p.NoReversePath = isLocal(from) || outInterface(from, 0) != p.InInterface
	if d := n.devices[p.InInterface]; d != nil {
		p.InAddress = d.redirectAddress(to)
	}
}

// redirectAddress returns the destination after a redirection: the first address of the interface
// or, for an IPv6 destination with a scope, the first address with this scope (nf_nat_redirect_ipv4
// and nf_nat_redirect_ipv6 in net/netfilter/nf_nat_redirect.c). It returns the unspecified address
// if the interface has no such address.
func (d *device) redirectAddress(to netip.Addr) netip.Addr {
	for _, a := range d.addrs {
		if a.Is4() == to.Is4() && (to.Is4() || scopeOf(to) == 0 || scopeOf(to)&scopeOf(a) != 0) {
			return a
		}
	}
	if to.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// scopeOf returns the scope of an IPv6 address like ipv6_addr_scope in include/net/ipv6.h. It is 0
// for global addresses, but not for IPv4-compatible addresses such as ::6.
func scopeOf(a netip.Addr) int {
	const loopback, linkLocal, siteLocal, compatible = 0x10, 0x20, 0x40, 0x80
	bytes := a.As16()
	switch {
	case bytes[0] == 0xff:
		return map[byte]int{1: loopback, 2: linkLocal, 5: siteLocal}[bytes[1]&0xf]
	case a.IsLoopback():
		return loopback
	case a.IsLinkLocalUnicast():
		return linkLocal
	case bytes[0] == 0xfe && bytes[1]&0xc0 == 0xc0:
		return siteLocal
	case !a.IsUnspecified() && netip.MustParsePrefix("::/96").Contains(a):
		return compatible
	}
	return 0
}

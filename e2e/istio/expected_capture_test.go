package istio_test

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// The following functions derive from parameters which connections are captured, independently of
// the rules.

// hasInbound reports whether inbound connections to some port are captured.
func hasInbound(r rules.Redirect) bool {
	return r.InboundPorts.All || len(r.InboundPorts.Ports) > 0
}

// capturesInbound reports whether inbound connections to the port are captured.
func capturesInbound(r rules.Redirect, port uint16) bool {
	if r.InboundPorts.All {
		return !rules.Contains(rules.Normalize(r.InboundExcludePorts), port)
	}
	return rules.Contains(rules.Normalize(r.InboundPorts.Ports), port)
}

// capturesAnywhere reports whether outbound connections to arbitrary addresses are captured.
func capturesAnywhere(r rules.Redirect) bool {
	rerouted := r.OutboundCIDRs.All && len(r.RerouteInterfaces) > 0
	return (r.OutboundCIDRs.All || len(includedPorts(r)) > 0) && hasGroups(r) || rerouted
}

// capturesOutbound reports whether some outbound connection is captured because of its address or
// port, including connections over lo.
func capturesOutbound(r rules.Redirect) bool {
	return slices.ContainsFunc(inclusions(r), func(included []netip.Prefix) bool {
		return len(capturedAddresses(r, included, unchanged).Ranges()) > 0
	})
}

// inclusions returns the addresses to which connections are captured, ignoring exclusions: for any
// port, and for the included ports. It returns nil if no group's connections are captured.
func inclusions(r rules.Redirect) [][]netip.Prefix {
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	all := [][]netip.Prefix{r.OutboundCIDRs.Prefixes}
	if r.OutboundCIDRs.All {
		all = [][]netip.Prefix{everything}
	}
	if len(includedPorts(r)) > 0 {
		all = append(all, everything)
	}
	if !hasGroups(r) {
		return nil
	}
	return all
}

// capturedAddresses returns the included addresses without the excluded ones, after applying
// convert to each prefix.
func capturedAddresses(
	r rules.Redirect, included []netip.Prefix, convert func(netip.Prefix) netip.Prefix,
) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, p := range included {
		if p = convert(p); p.Addr().Is4() || r.IPv6 {
			b.AddPrefix(p.Masked())
		}
	}
	for _, p := range slices.Concat(r.OutboundExcludeCIDRs, []netip.Prefix{
		r.LoopbackCIDR, netip.MustParsePrefix("::1/128"),
	}) {
		b.RemovePrefix(convert(p).Masked())
	}
	set, err := b.IPSet()
	if err != nil {
		panic(err) // Redirect.Validate rejects such a prefix
	}
	return set
}

func unchanged(p netip.Prefix) netip.Prefix { return p }

// unmapped converts an IPv4-mapped prefix to IPv4.
func unmapped(p netip.Prefix) netip.Prefix {
	if !p.Addr().Is4In6() {
		return p
	}
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
}

// includedPorts returns the ports whose connections are captured to any address. It omits the DNS
// port if DNS is captured.
func includedPorts(r rules.Redirect) []uint16 {
	var ports []uint16
	excluded := rules.Normalize(r.OutboundExcludePorts)
	for _, portRange := range r.OutboundPorts {
		for p := uint32(portRange.First); p <= uint32(portRange.Last); p++ {
			if !rules.Contains(excluded, uint16(p)) && (p != 53 || !r.DNS.Capture) {
				ports = append(ports, uint16(p))
			}
		}
	}
	return ports
}

// capturesDNS reports whether DNS queries are captured.
func capturesDNS(r rules.Redirect) bool {
	return r.DNS.Capture && !rules.Contains(rules.Normalize(r.OutboundExcludePorts), 53)
}

// hasGroups reports whether connections of some group are captured.
func hasGroups(r rules.Redirect) bool { return r.OwnerGroups.All || len(r.OwnerGroups.IDs) > 0 }

func hasLoopback(prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr().IsLoopback() })
}

package rules

import (
	"net/netip"
	"slices"
)

// DecidesFamily reports whether an address of a pod counts when Istio decides whether to capture
// IPv6: loopback and link-local addresses do not (getLocalIP in tools/common/config).
func DecidesFamily(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsLinkLocalMulticast()
}

// CapturesIPv6 reports whether Istio captures IPv6 of a pod with these addresses. Istio does if the
// first address, or with dualStack any address, is an IPv6 address. The caller must omit addresses
// for which [DecidesFamily] is false. An IPv4-mapped address counts as IPv4.
func CapturesIPv6(addresses []netip.Addr, dualStack bool) bool {
	is6 := func(a netip.Addr) bool { return a.Unmap().Is6() }
	if dualStack {
		return slices.ContainsFunc(addresses, is6)
	}
	return len(addresses) > 0 && is6(addresses[0])
}

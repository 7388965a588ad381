package rules

import (
	"net/netip"
	"slices"
)

// DecidesFamily reports whether an address of a pod indicates its families: loopback and link-local
// addresses do not, as in getLocalIP of Istio's tools/common/config. An IPv4-mapped IPv6 address
// counts as IPv4.
func DecidesFamily(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsLinkLocalMulticast()
}

// CapturesIPv6 reports whether Istio captures IPv6 of a pod with these addresses: if the first of
// them is IPv6, or in a dual-stack pod any of them. Only addresses for which [DecidesFamily] is
// true count; without any the result is false.
func CapturesIPv6(addresses []netip.Addr, dualStack bool) bool {
	is6 := func(a netip.Addr) bool { return a.Unmap().Is6() }
	if dualStack {
		return slices.ContainsFunc(addresses, is6)
	}
	return len(addresses) > 0 && is6(addresses[0])
}

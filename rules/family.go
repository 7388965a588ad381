package rules

import (
	"net/netip"
	"slices"
)

// DecidesFamily reports whether an address of a pod says which families it has: loopback and
// link-local ones do not, as in getLocalIP of Istio's tools/common/config. An IPv4 address in the
// form of an IPv6 one counts as what it is.
func DecidesFamily(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsLinkLocalMulticast()
}

// CapturesIPv6 reports whether the IPv6 of a pod with these addresses is captured besides its IPv4,
// as Istio decides it: by the first of them, and in a dual-stack pod by whether there is one of
// IPv6 at all. Each must decide (see [DecidesFamily]); without any it is false.
func CapturesIPv6(addresses []netip.Addr, dualStack bool) bool {
	is6 := func(a netip.Addr) bool { return a.Unmap().Is6() }
	if dualStack {
		return slices.ContainsFunc(addresses, is6)
	}
	return len(addresses) > 0 && is6(addresses[0])
}

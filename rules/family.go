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

// CapturesIPv6 reports whether Istio captures IPv6 of a pod with these addresses, in any order.
// With dualStack, Istio does if any address is an IPv6 address. Without it, the first address in
// the kernel's order determines the family, and the kernel lists all IPv4 addresses before IPv6
// addresses (rtnl_dump_all in net/core/rtnetlink.c). Istio therefore captures IPv6 only of a pod
// without IPv4. For other pods istiod configures no proxy listener on IPv6. The caller must omit
// addresses for which [DecidesFamily] is false. An IPv4-mapped address counts as IPv4.
func CapturesIPv6(addresses []netip.Addr, dualStack bool) bool {
	is6 := func(a netip.Addr) bool { return a.Unmap().Is6() }
	is4 := func(a netip.Addr) bool { return !is6(a) }
	return slices.ContainsFunc(addresses, is6) && (dualStack || !slices.ContainsFunc(addresses, is4))
}

package observe

import (
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
)

// FromNode returns a function that reports whether an address, which must not be IPv4-mapped or
// have a zone, belongs to the node, from which the kubelet probes the agent. The node's addresses
// are
//   - the given ones, separated by commas; invalid addresses are ignored
//   - the default gateways, which most network plugins assign to the node's end of a pod's link
//   - the loopback addresses, which kubectl port-forward uses
func FromNode(given string) func(netip.Addr) bool {
	node := map[netip.Addr]bool{}
	for text := range strings.SplitSeq(given, ",") {
		if a, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			node[a.Unmap()] = true
		}
	}
	// If the routes cannot be read, the gateways are missing.
	routes, _ := netlink.RouteList(nil, netlink.FAMILY_ALL)
	for _, r := range routes {
		if a, ok := netip.AddrFromSlice(r.Gw); ok && isDefault(r) {
			node[a.Unmap()] = true
		}
	}
	return func(a netip.Addr) bool { return a.IsLoopback() || node[a] }
}

func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}

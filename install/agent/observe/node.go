package observe

import (
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
)

// FromNode returns what reports whether an address is the node's own, from where the kubelet probes
// the agent: those given, separated by commas, the default gateways, which most network plugins
// give the node's end of a pod's link, and loopback, where kubectl port-forward comes from. What is
// given and is no address is left out.
func FromNode(given string) func(netip.Addr) bool {
	node := map[netip.Addr]bool{}
	for text := range strings.SplitSeq(given, ",") {
		if a, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			node[a.Unmap()] = true
		}
	}
	// Without an answer of the kernel the addresses given have to do.
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

package route

import (
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Addresses returns the addresses of the namespace's interfaces in the kernel's
// order, IPv4 before IPv6, without loopback, link-local and multicast ones. From
// these Istio decides whether a pod has IPv6 (net.InterfaceAddrs in its
// tools/istio-iptables/pkg/config). [rules.PassthroughIPv6] is left out as well:
// it would make a pod look as if it had IPv6 once we were there.
func Addresses(ns *netns.NS) ([]netip.Addr, error) {
	h, err := open(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	list, err := dump("addresses", func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, found := range list {
		a, ok := addressOf(found)
		if !ok || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a == rules.PassthroughIPv6 {
			continue
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

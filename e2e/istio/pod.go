package istio

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/testbed"
)

// Names of the pod's veth interface and its peer, which is in the same namespace.
const (
	ethName = "eth0"
	endName = "eth0-end"
)

// NewNamespace creates a network namespace with the interfaces and addresses of the pod. The caller
// must close it.
func (p Pod) NewNamespace() (*netns.NS, error) {
	n, err := netns.New()
	if err != nil {
		return nil, err
	}
	if err := n.Do(p.setUp); err != nil {
		return nil, errors.Join(fmt.Errorf("create a pod with %s: %w", p, err), n.Close())
	}
	return n, nil
}

// addresses returns the addresses of eth0.
func (p Pod) addresses() []*net.IPNet {
	v4 := network(testbed.PodIP4, 24)
	v6 := network(testbed.PodIP6, 64)
	return map[Pod][]*net.IPNet{IPv4Pod: {v4}, IPv6Pod: {v6}, DualPod: {v4, v6}}[p]
}

// network returns an address with the length of its network's prefix.
func network(a netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}
}

// setUp creates the interfaces in the current namespace.
func (p Pod) setUp() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = ethName
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: endName}); err != nil {
		return fmt.Errorf("add link %s: %w", ethName, err)
	}
	for _, name := range []string{"lo", endName, ethName} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find link %s: %w", name, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set link %s up: %w", name, err)
		}
		if name != ethName {
			continue
		}
		for _, a := range p.addresses() {
			if err := netlink.AddrAdd(link, &netlink.Addr{
				IPNet: a, Flags: unix.IFA_F_NODAD,
			}); err != nil {
				return fmt.Errorf("add address %s: %w", a, err)
			}
		}
	}
	return nil
}

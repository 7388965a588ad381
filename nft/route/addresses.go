package route

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Addresses returns the addresses of the namespace's interfaces in the kernel's
// order, IPv4 before IPv6, without loopback, link-local and multicast ones. From
// these Istio decides whether a pod has IPv6 (net.InterfaceAddrs in its
// tools/istio-iptables/pkg/config). [rules.PassthroughIPv6] is left out as well:
// it would make a pod look as if it had IPv6 once we were there.
func Addresses(ns *netns.NS) ([]netip.Addr, error) {
	var addrs []netip.Addr
	err := ns.Do(func() (err error) {
		addrs, err = dump("addresses", listAddresses)
		return err
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		return a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a == rules.PassthroughIPv6()
	}), nil
}

// listAddresses lists all addresses in the namespace of the thread. In a process that does little
// else, package netlink would take four times as long: it prepares to wait for what never lets
// anybody wait.
func listAddresses() ([]netip.Addr, error) {
	q, err := newQuickLook(rules.Routing{})
	if err != nil {
		return nil, err
	}
	defer q.close()
	var addrs []netip.Addr
	interrupted, err := nlmsg.Exchange(q.fd, q.buf[:], addressesRequest(), func(m nlmsg.Message) error {
		if m.Type == unix.RTM_NEWADDR && len(m.Body) >= unix.SizeofIfAddrmsg {
			if own := ownAddress(nlmsg.Attributes(m.Body[unix.SizeofIfAddrmsg:])); own.IsValid() {
				addrs = append(addrs, own)
			}
		}
		return nil
	})
	if err == nil && interrupted {
		err = netlink.ErrDumpInterrupted
	}
	return addrs, err
}

// ownAddress returns the address of the interface itself, an invalid one if it has none of IP. The
// address of attribute IFA_ADDRESS is the other end's where there is a local one.
func ownAddress(a nlmsg.Attributes) netip.Addr {
	local, _ := netip.AddrFromSlice(a.Get(unix.IFA_LOCAL))
	other, _ := netip.AddrFromSlice(a.Get(unix.IFA_ADDRESS))
	return cmp.Or(local, other)
}

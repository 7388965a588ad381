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

// Addresses returns the addresses of the namespace's interfaces in the kernel's order, IPv4 before
// IPv6. It omits loopback, link-local and multicast addresses. Istio decides from these addresses
// whether a pod has IPv6 (net.InterfaceAddrs in its tools/istio-iptables/pkg/config). Addresses
// omits [rules.PassthroughIPv6] too, because a redirection adds it to pods without IPv6.
func Addresses(ns *netns.NS) ([]netip.Addr, error) {
	addrs, err := AllAddresses(ns)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		return a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() ||
			a == rules.PassthroughIPv6()
	}), nil
}

// AllAddresses returns all addresses of the namespace's interfaces, in the order of [Addresses].
func AllAddresses(ns *netns.NS) (addrs []netip.Addr, err error) {
	err = ns.Do(func() (err error) {
		addrs, err = listAll("addresses", listAddresses)
		return err
	})
	return addrs, err
}

// listAddresses lists all addresses in the namespace of the thread. It uses the socket and the
// buffer of a fast check. Package netlink would take four times as long in a short-lived process,
// because it initializes the network poller of the Go runtime.
func listAddresses() ([]netip.Addr, error) {
	q, err := newFastCheck(rules.Routing{})
	if err != nil {
		return nil, err
	}
	defer q.close()
	var addrs []netip.Addr
	addAddress := func(m nlmsg.Message) error {
		if m.Type == unix.RTM_NEWADDR && len(m.Body) >= unix.SizeofIfAddrmsg {
			if own := ownAddress(nlmsg.Attributes(m.Body[unix.SizeofIfAddrmsg:])); own.IsValid() {
				if len(addrs) == maxObjects {
					return tooMany("addresses", maxObjects)
				}
				addrs = append(addrs, own)
			}
		}
		return nil
	}
	interrupted, err := nlmsg.Exchange(q.fd, q.buf[:], addressesRequest(), addAddress)
	if err == nil && interrupted {
		err = netlink.ErrDumpInterrupted
	}
	return addrs, err
}

// ownAddress returns the interface's own address from the attributes of an address message, or the
// zero Addr if they contain no IP address. If IFA_LOCAL is present, IFA_ADDRESS is the address of
// the peer.
func ownAddress(a nlmsg.Attributes) netip.Addr {
	local, _ := netip.AddrFromSlice(a.Get(unix.IFA_LOCAL))
	addr, _ := netip.AddrFromSlice(a.Get(unix.IFA_ADDRESS))
	return cmp.Or(local, addr)
}

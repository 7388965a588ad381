package route

import (
	"cmp"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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

// listAddresses lists all addresses in the namespace of the thread. In a process that does little else, package netlink would take four
// times as long: it prepares to wait for what never lets anybody wait.
func listAddresses() ([]netip.Addr, error) {
	q, err := newQuickLook(rules.Routing{})
	if err != nil {
		return nil, err
	}
	defer q.close()
	if _, err := unix.Write(q.fd, addressesRequest()); err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for {
		n, err := q.receive()
		if err != nil {
			return nil, err
		}
		messages, err := syscall.ParseNetlinkMessage(q.buf[:n])
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			switch {
			case m.Header.Flags&unix.NLM_F_DUMP_INTR != 0:
				return nil, netlink.ErrDumpInterrupted
			case m.Header.Type == unix.NLMSG_ERROR:
				return nil, refusal(m.Data)
			case m.Header.Type == unix.NLMSG_DONE:
				return addrs, nil
			case m.Header.Type == unix.RTM_NEWADDR && len(m.Data) >= unix.SizeofIfAddrmsg:
				own, err := ownAddress(m.Data[unix.SizeofIfAddrmsg:])
				if err != nil {
					return nil, err
				}
				addrs = append(addrs, own...)
			}
		}
	}
}

// ownAddress is the address of the interface itself, of the attributes of one; none if it has none of IP.
func ownAddress(attributes []byte) ([]netip.Addr, error) {
	var local, other netip.Addr // the other end's, and that is the interface's own where there is no local one
	err := eachAttribute(attributes, func(kind uint16, value []byte) {
		switch kind {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(value)
		case unix.IFA_ADDRESS:
			other, _ = netip.AddrFromSlice(value)
		}
	})
	if own := cmp.Or(local, other); own.IsValid() && err == nil {
		return []netip.Addr{own}, nil
	}
	return nil, err
}

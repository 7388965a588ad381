package testbed

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

const bits4, bits6 = 24, 64 // prefix lengths of every link

// sysctl writes a value under /proc/sys/net of the thread's namespace.
func sysctl(name, value string) error {
	return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0)
}

// withHandle runs fn with a route netlink socket of the namespace.
func withHandle(ns *netns.NS, fn func(*netlink.Handle) error) error {
	h, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	return fn(h)
}

// addVeth creates a veth pair: an interface with the name in ns, and eth0 in peer.
func addVeth(ns *netns.NS, name string, peer *netns.NS) error {
	return withHandle(ns, func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.Flags = name, net.FlagUp
		return h.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: ethName, PeerNamespace: netlink.NsFd(peer.FD()),
		})
	})
}

// setUp brings lo and the named interface up, and adds the addresses to the named interface.
func setUp(ns *netns.NS, name string, addrs ...netip.Addr) error {
	return withHandle(ns, func(h *netlink.Handle) error {
		for _, name := range []string{loName, name} {
			l, err := h.LinkByName(name)
			if err != nil {
				return fmt.Errorf("link %s: %w", name, err)
			}
			if err := h.LinkSetUp(l); err != nil {
				return fmt.Errorf("link %s: set up: %w", name, err)
			}
			if name == loName {
				continue
			}
			for _, a := range addrs {
				addr := &netlink.Addr{IPNet: withPrefixLength(a)}
				if a.Is6() {
					addr.Flags = unix.IFA_F_NODAD
				}
				if err := h.AddrAdd(l, addr); err != nil {
					return fmt.Errorf("address %s: %w", a, err)
				}
			}
		}
		return nil
	})
}

// addDefaultRoutes adds a default route to ns via each gateway.
func addDefaultRoutes(ns *netns.NS, gateways ...netip.Addr) error {
	return withHandle(ns, func(h *netlink.Handle) error {
		for _, gw := range gateways {
			if err := h.RouteAdd(&netlink.Route{Gw: gw.AsSlice()}); err != nil {
				return fmt.Errorf("default via %s: %w", gw, err)
			}
		}
		return nil
	})
}

// addNeighborRoutes makes every address local to the neighbor, with two exceptions: the prefixes of
// the link to the pod, and the prefixes of the network behind the pod's second interface, which the
// neighbor routes through the pod. All routes are in table local, because the kernel looks up there
// whether an IPv4 source address is local (__ip_dev_find in net/ipv4/devinet.c). With routes in
// table main, the neighbor could not answer from these addresses.
func addNeighborRoutes(ns *netns.NS) error {
	return withHandle(ns, func(h *netlink.Handle) error {
		lo, err := h.LinkByName(loName)
		if err != nil {
			return err
		}
		eth0, err := h.LinkByName(ethName)
		if err != nil {
			return err
		}
		ethIndex, loIndex := eth0.Attrs().Index, lo.Attrs().Index
		for _, r := range []netlink.Route{
			{Dst: prefix("10.244.1.0/24"), LinkIndex: ethIndex, Scope: netlink.SCOPE_LINK},
			{Dst: prefix("fd00:10:244:1::/64"), LinkIndex: ethIndex},
			{Dst: prefix("fe80::/64"), LinkIndex: ethIndex},
			{Dst: prefix("10.0.2.0/24"), Gw: PodIP4.AsSlice()},
			{Dst: prefix("fd00:10:0:2::/64"), Gw: PodIP6.AsSlice()},
			{
				Dst: prefix("0.0.0.0/0"), LinkIndex: loIndex, Type: unix.RTN_LOCAL,
				Scope: netlink.SCOPE_HOST,
			},
			{Dst: prefix("::/0"), LinkIndex: loIndex, Type: unix.RTN_LOCAL},
		} {
			r.Table = unix.RT_TABLE_LOCAL
			if r.Type == 0 {
				r.Type = unix.RTN_UNICAST
			}
			if err := h.RouteAdd(&r); err != nil {
				return fmt.Errorf("route %s: %w", r.Dst, err)
			}
		}
		return nil
	})
}

// WaitForRouting waits until the kernel delivers packets to the addresses that the routing adds to
// the pod's lo. The kernel makes IPv6 addresses usable asynchronously; see [WaitUsable].
func (n *Network) WaitForRouting(routing rules.Routing) error {
	for _, a := range routing.LoopbackAddrs {
		if err := WaitUsable(n.Pod, loName, a); err != nil {
			return err
		}
	}
	return nil
}

// changeTimeout is the time in seconds that [WaitUsable] waits for the next change of the
// namespace's interfaces, addresses or routes. The kernel's work queues take long on a busy host.
const changeTimeout = 60

// WaitUsable waits until an interface and its address are usable. The kernel prepares both in work
// queues: an interface drops outgoing packets until its queueing discipline is attached
// (linkwatch_do_dev in net/core/link_watch.c), and an IPv6 address is not local until the work of
// duplicate address detection has run, even if the detection is disabled (addrconf_dad_work in
// net/ipv6/addrconf.c).
func WaitUsable(ns *netns.NS, name string, a netip.Addr) error {
	var changes *nl.NetlinkSocket
	err := ns.Do(func() (err error) {
		changes, err = nl.Subscribe(unix.NETLINK_ROUTE,
			unix.RTNLGRP_LINK, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE)
		return err
	})
	if err != nil {
		return err
	}
	defer changes.Close()
	if err := changes.SetReceiveTimeout(&unix.Timeval{Sec: changeTimeout}); err != nil {
		return err
	}
	return withHandle(ns, func(h *netlink.Handle) error {
		for {
			if usable, err := isUsable(h, name, a); usable || err != nil {
				return err
			}
			if _, _, err := changes.Receive(); err != nil {
				return fmt.Errorf("%s does not become usable: %w", a, err)
			}
		}
	})
}

// isUsable reports whether the interface is up, the address is local, and the interface has no
// tentative IPv6 address.
func isUsable(h *netlink.Handle, name string, a netip.Addr) (bool, error) {
	l, err := h.LinkByName(name)
	// The kernel reports the operational state of lo as unknown.
	if err != nil || l.Attrs().OperState != netlink.OperUp && name != loName {
		return false, err
	}
	routes, err := h.RouteGet(a.AsSlice())
	if err != nil || len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL {
		return false, nil
	}
	addrs, err := RetryDump(func() ([]netlink.Addr, error) {
		return h.AddrList(l, netlink.FAMILY_V6)
	})
	return !slices.ContainsFunc(addrs, isTentative), err
}

// isTentative reports whether duplicate address detection has not completed for the address.
func isTentative(a netlink.Addr) bool { return a.Flags&unix.IFA_F_TENTATIVE != 0 }

// withPrefixLength returns the address with the prefix length of its link.
func withPrefixLength(a netip.Addr) *net.IPNet {
	bits := bits4
	if a.Is6() {
		bits = bits6
	}
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}
}

// prefix parses a prefix. It panics for invalid text.
func prefix(text string) *net.IPNet {
	p := netip.MustParsePrefix(text)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

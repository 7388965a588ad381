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

const bits4, bits6 = 24, 64 // of every link

// sysctl writes a value under /proc/sys/net, which is the one of the thread's namespace.
func sysctl(name, value string) error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) }

// inside runs fn with a route netlink socket of the namespace.
func inside(n *netns.NS, fn func(*netlink.Handle) error) error {
	var h *netlink.Handle
	err := n.Do(func() (err error) {
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return err
	}
	defer h.Close()
	return fn(h)
}

// link makes a veth between interface name of n and eth0 of peer.
func link(n *netns.NS, name string, peer *netns.NS) error {
	return inside(n, func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.Flags = name, net.FlagUp
		return h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: ethName, PeerNamespace: netlink.NsFd(peer.FD())})
	})
}

// setUp sets lo and the named interface up, and gives the latter the addresses.
func setUp(n *netns.NS, name string, addrs ...netip.Addr) error {
	return inside(n, func(h *netlink.Handle) error {
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
				addr := &netlink.Addr{IPNet: network(a)}
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

// routeBy makes the addresses the gateways of n.
func routeBy(n *netns.NS, gateways ...netip.Addr) error {
	return inside(n, func(h *netlink.Handle) error {
		for _, gw := range gateways {
			if err := h.RouteAdd(&netlink.Route{Gw: gw.AsSlice()}); err != nil {
				return fmt.Errorf("default via %s: %w", gw, err)
			}
		}
		return nil
	})
}

// routeNeighbour makes every address local except the link's and the machine's. All of it is in
// table local, for there the kernel looks whether an IPv4 source address is the host's
// (__ip_dev_find in net/ipv4/devinet.c); in main, answers would fail.
func routeNeighbour(n *netns.NS) error {
	return inside(n, func(h *netlink.Handle) error {
		lo, err := h.LinkByName(loName)
		if err != nil {
			return err
		}
		eth0, err := h.LinkByName(ethName)
		if err != nil {
			return err
		}
		on, every := eth0.Attrs().Index, lo.Attrs().Index
		for _, r := range []netlink.Route{
			{Dst: prefix("10.244.1.0/24"), LinkIndex: on, Scope: netlink.SCOPE_LINK},
			{Dst: prefix("fd00:10:244:1::/64"), LinkIndex: on},
			{Dst: prefix("fe80::/64"), LinkIndex: on},
			{Dst: prefix("10.0.2.0/24"), Gw: PodIP4.AsSlice()},
			{Dst: prefix("fd00:10:0:2::/64"), Gw: PodIP6.AsSlice()},
			{Dst: prefix("0.0.0.0/0"), LinkIndex: every, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST},
			{Dst: prefix("::/0"), LinkIndex: every, Type: unix.RTN_LOCAL},
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

// Settle waits until the addresses that the ruleset's routing gives the pod's lo are destinations,
// which the kernel makes them later.
func (b *Bed) Settle(routing rules.Routing) error {
	for _, a := range routing.LoopbackAddrs {
		if err := settle(b.Pod, loName, a); err != nil {
			return err
		}
	}
	return nil
}

// settle waits for what the kernel does later, in work queues: until the queueing discipline is
// attached an interface drops what it is to send (linkwatch_do_dev in net/core/link_watch.c); until
// duplicate address detection is through, even when there is none to do, an IPv6 address is no
// destination, and packets to it leave the host (addrconf_dad_work in net/ipv6/addrconf.c).
func settle(n *netns.NS, name string, a netip.Addr) error {
	var changes *nl.NetlinkSocket
	err := n.Do(func() (err error) {
		changes, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE)
		return err
	})
	if err != nil {
		return err
	}
	defer changes.Close()
	if err := changes.SetReceiveTimeout(&unix.Timeval{Sec: 10}); err != nil {
		return err
	}
	return inside(n, func(h *netlink.Handle) error {
		for {
			if done, err := settled(h, name, a); done || err != nil {
				return err
			}
			if _, _, err := changes.Receive(); err != nil {
				return fmt.Errorf("%s does not become usable: %w", a, err)
			}
		}
	})
}

func settled(h *netlink.Handle, name string, a netip.Addr) (bool, error) {
	l, err := h.LinkByName(name)
	if err != nil || l.Attrs().OperState != netlink.OperUp && name != loName {
		return false, err
	}
	routes, err := h.RouteGet(a.AsSlice())
	if err != nil || len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL {
		return false, nil
	}
	addrs, err := List(func() ([]netlink.Addr, error) { return h.AddrList(l, netlink.FAMILY_V6) })
	return !slices.ContainsFunc(addrs, tentative), err
}

func tentative(a netlink.Addr) bool { return a.Flags&unix.IFA_F_TENTATIVE != 0 }

// network is the address with the length of its link.
func network(a netip.Addr) *net.IPNet {
	bits := bits4
	if a.Is6() {
		bits = bits6
	}
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}
}

func prefix(text string) *net.IPNet {
	p := netip.MustParsePrefix(text)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

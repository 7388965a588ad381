package netnstest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// The addresses of a [Pair], the same in every one.
var (
	podIP4       = netip.MustParsePrefix("10.244.1.5/24")
	podIP6       = netip.MustParsePrefix("fd00:10:244:1::5/64")
	neighbourIP4 = netip.MustParsePrefix("10.244.1.1/24")
	neighbourIP6 = netip.MustParsePrefix("fd00:10:244:1::1/64")
)

// Pair is a pod and the rest of the world: two namespaces, the eth0 of each
// joined to the other's, ready for packets of both families.
//
// The neighbour is the pod's default gateway and has every address outside
// 10.244.1.0/24 and fd00:10:244:1::/64 for its own: whatever the pod connects
// to reaches a listener of the neighbour on 0.0.0.0 or [::], and answers come
// from the address that was asked. It may bind any address too, which a UDP
// server must do to answer from an address other than its own.
type Pair struct {
	Pod, Neighbour             *netns.NS
	PodIP4, PodIP6             netip.Addr // 10.244.1.5, fd00:10:244:1::5
	NeighbourIP4, NeighbourIP6 netip.Addr // 10.244.1.1, fd00:10:244:1::1
}

// NewPair returns a new [Pair].
func NewPair(t testing.TB) Pair {
	t.Helper()
	p := Pair{
		Pod: New(t), Neighbour: New(t),
		PodIP4: podIP4.Addr(), PodIP6: podIP6.Addr(),
		NeighbourIP4: neighbourIP4.Addr(), NeighbourIP6: neighbourIP6.Addr(),
	}
	pod, neighbour := handle(t, p.Pod), handle(t, p.Neighbour)
	defer pod.Close()
	defer neighbour.Close()
	for _, step := range []struct {
		what string
		do   func() error
	}{
		// Before there is an eth0: its link-local address takes the default.
		{"set the pod's sysctls", func() error { return p.Pod.Do(podSysctls) }},
		{"set the neighbour's sysctls", func() error { return p.Neighbour.Do(neighbourSysctls) }},
		{"join them", func() error { return join(pod, p.Neighbour) }},
		{"address the pod", func() error { return address(pod, podIP4, podIP6) }},
		{"address the neighbour", func() error { return address(neighbour, neighbourIP4, neighbourIP6) }},
		{"route the pod", func() error { return routePod(pod) }},
		{"route the neighbour", func() error { return routeNeighbour(neighbour) }},
		{"wait for the pod's link", func() error { return settled(pod, podIP6.Addr()) }},
		{"wait for the neighbour's link", func() error { return settled(neighbour, neighbourIP6.Addr()) }},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("pod and neighbour: %s: %v", step.what, err)
		}
	}
	return p
}

// podSysctls spares the link-local address its second of duplicate address
// detection, during which it cannot be used.
func podSysctls() error { return sysctl("ipv6/conf/default/accept_dad", "0") }

func neighbourSysctls() error {
	if err := podSysctls(); err != nil {
		return err
	}
	if err := sysctl("ipv4/ip_nonlocal_bind", "1"); err != nil {
		return err
	}
	return sysctl("ipv6/ip_nonlocal_bind", "1")
}

// sysctl writes a value under /proc/sys/net, which is the one of the thread's
// namespace.
func sysctl(name, value string) error {
	return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0)
}

// join makes a veth between the handle's namespace and peer, eth0 in both.
func join(h *netlink.Handle, peer *netns.NS) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags = "eth0", net.FlagUp
	return h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(peer.FD())})
}

// address sets eth0 up and gives it the prefixes' addresses.
func address(h *netlink.Handle, prefixes ...netip.Prefix) error {
	link, err := h.LinkByName("eth0")
	if err != nil {
		return err
	}
	if err := h.LinkSetUp(link); err != nil {
		return err
	}
	for _, p := range prefixes {
		addr := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := h.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

// routePod sends what is not on the link to the neighbour.
func routePod(h *netlink.Handle) error {
	for _, via := range []netip.Prefix{neighbourIP4, neighbourIP6} {
		if err := h.RouteAdd(&netlink.Route{Gw: via.Addr().AsSlice()}); err != nil {
			return fmt.Errorf("default via %s: %w", via.Addr(), err)
		}
	}
	return nil
}

// routeNeighbour makes every address local except the link's. All of it is in
// table local, for there the kernel looks whether an IPv4 source address is the
// host's (__ip_dev_find in net/ipv4/devinet.c); in main, answers would fail.
func routeNeighbour(h *netlink.Handle) error {
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	eth0, err := h.LinkByName("eth0")
	if err != nil {
		return err
	}
	for _, r := range []struct {
		dst   string
		link  netlink.Link
		kind  int
		scope netlink.Scope
	}{
		{"10.244.1.0/24", eth0, unix.RTN_UNICAST, netlink.SCOPE_LINK},
		{"fd00:10:244:1::/64", eth0, unix.RTN_UNICAST, netlink.SCOPE_UNIVERSE},
		{"fe80::/64", eth0, unix.RTN_UNICAST, netlink.SCOPE_UNIVERSE},
		{"0.0.0.0/0", lo, unix.RTN_LOCAL, netlink.SCOPE_HOST},
		{"::/0", lo, unix.RTN_LOCAL, netlink.SCOPE_UNIVERSE},
	} {
		err := h.RouteAdd(&netlink.Route{
			Dst: ipNet(netip.MustParsePrefix(r.dst)), LinkIndex: r.link.Attrs().Index,
			Type: r.kind, Scope: r.scope, Table: unix.RT_TABLE_LOCAL,
		})
		if err != nil {
			return fmt.Errorf("route %s dev %s: %w", r.dst, r.link.Attrs().Name, err)
		}
	}
	return nil
}

// settled waits for what the kernel does in work queues: until the queueing
// discipline is attached eth0 drops what it is to send (linkwatch_do_dev in
// net/core/link_watch.c), until duplicate address detection is through, even
// when there is none to do, ip6 is not delivered and the link-local address not
// used (addrconf_dad_work in net/ipv6/addrconf.c). A lost SYN costs a test 1 s.
func settled(h *netlink.Handle, ip6 netip.Addr) error {
	for start := time.Now(); time.Since(start) < 10*time.Second; runtime.Gosched() {
		link, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		if link.Attrs().OperState != netlink.OperUp {
			continue
		}
		routes, err := h.RouteGet(ip6.AsSlice())
		if err != nil || len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL {
			continue
		}
		addrs, err := h.AddrList(link, netlink.FAMILY_V6)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(addrs, tentative) {
			return nil
		}
	}
	return errors.New("not usable after 10 s")
}

func tentative(a netlink.Addr) bool { return a.Flags&unix.IFA_F_TENTATIVE != 0 }

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

package route_test

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// TestRouteWithOtherAttributesIsForeign adds routes that differ from the route of Sluice's policy
// route only in one attribute. The attribute is in the text of the route.
func TestRouteWithOtherAttributesIsForeign(t *testing.T) {
	for _, row := range []struct {
		command, text string
		isRefused     bool // the kernel does not add Sluice's route beside this one
	}{
		{"-6 route add local default from fd09::/64 dev lo table 133", "local default from fd09::/64 dev lo table 133 metric 1024", false},
		{"-6 route add local default dev lo table 133 pref high", "local default dev lo table 133 metric 1024 pref 1", true},
		{"-6 route add local default dev lo table 133 expires 1000", "local default dev lo table 133 metric 1024 expires", true},
		{
			"-4 route add local default encap seg6 mode encap segs fd01::1 dev lo table 133",
			"local default encap seg6 dev lo table 133", true,
		},
		{
			"-4 route add local default encap ip id 1 dst 10.1.1.1 dev lo table 133",
			"local default encap ip dev lo table 133", true,
		},
		{"-4 route add local default dev lo table 133 mtu lock 100", "local default dev lo table 133 mtu lock 100", true},
		{"-4 route add local default dev lo table 133 advmss 90", "local default dev lo table 133 advmss 90", true},
		{"-4 route add local default dev lo table 133 realms 7", "local default dev lo table 133 realms 7", true},
		{"-4 route add local default dev lo table 133 src 127.0.0.1", "local default dev lo table 133 src 127.0.0.1", true},
		{"-4 route add local default nhid 7 table 133", "local default nhid 7 dev lo table 133", true},
		{"-4 route add local default dev lo table 133 tos 0x10", "local default tos 0x10 dev lo table 133", false},
	} {
		t.Run(row.command, func(t *testing.T) {
			n := netnstest.New(t)
			ip(t, n, "link set lo up", "nexthop add id 7 dev lo")
			policy, rule := policy4, sluiceRule4
			if strings.HasPrefix(row.command, "-6") {
				policy, rule = policy6, sluiceRule6
			}
			ip(t, n, rule, row.command)
			want := rules.Routing{Policies: []rules.PolicyRoute{policy}}
			others := []string{"ip " + row.command[:2] + " route " + row.text}
			checkRead(t, n, rules.Routing{Unrouted: want.Policies, Others: others})
			if err := n.Do(func() error {
				if route.InSync(want) {
					t.Error("InSync returns true, want false")
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			_, err := route.Ensure(n, want)
			if row.isRefused {
				if err == nil || !strings.Contains(err.Error(), "the table has another default route") {
					t.Errorf("Ensure: error %v, want one about another default route", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkRead(t, n, rules.Routing{Policies: want.Policies, Others: others})
		})
	}
}

// TestUndeliveredLoopback adds routes to loopback addresses. UndeliveredLoopback must return a
// route only if packets that it selects are not delivered locally.
func TestUndeliveredLoopback(t *testing.T) {
	const via4, via6 = "via 10.244.1.1 dev eth0", "via fd02::1 dev eth0"
	for _, row := range []struct {
		name        string
		commands    []string
		want        string
		isSelective bool
	}{
		{"only the routes of the interfaces", nil, "", false},
		{
			"a type of service",
			[]string{"-4 route add 127.0.0.1 tos 0x10 table local " + via4},
			"ip -4 route unicast 127.0.0.1/32 tos 0x10 via 10.244.1.1 dev if9 table 255", true,
		},
		{
			"a type of service and a route of type throw",
			[]string{"-4 route add throw 127.0.0.1 tos 0x10 table local"},
			"ip -4 route throw 127.0.0.1/32 tos 0x10 table 255", true,
		},
		{"a type of service and a local route", []string{"-4 route add local 127.0.0.1 tos 0x10 table local dev lo"}, "", false},
		{"a type of service and a route that drops packets", []string{"-4 route add unreachable 127.0.0.1 tos 0x10 table local"}, "", false},
		{
			"a type of service and a shorter prefix than the local route",
			[]string{"-4 route add 127.0.0.0/30 tos 0x10 table local " + via4},
			"", false,
		},
		{"a type of service in another table", []string{"-4 route add 127.0.0.1 tos 0x10 " + via4}, "", false},
		{
			"a type of service in the table main, with which the kernel merges the table local",
			[]string{"-4 route del local 127.0.0.1 table local", "-4 route add 127.0.0.1 tos 0x10 " + via4},
			"ip -4 route unicast 127.0.0.1/32 tos 0x10 via 10.244.1.1 dev if9 table 254", true,
		},
		{"a route with a greater metric", []string{"-4 route add 127.0.0.1 metric 7 table local " + via4}, "", false},
		{
			"the kernel uses another route for all packets",
			[]string{"-4 route del local 127.0.0.1 table local", "-4 route del local 127.0.0.0/8 table local"},
			"ip -4 route unicast 127.0.0.1/32 via 10.244.1.1 dev if9 table 254 src 10.244.1.5", false,
		},
		{
			"the kernel uses another route for some packets, and has none for others",
			[]string{
				"-4 route del local 127.0.0.1 table local", "-4 route del local 127.0.0.0/8 table local",
				"-4 route del default", "-4 route add default table 99 " + via4, "-4 rule add from 10.244.1.5 lookup 99",
			},
			"ip -4 route unicast default via 10.244.1.1 dev if9 table 99", false,
		},
		{
			"a source address",
			[]string{"-6 route add ::1 from fd02::5 table local " + via6},
			"ip -6 route unicast ::1/128 from fd02::5/128 via fd02::1 dev if9 table 255 metric 1024", true,
		},
		{
			"an encapsulation",
			[]string{
				"-6 route del local ::1 table local",
				"-6 route add local ::1 encap seg6 mode encap segs fd02::1 dev lo table local",
			},
			"ip -6 route local ::1/128 encap seg6 dev lo table 255 src ::1 metric 1024", false,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := netnstest.New(t)
			addEth0WithAddresses(t, n)
			ip(t, n, row.commands...)
			var want []route.Description
			if row.want != "" {
				family := rules.IPv4
				if strings.HasPrefix(row.want, "ip -6") {
					family = rules.IPv6
				}
				want = []route.Description{{Family: family, Text: row.want, Selective: row.isSelective}}
			}
			if got, err := route.UndeliveredLoopback(n); err != nil || !cmp.Equal(got, want) {
				t.Errorf("routes %+v, error %v, want %+v", got, err, want)
			}
		})
	}
}

// addEth0WithAddresses adds the interface eth0 with addresses and a default route.
func addEth0WithAddresses(t *testing.T, n *netns.NS) {
	ip(t, n, "link set lo up", "link add eth0 index 9 type veth peer name peer", "link set peer up",
		"link set eth0 up", "addr add 10.244.1.5/24 dev eth0", "-6 addr add fd02::5/64 dev eth0 nodad",
		"-4 route add default via 10.244.1.1")
}

// TestEncapsulatingRoutes adds routes with encapsulations. Only those over lo and decapsulations
// must be returned.
func TestEncapsulatingRoutes(t *testing.T) {
	const seg6 = " encap seg6 mode encap segs fd02::1 dev lo"
	for _, row := range []struct {
		name     string
		commands []string
		isHidden bool // sysctl net.ipv4.nexthop_compat_mode is 0
		family   rules.Family
		want     string
	}{
		{
			"over another interface",
			[]string{"-4 route add 10.2.0.2 encap seg6 mode encap segs fd02::1 dev eth0"},
			false, rules.IPv4, "",
		},
		{
			"over lo",
			[]string{"-4 route add 10.2.0.2" + seg6},
			false, rules.IPv4, "ip -4 route unicast 10.2.0.2/32 encap seg6 dev lo table 254",
		},
		{
			"of a local route that seems to be of the kernel",
			[]string{"-6 route add local fd02::5 table local metric 1 proto kernel" + seg6},
			false, rules.IPv6, "ip -6 route local fd02::5/128 encap seg6 dev lo table 255 metric 1",
		},
		{
			"a type that package netlink does not know",
			[]string{"-4 route add 10.2.0.2 encap ip id 7 dst 10.244.1.1 dev lo"},
			false, rules.IPv4, "ip -4 route unicast 10.2.0.2/32 encap ip dev lo table 254",
		},
		{
			"one of several next hops",
			[]string{"-4 route add 10.2.0.2 nexthop via 10.244.1.1 nexthop" + seg6},
			false, rules.IPv4,
			"ip -4 route unicast 10.2.0.2/32 nexthop via 10.244.1.1 dev if9 nexthop encap seg6 dev lo table 254",
		},
		{
			"of a nexthop object",
			[]string{"nexthop add id 7" + seg6, "-4 route add 10.2.0.2 nhid 7"},
			true, rules.IPv4, "ip -4 route unicast 10.2.0.2/32 nhid 7 table 254",
		},
		{
			"of a group of nexthop objects",
			[]string{
				"nexthop add id 7" + seg6, "nexthop add id 8 via 10.244.1.1 dev eth0", "nexthop add id 9 group 8/7",
				"-4 route add 10.2.0.2 nhid 9",
			},
			true, rules.IPv4, "ip -4 route unicast 10.2.0.2/32 nhid 9 table 254",
		},
		{
			"a nexthop object over another interface",
			[]string{"nexthop add id 8 via 10.244.1.1 dev eth0", "-4 route add 10.2.0.2 nhid 8"},
			true, rules.IPv4, "",
		},
		{
			"a decapsulation",
			[]string{"-6 route add fd02::99 encap seg6local action End.DX4 nh4 10.244.1.5 dev eth0"},
			false, rules.Inet, "ip -6 route unicast fd02::99/128 encap seg6local dev if9 table 254 metric 1024",
		},
		{
			"a decapsulation before another encapsulation",
			[]string{
				"-6 route add fd02::99 nexthop encap seg6local action End.DX4 nh4 10.244.1.5 " +
					"via fd02::1 dev eth0 nexthop encap seg6 mode encap segs fd02::1 via fd02::2 dev eth0",
			},
			false, rules.Inet,
			"ip -6 route unicast fd02::99/128 nexthop encap seg6local via fd02::1 dev if9 " +
				"nexthop encap seg6 via fd02::2 dev if9 table 254 metric 1024",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := netnstest.New(t)
			addEth0WithAddresses(t, n)
			if row.isHidden {
				if err := n.Do(func() error {
					return os.WriteFile("/proc/sys/net/ipv4/nexthop_compat_mode", []byte("0"), 0)
				}); err != nil {
					t.Fatal(err)
				}
			}
			ip(t, n, row.commands...)
			var want []route.Description
			if row.want != "" {
				want = []route.Description{{Family: row.family, Text: row.want}}
			}
			if got, err := route.OverLoopback(n); err != nil || !cmp.Equal(got.Encapsulating, want) {
				t.Errorf("routes %+v, error %v, want %+v", got, err, want)
			}
		})
	}
}

// TestEncapsulatingRouteAfterManyOverLoopback adds more routes over lo than OverLoopback returns.
func TestEncapsulatingRouteAfterManyOverLoopback(t *testing.T) {
	n := netnstest.New(t)
	addEth0WithAddresses(t, n)
	err := n.Do(func() error {
		for i := range 150 {
			to := &net.IPNet{IP: net.IPv4(10, 1, 0, byte(i)).To4(), Mask: net.CIDRMask(32, 32)}
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: netns.LoopbackIndex, Dst: to}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ip(t, n, "-4 route add 10.2.0.2 encap seg6 mode encap segs fd02::1 dev lo")
	got, err := route.OverLoopback(n)
	if err != nil || len(got.OverLoopback) != 100 || len(got.Encapsulating) != 1 {
		t.Errorf("%d routes over lo and %d with an encapsulation, error %v, want 100 and 1",
			len(got.OverLoopback), len(got.Encapsulating), err)
	}
}

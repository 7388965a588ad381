package route_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

func TestRead(t *testing.T) {
	other := rules.PolicyRoute{Family: rules.IPv4, Mark: 99, Table: 1000, Priority: 133}
	// withoutRoute returns the routing of a rule without its route, with foreign objects.
	withoutRoute := func(others ...string) rules.Routing {
		return rules.Routing{Unrouted: []rules.PolicyRoute{policy4}, Others: others}
	}
	onlyOthers := func(others ...string) rules.Routing { return rules.Routing{Others: others} }
	for _, tc := range []struct {
		name   string
		before []string
		want   rules.Routing
	}{
		{"a new namespace", nil, nothing},
		{"a policy route with its rule and route", []string{sluiceRule4, istioRoute4}, onlyIPv4},
		{"both families, IPv4 first", []string{
			sluiceRule6, istioRoute6, istioPassthrough, sluiceRule4, istioRoute4,
		}, everything},
		{"a rule without its route", []string{sluiceRule4}, withoutRoute()},
		{"a rule whose route is of the other family", []string{sluiceRule4, istioRoute6}, withoutRoute()},
		{
			"a rule whose route is in another table",
			[]string{sluiceRule4, "-4 route add local default dev lo table 134"},
			withoutRoute(),
		},
		{
			"a rule whose table covers only a part of the addresses",
			[]string{sluiceRule4, "-4 route add local 10.0.0.0/8 dev lo table 133"},
			withoutRoute("ip -4 route local 10.0.0.0/8 dev lo table 133"),
		},
		{
			"a rule whose table has another default route",
			[]string{sluiceRule4, "-4 route add unreachable default table 133"},
			withoutRoute("ip -4 route unreachable default table 133"),
		},
		{
			"a rule whose local route is not on lo",
			join(addEth0, []string{sluiceRule4, "-4 route add local default dev eth0 table 133"}),
			withoutRoute("ip -4 route local default dev if8 table 133"),
		},
		{"a rule whose route has another metric", []string{
			sluiceRule6,
			"-6 route add local default dev lo metric 2000 table 133",
		}, rules.Routing{
			Unrouted: []rules.PolicyRoute{policy6},
			Others:   []string{"ip -6 route local default dev lo table 133 metric 2000"},
		}},
		{"a route without its rule", []string{istioRoute4, istioRoute6}, nothing},
		{
			"an additional rule at Sluice's priority with another mark and table",
			[]string{
				sluiceRule4, istioRoute4, "-4 rule add pref 133 fwmark 99 lookup 1000",
				"-4 route add local default dev lo table 1000",
			},
			rules.Routing{Policies: []rules.PolicyRoute{policy4, other}},
		},
		{"a rule with a protocol", []string{sluiceRule4 + " protocol static", istioRoute4}, onlyIPv4},
		{
			"a rule at another priority",
			[]string{istioRule4, istioRoute4, istioRule6, istioRoute6},
			nothing,
		},
		{
			"a rule at Sluice's priority with a mask",
			[]string{"-4 rule add pref 133 fwmark 1337/0xfff lookup 133", istioRoute4},
			rules.Routing{Policies: []rules.PolicyRoute{{
				Family: rules.IPv4, Mark: 1337, Mask: 0xfff, Table: 133, Priority: 133,
			}}},
		},
		{
			"a rule at Sluice's priority with a source",
			[]string{"-4 rule add pref 133 from 10.1.1.1 fwmark 1337 lookup 133", istioRoute4},
			onlyOthers("ip -4 rule priority 133 from 10.1.1.1/32 fwmark 0x539 lookup 133"),
		},
		{
			"a rule at Sluice's priority that is inverted",
			[]string{"-4 rule add pref 133 not fwmark 1337 lookup 133", istioRoute4},
			onlyOthers("ip -4 rule priority 133 not fwmark 0x539 lookup 133"),
		},
		{
			"a rule at Sluice's priority without a mark",
			[]string{"-4 rule add pref 133 lookup 133", istioRoute4},
			onlyOthers("ip -4 rule priority 133 lookup 133"),
		},
		{
			"a rule at Sluice's priority without a table",
			[]string{
				"-4 rule add pref 133 fwmark 1337 blackhole", "-4 route add local default dev lo",
			},
			onlyOthers("ip -4 rule priority 133 fwmark 0x539 blackhole"),
		},
		{
			"a rule at Sluice's priority with a destination and interfaces",
			[]string{"-4 rule add pref 133 to 10.0.0.0/8 iif lo oif lo lookup 133"},
			onlyOthers("ip -4 rule priority 133 to 10.0.0.0/8 iif lo oif lo lookup 133"),
		},
		{
			"other routes in the table, reported once although two rules look up the table",
			[]string{
				sluiceRule4, istioRoute4, "-4 rule add pref 133 fwmark 99 lookup 133",
				"-4 route add blackhole 10.0.0.0/8 table 133",
			},
			rules.Routing{
				Policies: []rules.PolicyRoute{
					policy4, {Family: rules.IPv4, Mark: 99, Table: 133, Priority: 133},
				},
				Others: []string{"ip -4 route blackhole 10.0.0.0/8 table 133"},
			},
		},
		{
			"a route through a gateway in the table",
			join(addEth0, []string{
				"address add 10.9.0.1/24 dev eth0", sluiceRule4, istioRoute4,
				"-4 route add 10.0.0.0/8 via 10.9.0.2 dev eth0 table 133",
			}),
			rules.Routing{
				Policies: []rules.PolicyRoute{policy4},
				Others:   []string{"ip -4 route unicast 10.0.0.0/8 via 10.9.0.2 dev if8 table 133"},
			},
		},
		{
			"a route through a gateway of the other family in the table",
			join(addEth0, []string{
				sluiceRule4, istioRoute4, "-4 route add 10.0.0.0/8 via inet6 fe80::1 dev eth0 table 133",
			}),
			rules.Routing{
				Policies: []rules.PolicyRoute{policy4},
				Others:   []string{"ip -4 route unicast 10.0.0.0/8 via inet6 fe80::1 dev if8 table 133"},
			},
		},
		{
			"routes in table 133 without a rule of Sluice",
			[]string{istioRule4, "-4 route add blackhole 10.0.0.0/8 table 133"},
			nothing,
		},
		{"::6 on another interface", join(addEth0, []string{"address add ::6/128 dev eth0"}), nothing},
		{
			"other addresses of lo",
			[]string{"address add ::7/128 dev lo", "address add 127.0.0.6/32 dev lo"},
			nothing,
		},
		{"::6 with a shorter prefix", []string{"address add ::6/64 dev lo"}, onlyPassthrough},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := netnstest.New(t)
			ip(t, n, tc.before...)
			checkRead(t, n, tc.want)
		})
	}
}

func TestReadAll(t *testing.T) {
	withPriority := func(p rules.PolicyRoute, priority int) rules.PolicyRoute {
		p.Priority = priority
		return p
	}
	for _, tc := range []struct {
		name   string
		before []string
		want   []rules.PolicyRoute
	}{
		{"a new namespace", nil, nil},
		{"a policy route of Sluice", []string{sluiceRule4, istioRoute4}, []rules.PolicyRoute{policy4}},
		{
			"a policy route of Istio at Istio's priority",
			[]string{"-4 rule add pref 32765 fwmark 1337 lookup 133", istioRoute4},
			[]rules.PolicyRoute{withPriority(policy4, 32765)},
		},
		{
			"two equal policy routes at different priorities",
			[]string{
				"-4 rule add pref 32765 fwmark 1337 lookup 133",
				"-4 rule add pref 32764 fwmark 1337 lookup 133", istioRoute4,
			},
			[]rules.PolicyRoute{withPriority(policy4, 32764)},
		},
		{
			"two policy routes",
			[]string{
				"-4 rule add pref 7 fwmark 1337 lookup 133", istioRoute4,
				"-4 rule add pref 8 fwmark 99 lookup 1000",
				"-4 route add local default dev lo table 1000",
			},
			[]rules.PolicyRoute{
				withPriority(policy4, 7), {Family: rules.IPv4, Mark: 99, Table: 1000, Priority: 8},
			},
		},
		{
			"a rule with a source",
			[]string{"-4 rule add from 10.1.1.1 fwmark 1337 lookup 133", istioRoute4},
			nil,
		},
		{"a rule without its route", []string{"-4 rule add fwmark 1337 lookup 133"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := netnstest.New(t)
			ip(t, n, tc.before...)
			got, err := route.ReadAll(n)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got.Policies); d != "" {
				t.Errorf("policy routes (-want +got):\n%s", d)
			}
		})
	}
}

func TestUnmodeled(t *testing.T) {
	n := netnstest.New(t)
	if got, err := route.Unmodeled(n); err != nil || len(got) > 0 {
		t.Errorf("in a new namespace: got %q, error %v, want no rules", got, err)
	}
	ip(t, n, sluiceRule4, istioRoute4,
		"-4 rule add pref 32765 fwmark 1337 lookup 133", // a duplicate has no effect
		"-4 rule add pref 5 fwmark 5 lookup 100", "-4 route add blackhole default table 100",
		"-4 rule add pref 6 to 192.0.2.9 lookup 133", "-6 rule add pref 7 iif lo lookup main",
	)
	want := []string{
		"ip -4 rule priority 5 fwmark 0x5 lookup 100",
		"ip -4 rule priority 6 to 192.0.2.9/32 lookup 133",
		"ip -6 rule priority 7 iif lo lookup 254",
	}
	got, err := route.Unmodeled(n)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("policy rules (-want +got):\n%s", d)
	}
}

func TestOverLoopback(t *testing.T) {
	n := netnstest.New(t)
	ip(t, n, "link set lo up", "addr add 10.1.1.1/32 dev lo", "-6 addr add ::6/128 dev lo",
		"-6 addr add fd00::1/128 dev lo", "link add eth0 index 9 type veth peer name peer", "link set peer up",
		"link set eth0 up", "addr add 10.244.1.5/24 dev eth0", "-6 addr add fd02::5/64 dev eth0 nodad",
		"-4 route add default via 10.244.1.1")
	// The kernel adds the route to an IPv6 address of lo asynchronously.
	if err := testbed.WaitUsable(n, "lo", rules.PassthroughIPv6()); err != nil {
		t.Fatal(err)
	}
	if got, err := route.OverLoopback(n); err != nil || len(got.OverLoopback) > 0 {
		t.Errorf("with addresses only: got %+v, error %v, want no routes", got, err)
	}
	ip(t, n, sluiceRule4, istioRoute4, "-4 route add 10.2.0.0/16 dev lo table 100",
		"-4 route add local 10.3.0.0/16 dev lo", "-4 route add 10.4.4.4 dev lo proto kernel",
		"-4 route add unreachable 10.5.0.0/16", "-6 addr add fd01::1/64 dev lo",
		"-4 route add local 10.6.0.0/16 dev eth0",
		"-4 route add 10.7.0.0/16 nexthop dev lo nexthop via 10.244.1.1")
	want := []string{
		"ip -4 route unicast 10.2.0.0/16 dev lo table 100",
		"ip -4 route unicast 10.4.4.4/32 dev lo table 254",
		"ip -4 route local 10.3.0.0/16 dev lo table 255",
		"ip -6 route unicast fd01::/64 dev lo table 254 metric 256",
		"ip -4 route local 10.6.0.0/16 dev if9 table 255",
		"ip -4 route unicast 10.7.0.0/16 nexthop dev lo nexthop via 10.244.1.1 dev if9 table 254",
	}
	found, err := route.OverLoopback(n)
	if err != nil {
		t.Fatal(err)
	}
	got := found.OverLoopback
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("routes (-want +got):\n%s", d)
	}
	ip(t, n, "-6 rule add pref 9 lookup local", "-6 rule del pref 0")
	if found, err = route.OverLoopback(n); err != nil || len(found.OverLoopback) != len(want) {
		t.Errorf("with the rule of the table local at another priority: got %+v, error %v, want %q", found, err, want)
	}
	ip(t, n, "-4 rule add pref 6 to 192.0.2.9 lookup 133", "-6 rule add pref 8 to 2001:db8::/32 lookup 133")
	want = append(want, "ip -4 route local default dev lo table 133",
		"ip -6 route local ::6/128 dev lo table 255")
	if found, err = route.OverLoopback(n); err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		if !slices.Contains(found.OverLoopback, w) {
			t.Errorf("with other policy rules: got %+v, want also %s", found, w)
		}
	}
}

// TestPassthroughSources adds routes with the source address of the proxy's connections to the
// application. Only routes over lo to other addresses give this source to the proxy's connections.
func TestPassthroughSources(t *testing.T) {
	n := netnstest.New(t)
	ip(t, n, "link set lo up", "link add eth0 index 9 type veth peer name peer", "link set peer up",
		"link set eth0 up", "addr add 10.244.1.5/24 dev eth0", "-6 addr add fd02::5/64 dev eth0 nodad",
		"addr add 127.0.0.6/8 dev lo", "-6 addr add ::6/128 dev lo nodad",
		"-4 route add 10.1.0.0/16 dev eth0 src 127.0.0.6", "-4 route add local 10.2.0.0/16 dev lo src 127.0.0.1")
	if err := testbed.WaitUsable(n, "lo", rules.PassthroughIPv6()); err != nil {
		t.Fatal(err)
	}
	if found, err := route.OverLoopback(n); err != nil || len(found.Passthrough) > 0 {
		t.Errorf("got %+v, error %v, want no routes", found.Passthrough, err)
	}
	ip(t, n, "-4 route replace local 10.244.1.5 dev eth0 table local src 127.0.0.6",
		"-4 route add 10.3.0.0/16 dev lo src 127.0.0.6", "-6 route add local fd03::1 dev lo table 100 src ::6")
	want := []route.Description{
		{Family: rules.IPv4, Text: "ip -4 route unicast 10.3.0.0/16 dev lo table 254 src 127.0.0.6"},
		{Family: rules.IPv4, Text: "ip -4 route local 10.244.1.5/32 dev if9 table 255 src 127.0.0.6"},
		{Family: rules.IPv6, Text: "ip -6 route local fd03::1/128 dev lo table 100 src ::6 metric 1024"},
	}
	found, err := route.OverLoopback(n)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(found.Passthrough, func(a, b route.Description) int {
		return strings.Compare(a.Text, b.Text)
	})
	slices.SortFunc(want, func(a, b route.Description) int { return strings.Compare(a.Text, b.Text) })
	if d := cmp.Diff(want, found.Passthrough); d != "" {
		t.Errorf("routes (-want +got):\n%s", d)
	}
}

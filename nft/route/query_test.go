package route_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// device returns a name of an interface.
func device(index int) string { return fmt.Sprintf("if%d", index) }

func TestFindUnsent(t *testing.T) {
	n := netnstest.New(t)
	addEth0WithAddresses(t, n)
	example := route.Query{Destination: netip.MustParseAddr("198.51.100.1"), UID: 7}
	if got, err := route.FindUnsent(n, example, device); err != nil || len(got) > 0 {
		t.Fatalf("in a namespace without such routes: %+v, error %v", got, err)
	}
	ip(t, n, "-4 rule add pref 5 from 10.244.1.0/24 lookup 77", "-4 rule add pref 6 uidrange 0-9 to 10.8.0.0/16 lookup 77",
		"-4 rule add pref 7 ipproto udp dport 53 prohibit", "-4 rule add pref 8 not to 10.1.0.0/16 blackhole",
		"-4 rule add pref 9 from 192.0.2.9 unreachable", "-4 rule add pref 10 nop",
		"-4 route add blackhole default table 77", "-4 route add throw 10.8.7.0/24 table 77",
		"-4 route add blackhole default table 78", "-4 route add local 10.7.0.0/16 dev lo table 78", "-4 rule add pref 11 to 10.7.1.0/24 lookup 78",
		"-4 route add 10.6.0.0/16 dev lo", "-4 route add blackhole 224.0.0.0/8", "-6 route add blackhole fd09::/16")
	with := func(change func(q *route.Query)) route.Query {
		q := example
		change(&q)
		return q
	}
	pod, to := netip.MustParseAddr("10.244.1.5"), netip.MustParseAddr
	want := []route.Unsent{
		{with(func(q *route.Query) { q.Protocol, q.Port = rules.UDP, 53 }), "ip -4 rule priority 7 ipproto udp dport 53 prohibit"},
		{example, "ip -4 rule priority 8 not to 10.1.0.0/16 blackhole"},
		{example, "ip -4 rule priority 9 from 192.0.2.9/32 unreachable"},
		{with(func(q *route.Query) { q.Source = pod }), "ip -4 route blackhole default table 77"},
		{with(func(q *route.Query) { q.Destination, q.UID = to("10.8.0.1"), 0 }), "ip -4 route blackhole default table 77"},
		{with(func(q *route.Query) { q.Destination, q.Source = to("10.8.7.1"), pod }), "ip -4 route throw 10.8.7.0/24 table 77"},
		{with(func(q *route.Query) { q.Destination, q.UID = to("10.8.7.1"), 0 }), "ip -4 route throw 10.8.7.0/24 table 77"},
		{with(func(q *route.Query) { q.Destination = to("10.7.1.1") }), "ip -4 route blackhole default table 78"},
		{with(func(q *route.Query) { q.Destination = to("10.7.1.1") }), "ip -4 route local 10.7.0.0/16 dev if1 table 78"},
		{with(func(q *route.Query) { q.Destination = to("10.6.0.1") }), "ip -4 route unicast 10.6.0.0/16 dev if1 table 254"},
	}
	got, err := route.FindUnsent(n, example, device)
	if d := cmp.Diff(want, got, compareAddrs); err != nil || d != "" {
		t.Errorf("error %v, routes and rules (-want +got):\n%s", err, d)
	}
}

// TestManyUnsent adds more routes that drop packets than FindUnsent returns, and more policy rules that
// look up their table than it considers.
func TestManyUnsent(t *testing.T) {
	n := netnstest.New(t)
	addEth0WithAddresses(t, n)
	var commands []string
	for i := range route.MaxUnsent + 20 {
		commands = append(commands, fmt.Sprintf("-4 route add blackhole 10.8.%d.0/24", i),
			fmt.Sprintf("-4 rule add pref %d lookup main", 100+i))
	}
	ip(t, n, commands...)
	got, err := route.FindUnsent(n, route.Query{Destination: netip.MustParseAddr("198.51.100.1")}, device)
	if err != nil || len(got) != route.MaxUnsent {
		t.Errorf("%d routes, error %v, want %d", len(got), err, route.MaxUnsent)
	}
}

func TestLookUp(t *testing.T) {
	n := netnstest.New(t)
	addEth0WithAddresses(t, n)
	ip(t, n, "-4 rule add pref 5 uidrange 7-7 to 10.8.0.0/16 prohibit", "-4 rule add pref 6 ipproto tcp dport 80 unreachable",
		"-6 route add default via fd02::1", "-6 route add blackhole fd09::/16")
	pod, pod6, to := netip.MustParseAddr("10.244.1.5"), netip.MustParseAddr("fd02::5"), netip.MustParseAddr
	want := []route.Answer{
		{
			Query: route.Query{Destination: to("10.8.0.1")}, Source: pod, Device: "if9",
			Text: "ip -4 route unicast 10.8.0.1/32 via 10.244.1.1 dev if9 table 254 src 10.244.1.5",
		},
		{Query: route.Query{Destination: to("10.8.0.1"), UID: 7}, Failure: unix.EACCES},
		{Query: route.Query{Destination: to("10.9.0.1"), Protocol: rules.TCP, Port: 80}, Failure: unix.ENETUNREACH},
		{
			Query: route.Query{Destination: pod, Source: pod}, IsLocal: true, Device: "if1",
			Text: "ip -4 route local 10.244.1.5/32 dev if1 table 255",
		},
		{
			Query: route.Query{Destination: to("fd08::1")}, Source: pod6, Device: "if9",
			Text: "ip -6 route unicast fd08::1/128 via fd02::1 dev if9 table 254 src fd02::5 metric 1024",
		},
		{Query: route.Query{Destination: to("fd09::1")}, Failure: unix.EINVAL},
	}
	var queries []route.Query
	for _, a := range want {
		queries = append(queries, a.Query)
	}
	got, err := route.LookUp(n, queries, device)
	if d := cmp.Diff(want, got, compareAddrs); err != nil || d != "" {
		t.Errorf("error %v, answers (-want +got):\n%s", err, d)
	}
}

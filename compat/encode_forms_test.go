package compat_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestKernelListsFormsThatCompileDoesNotUse writes rules with forms of matches and actions that
// compiled rulesets do not contain, in the oldest and the newest revision. The kernel must list the
// same rules.
func TestKernelListsFormsThatCompileDoesNotUse(t *testing.T) {
	for _, f := range istiotest.Families {
		first, last := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9")
		reject := rules.Reject{With: "icmp host-prohibited"}
		if f == rules.IPv6 {
			first, last = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::9")
			reject = rules.Reject{With: "icmpv6 admin-prohibited"}
		}
		ns := netnstest.New(t)
		for _, tc := range []struct {
			table, chain string
			match        rules.Match
			action       rules.Action
		}{
			{"raw", "PREROUTING", tcp, rules.Notrack{}},
			{"nat", "PREROUTING", tcp, rules.RedirectTo{}},
			{"nat", "PREROUTING", tcp, rules.RedirectTo{Port: 80, Last: 90}},
			{"nat", "PREROUTING", tcp, rules.DNATPort{Port: 80, Last: 90}},
			{"nat", "PREROUTING", tcp, rules.DNATTo{Addr: first}},
			{
				"nat", "PREROUTING", tcp,
				rules.DNATTo{Addr: first, LastAddr: last, Port: 80, Last: 90},
			},
			{"mangle", "PREROUTING", tcp, rules.SetMark{Value: 3, Mask: 1}},
			{
				"mangle", "PREROUTING", tcp,
				rules.MixMark{Conntrack: true, ConntrackMark: 0xff, Xor: 0x101},
			},
			{
				"mangle", "PREROUTING", tcp,
				rules.MixMark{Conntrack: true, ConntrackMark: 0xff, Mark: 15},
			},
			{"mangle", "PREROUTING", tcp, rules.MixMark{Mark: 0xff, ConntrackMark: 15}},
			{"mangle", "PREROUTING", tcp, rules.TProxyDrop{Addr: first, Value: 3, Mask: 1}},
			{"filter", "INPUT", tcp, reject},
			{"filter", "INPUT", tcp, rules.Reject{With: "tcp reset"}},
			{"filter", "INPUT", rules.MatchDirection{Reply: true}, rules.Drop},
			{
				"filter", "INPUT",
				rules.MatchStatus{Not: true, Status: rules.StatusAssured},
				rules.Drop,
			},
			{
				"filter", "INPUT",
				rules.MatchState{States: rules.States(rules.SNAT, rules.DNAT)},
				rules.Drop,
			},
		} {
			r := rule([]rules.Match{tc.match}, rules.Count{}, tc.action)
			table := must(xtables.Open(ns, f, tc.table))
			table.Chain(tc.chain).Rules = []xtables.Rule{
				must(compat.EncodeRule(f, &r)), must(compat.EncodeForKernel(f, &r)),
			}
			if err := xtables.Replace(ns, table); err != nil {
				t.Errorf("%s: %v", &r, err)
				continue
			}
			found := must(xtables.Read(ns, f, tc.table))
			for _, got := range compat.DecodeTable(found).Chain(tc.chain).Rules {
				if got.String() != r.String() {
					t.Errorf("got %s, want %s", &got, &r)
				}
			}
		}
	}
}

package route_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

func TestInSync(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before []string
		want   rules.Routing
		inSync bool
	}{
		{"no routing, in a new namespace", nil, nothing, true},
		{"::6 is missing", nil, onlyPassthrough, false},
		{"::6 exists", []string{istioPassthrough}, onlyPassthrough, true},
		{"::6 exists and is not wanted", []string{istioPassthrough}, nothing, false},
		{
			"::6 is on another interface", join(addEth0, []string{"address add ::6/128 dev eth0"}),
			onlyPassthrough, false,
		},
		{"::6 has a shorter prefix", []string{"address add ::6/64 dev lo"}, onlyPassthrough, true},
		{"lo has another address", []string{"address add ::7/128 dev lo"}, onlyPassthrough, false},
		{"an unwanted rule of Sluice", []string{sluiceRule4}, nothing, false},
		{"an unwanted IPv6 rule of Sluice", []string{istioPassthrough, sluiceRule6}, onlyPassthrough, false},
		{
			"Istio's rules are not Sluice's",
			[]string{istioRule4, istioRule6, istioRoute4},
			nothing,
			true,
		},
		{"a policy route exists", []string{sluiceRule4, istioRoute4}, onlyIPv4, true},
		{
			"policy routes of both families and ::6 exist",
			[]string{sluiceRule6, sluiceRule4, istioRoute6, istioRoute4, istioPassthrough},
			everything, true,
		},
		{
			"the rule exists with a protocol",
			[]string{sluiceRule4 + " protocol static", istioRoute4},
			onlyIPv4, true,
		},
		{
			"the rule exists in addition to Istio's with the same mark and table",
			[]string{istioRule4, sluiceRule4, istioRoute4},
			onlyIPv4, true,
		},
		{
			"the route exists in addition to another route of the table",
			[]string{sluiceRule4, istioRoute4, "-4 route add blackhole 10.0.0.0/8 table 133"},
			onlyIPv4, true,
		},
		{
			"the rule exists in addition to another rule of Sluice",
			[]string{sluiceRule4, istioRoute4, "-4 rule add pref 133 fwmark 99 lookup 133"},
			onlyIPv4,
			false,
		},
		{
			"the rule of one family is missing",
			[]string{sluiceRule4, istioRoute4, istioRoute6, istioPassthrough},
			everything, false,
		},
		{
			"::6 is missing, the policy routes exist",
			[]string{sluiceRule6, sluiceRule4, istioRoute6, istioRoute4},
			everything, false,
		},
		{"the rule is missing", []string{istioRoute4}, onlyIPv4, false},
		{"the rule has Istio's priority", []string{istioRule4, istioRoute4}, onlyIPv4, false},
		{
			"the rule has another mark",
			[]string{"-4 rule add pref 133 fwmark 1336 lookup 133", istioRoute4},
			onlyIPv4, false,
		},
		{
			"the rule looks up another table",
			[]string{"-4 rule add pref 133 fwmark 1337 lookup 134", istioRoute4},
			onlyIPv4, false,
		},
		{
			"the rule has a mask",
			[]string{"-4 rule add pref 133 fwmark 1337/0xfff lookup 133", istioRoute4},
			onlyIPv4,
			false,
		},
		{
			"the rule has the wanted mask",
			[]string{
				"-4 rule add pref 133 fwmark 0x111/0xfff lookup 100",
				"-4 route add local default dev lo table 100",
			},
			maskedPolicy, true,
		},
		{
			"the rule has another mask than the wanted one",
			[]string{
				"-4 rule add pref 133 fwmark 0x111/0xffff lookup 100",
				"-4 route add local default dev lo table 100",
			},
			maskedPolicy, false,
		},
		{
			"the rule has a source",
			[]string{"-4 rule add pref 133 from 10.1.1.1 fwmark 1337 lookup 133", istioRoute4},
			onlyIPv4, false,
		},
		{
			"the rule has an interface",
			[]string{"-4 rule add pref 133 iif lo fwmark 1337 lookup 133", istioRoute4},
			onlyIPv4,
			false,
		},
		{
			"the rule is inverted",
			[]string{"-4 rule add pref 133 not fwmark 1337 lookup 133", istioRoute4},
			onlyIPv4,
			false,
		},
		{
			"the rule suppresses default routes",
			[]string{
				"-4 rule add pref 133 fwmark 1337 lookup 133 suppress_prefixlength 0", istioRoute4,
			},
			onlyIPv4, false,
		},
		{"the table is empty", []string{sluiceRule4}, onlyIPv4, false},
		{
			"the table has a default route of another type",
			[]string{sluiceRule4, "-4 route add unreachable default table 133"},
			onlyIPv4, false,
		},
		{
			"the route covers only a part of the addresses",
			[]string{sluiceRule4, "-4 route add local 10.0.0.0/8 dev lo table 133"},
			onlyIPv4, false,
		},
		{
			"the route has a type of service",
			[]string{sluiceRule4, "-4 route add local default dev lo tos 0x10 table 133"},
			onlyIPv4,
			false,
		},
		{
			"the route is in another table",
			[]string{sluiceRule4, "-4 route add local default dev lo table 134"},
			onlyIPv4, false,
		},
		{"the route is of the other family", []string{sluiceRule4, istioRoute6}, onlyIPv4, false},
		{
			"the route is not on lo",
			join(addEth0, []string{sluiceRule4, "-4 route add local default dev eth0 table 133"}),
			onlyIPv4, false,
		},
		{
			"the IPv6 route has another metric",
			[]string{
				sluiceRule4, istioRoute4, istioPassthrough, sluiceRule6,
				"-6 route add local default dev lo metric 2000 table 133",
			},
			everything, false,
		},
		{"more rules than fit into one datagram", manyRules(200), nothing, true},
		{
			"a rule of Sluice after many foreign rules", join(manyRules(200), []string{sluiceRule6}), nothing,
			false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := netnstest.New(t)
			ip(t, n, tc.before...)
			before := state(t, n)
			var inSync bool
			if err := n.Do(func() error { inSync = route.InSync(tc.want); return nil }); err != nil {
				t.Fatal(err)
			}
			if inSync != tc.inSync {
				t.Errorf("InSync returns %t, want %t", inSync, tc.inSync)
			}
			checkState(t, n, before...)
			if !inSync {
				return
			}
			found, err := route.Read(n)
			if err != nil || !slices.Equal(found.Policies, tc.want.Policies) ||
				!slices.Equal(found.LoopbackAddrs, tc.want.LoopbackAddrs) {
				t.Errorf("InSync returns true, but Read returns %+v, error %v", found, err)
			}
			if stale, err := route.Find(n, tc.want); err != nil || len(stale) > 0 {
				t.Errorf("InSync returns true, but Find returns %q, error %v", stale, err)
			}
		})
	}
}

// manyRules returns commands that add n foreign policy rules.
func manyRules(n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf("-%d rule add pref 200 fwmark %d lookup 1000", 4+i%2*2, i+1)
	}
	return lines
}

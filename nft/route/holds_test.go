package route_test

import (
	"fmt"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

func TestHolds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before []string
		want   rules.Routing
		holds  bool
	}{
		{"nothing, in a new namespace", nil, nothing, true},
		{"::6 is not there", nil, onlySix, false},
		{"::6 is there", []string{istioSix}, onlySix, true},
		{"::6 is there and not wanted", []string{istioSix}, nothing, false},
		{"::6 is on another interface", join(eth0, []string{"address add ::6/128 dev eth0"}), onlySix, false},
		{"::6 has a shorter prefix", []string{"address add ::6/64 dev lo"}, onlySix, true},
		{"lo has another address", []string{"address add ::7/128 dev lo"}, onlySix, false},
		{"a rule of ours is not wanted", []string{"-4 rule add pref 133 fwmark 1337 lookup 133"}, nothing, false},
		{"an IPv6 rule of ours is not wanted", []string{istioSix, "-6 rule add pref 133 fwmark 1337 lookup 133"}, onlySix, false},
		{"Istio's rules are not ours", []string{istioRule4, istioRule6, istioRoute4}, nothing, true},
		{"policy routes are left to Ensure", []string{"-4 rule add pref 133 fwmark 1337 lookup 133", istioRoute4}, onlyIPv4, false},
		{"more rules than fit into one answer", manyRules(200), nothing, true},
		{"a rule of ours behind many others", join(manyRules(200), []string{"-6 rule add pref 133 fwmark 1337 lookup 133"}), nothing, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := netnstest.New(t)
			ip(t, n, tc.before...)
			before := state(t, n)
			var holds bool
			if err := n.Do(func() error { holds = route.Holds(tc.want); return nil }); err != nil {
				t.Fatal(err)
			}
			if holds != tc.holds {
				t.Errorf("%v, want %v", holds, tc.holds)
			}
			wantState(t, n, before...)
			if change := ensure(t, n, tc.want); holds && (!change.Empty() || change.Stale()) {
				t.Errorf("Ensure thinks otherwise: added %d, stale %v", change.Len(), change.Stale())
			}
		})
	}
}

// manyRules adds policy rules that are not ours.
func manyRules(n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf("-%d rule add pref 200 fwmark %d lookup 1000", 4+i%2*2, i+1)
	}
	return lines
}

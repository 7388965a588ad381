package route_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

func TestPrune(t *testing.T) {
	const (
		other4 = "-4 rule 133 from all fwmark 0x63 lookup 1000"
		// The kernel gives a rule without a priority the priority of the second rule minus 1
		// (fib_default_rule_pref). The first rule looks up table local.
		istio4 = "-4 rule 132 from all fwmark 0x539 lookup 133"
	)
	for _, tc := range []struct {
		name      string
		have      rules.Routing // added by Ensure
		before    []string      // commands of ip, after Ensure
		keep      rules.Routing
		removed   int
		remaining []string
	}{
		{"an empty namespace", nothing, nil, nothing, 0, nil},
		{"everything is removed", everything, nil, nothing, 5, nil},
		{"everything is kept", everything, nil, everything, 0, join(state4, state6, statePassthrough)},
		{"one family is kept", everything, nil, onlyIPv4, 3, state4},
		{"::6 is kept", everything, nil, onlyPassthrough, 4, statePassthrough},
		{
			"another mark and table are removed", onlyIPv4,
			[]string{
				"-4 rule add pref 133 fwmark 99 lookup 1000",
				"-4 route add local default dev lo table 1000",
			},
			onlyIPv4, 2, state4,
		},
		{
			"another mark is removed, the route that the kept mark uses remains", onlyIPv4,
			[]string{"-4 rule add pref 133 fwmark 99 lookup 133"},
			onlyIPv4, 1, state4,
		},
		{
			"two marks of one table are removed, the route once", onlyIPv4,
			[]string{"-4 rule add pref 133 fwmark 99 lookup 133"},
			nothing, 3, nil,
		},
		{
			"a rule without its route is removed", nothing,
			[]string{"-4 rule add pref 133 fwmark 99 lookup 1000"},
			nothing, 1, nil,
		},
		{
			"a route whose rule is kept remains", nothing,
			[]string{istioRoute4, "-4 rule add pref 133 fwmark 99 lookup 133"},
			onlyIPv4, 1, state4[1:],
		},
		{
			"a route that a rule of Istio uses remains", onlyIPv4,
			[]string{istioRule4},
			nothing, 1,
			[]string{istio4, state4[1]},
		},
		{
			"a route that any foreign rule uses remains", onlyIPv4,
			[]string{"-4 rule add pref 10 from 10.0.0.1 lookup 133"},
			nothing, 1,
			[]string{"-4 rule 10 from 10.0.0.1 lookup 133", state4[1]},
		},
		{
			"a rule of the other family does not use the route", onlyIPv4,
			[]string{istioRule6},
			nothing, 2,
			[]string{"-6 rule 32765 from all fwmark 0x539 lookup 133"},
		},
		{
			"a foreign route without a rule is kept", nothing,
			[]string{istioRoute4},
			nothing, 0,
			state4[1:],
		},
		{
			"a foreign route in Sluice's table remains", nothing,
			[]string{
				"-4 rule add pref 133 fwmark 99 lookup 1000",
				"-4 route add unreachable default table 1000",
			},
			nothing, 1,
			[]string{"-4 route unreachable default table 1000"},
		},
		{
			"a foreign IPv6 route remains, although the kernel would remove it instead of Sluice's",
			nothing,
			[]string{
				"-6 rule add pref 133 fwmark 99 lookup 1000",
				"-6 route add unreachable default metric 1024 table 1000",
			},
			nothing, 1,
			[]string{"-6 route unreachable default dev lo table 1000"},
		},
		{
			"a rule with other selectors at Sluice's priority remains", onlyIPv4,
			[]string{"-4 rule add pref 133 from 10.0.0.1 fwmark 99 lookup 1000"},
			onlyIPv4, 0,
			[]string{
				state4[0], "-4 rule 133 from 10.0.0.1 fwmark 0x63 lookup 1000", state4[1],
			},
		},
		{
			"an additional rule with a mask is removed", onlyIPv4,
			[]string{"-4 rule add pref 133 fwmark 99/0xff lookup 1000"},
			onlyIPv4, 1, state4,
		},
		{
			"a kept rule without its route remains", nothing,
			[]string{"-4 rule add pref 133 fwmark 99 lookup 1000"},
			rules.Routing{Policies: []rules.PolicyRoute{{
				Family: rules.IPv4, Mark: 99, Table: 1000, Priority: 133,
			}}},
			0,
			[]string{other4},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := netnstest.New(t)
			mustEnsure(t, n, tc.have)
			ip(t, n, tc.before...)
			before := state(t, n)
			found, err := route.Find(n, tc.keep)
			if err != nil || len(found) != tc.removed {
				t.Errorf("found %q, error %v, want %d objects", found, err, tc.removed)
			}
			checkState(t, n, before...)
			removed, err := route.Prune(n, tc.keep)
			if err != nil || removed != tc.removed {
				t.Errorf("removed %d objects, error %v, want %d", removed, err, tc.removed)
			}
			checkState(t, n, tc.remaining...)
			if removed, err := route.Prune(n, tc.keep); err != nil || removed != 0 {
				t.Errorf("a second Prune removed %d objects, error %v, want 0", removed, err)
			}
		})
	}
}

// TestARuleThatPrecedesIsNotRemovedInstead covers a foreign rule with all selectors of Sluice's
// rule and one more. Of such rules the kernel always removes the first one.
func TestARuleThatPrecedesIsNotRemovedInstead(t *testing.T) {
	const foreign = "-4 rule 133 from 10.0.0.1 fwmark 0x539 lookup 133"
	n := netnstest.New(t)
	ip(t, n, "-4 rule add pref 133 from 10.0.0.1 fwmark 1337 lookup 133")
	change, err := route.Ensure(n, onlyIPv4)
	if err != nil {
		t.Fatal(err)
	}
	const want = `remove policy rule "ip -4 rule priority 133 fwmark 0x539 lookup 133": ` +
		`the kernel would remove "ip -4 rule priority 133 from 10.0.0.1/32 fwmark 0x539 lookup 133", ` +
		`which precedes it; remove that rule first`
	if err := change.Undo(); err == nil || err.Error() != want {
		t.Errorf("Undo: error %v, want %s", err, want)
	}
	if removed, err := route.Prune(n, nothing); removed != 0 || err == nil || err.Error() != want {
		t.Errorf("Prune removed %d objects, error %v, want 0 and %s", removed, err, want)
	}
	checkState(t, n, foreign, state4[0])
	ip(t, n, "-4 rule del pref 133 from 10.0.0.1 fwmark 1337 lookup 133")
	if removed, err := route.Prune(n, nothing); removed != 1 || err != nil {
		t.Errorf("Prune removed %d objects, error %v, want 1", removed, err)
	}
	checkState(t, n)
}

func TestPruneIstio(t *testing.T) {
	const (
		rule4  = `policy rule "ip -4 rule priority 32765 fwmark 0x539 lookup 133"`
		route4 = `route "ip -4 route local default dev lo table 133"`
		route6 = `route "ip -6 route local default dev lo table 133"`
		addr   = `address "ip -6 address ::6 dev lo"`
	)
	for _, tc := range []struct {
		name      string
		have      rules.Routing
		before    []string
		keep      rules.Routing
		removed   []string
		remaining []string
	}{
		{"an empty namespace", nothing, nil, nothing, nil, nil},
		{"::6 of redirect mode is removed", nothing, []string{istioPassthrough}, nothing, []string{addr}, nil},
		{
			"three rules of each family, from three runs of istio-iptables, are removed", nothing,
			[]string{
				istioRoute4, istioRule4, istioRule4, istioRule4, istioRoute6, istioRule6,
				istioRule6, istioRule6, istioPassthrough,
			},
			nothing,
			[]string{
				route4, route6,
				`policy rule "ip -4 rule priority 32763 fwmark 0x539 lookup 133"`,
				`policy rule "ip -4 rule priority 32764 fwmark 0x539 lookup 133"`, rule4,
				`policy rule "ip -6 rule priority 32763 fwmark 0x539 lookup 133"`,
				`policy rule "ip -6 rule priority 32764 fwmark 0x539 lookup 133"`,
				`policy rule "ip -6 rule priority 32765 fwmark 0x539 lookup 133"`, addr,
			},
			nil,
		},
		{
			"a route without a rule is removed", nothing,
			[]string{istioRoute4, istioRoute6},
			nothing,
			[]string{route4, route6},
			nil,
		},
		{
			"a route with another metric remains", nothing,
			[]string{istioRoute6, "-6 route add local default dev lo metric 5 table 133"},
			nothing,
			[]string{route6},
			state6[1:],
		},
		{
			"a rule of Sluice that is not kept is removed too", onlyIPv4, nil, nothing,
			[]string{route4, `policy rule "ip -4 rule priority 133 fwmark 0x539 lookup 133"`},
			nil,
		},
		{
			"a kept rule of Sluice remains, with the route that Istio shares", everything,
			[]string{istioRule4},
			everything,
			[]string{`policy rule "ip -4 rule priority 132 fwmark 0x539 lookup 133"`},
			join(state4, state6, statePassthrough),
		},
		{
			"a route that a rule with another mark uses remains", nothing,
			[]string{istioRoute4, istioRule4, "-4 rule add pref 10 fwmark 99 lookup 133"},
			nothing,
			[]string{rule4},
			[]string{"-4 rule 10 from all fwmark 0x63 lookup 133", state4[1]},
		},
		{
			"rules with other marks, tables and selectors remain", nothing,
			[]string{
				"-4 rule add pref 1 fwmark 99 lookup 133",
				"-4 rule add pref 2 fwmark 1337 lookup 134",
				"-4 rule add pref 3 fwmark 1337/0xfff lookup 133",
				"-4 rule add pref 4 fwmark 1337 iif lo lookup 133",
			},
			nothing, nil,
			[]string{
				"-4 rule 1 from all fwmark 0x63 lookup 133",
				"-4 rule 2 from all fwmark 0x539 lookup 134",
				"-4 rule 3 from all fwmark 0x539/0xfff lookup 133",
				"-4 rule 4 from all fwmark 0x539 iif lo lookup 133",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := netnstest.New(t)
			mustEnsure(t, n, tc.have)
			ip(t, n, tc.before...)
			removed, err := route.PruneIstio(n, istioPolicy, tc.keep)
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tc.removed, removed, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("removed objects (-want +got):\n%s", diff)
			}
			checkState(t, n, tc.remaining...)
		})
	}
}

func TestPruneIstioOfAmbientMode(t *testing.T) {
	n := netnstest.New(t)
	ip(t, n, "-4 route add local default dev lo table 100",
		"-4 rule add pref 32764 fwmark 0x111/0xfff lookup 100",
		"-4 rule add pref 5 fwmark 0x111 lookup 100")
	removed, err := route.PruneIstio(n, rules.PolicyRoute{
		Mark: rules.AmbientMark, Mask: rules.AmbientMarkMask, Table: rules.AmbientRouteTable,
	}, nothing)
	if err != nil {
		t.Error(err)
	}
	want := []string{`policy rule "ip -4 rule priority 32764 fwmark 0x111/0xfff lookup 100"`}
	if diff := cmp.Diff(want, removed); diff != "" {
		t.Errorf("removed objects (-want +got):\n%s", diff)
	}
}

// istioPolicy is the policy route that istio-iptables adds by default.
var istioPolicy = rules.PolicyRoute{Mark: 1337, Table: 133}

func TestFindIstioFindsWhatPruneIstioRemoves(t *testing.T) {
	for _, tc := range []struct {
		name   string
		have   rules.Routing
		before []string
		keep   rules.Routing
		found  []string
	}{
		{"an empty namespace", nothing, nil, nothing, nil},
		{"Sluice's routing is not Istio's", everything, nil, nothing, nil},
		{
			"a route that both rules use is Istio's", everything,
			[]string{istioRule4},
			nothing,
			[]string{
				`route "ip -4 route local default dev lo table 133"`,
				`policy rule "ip -4 rule priority 132 fwmark 0x539 lookup 133"`,
			},
		},
		{
			"a route that both rules use with different marks is Istio's", nothing,
			[]string{istioRoute4, "-4 rule add pref 133 fwmark 99 lookup 133", istioRule4},
			nothing,
			[]string{
				`route "ip -4 route local default dev lo table 133"`,
				`policy rule "ip -4 rule priority 132 fwmark 0x539 lookup 133"`,
			},
		},
		{
			"kept routing is not found", everything,
			[]string{istioRule4, istioRule6},
			everything,
			[]string{
				`policy rule "ip -4 rule priority 132 fwmark 0x539 lookup 133"`,
				`policy rule "ip -6 rule priority 132 fwmark 0x539 lookup 133"`,
			},
		},
		{
			"without Sluice's routing everything is found except ::6, which Prune removes", nothing,
			[]string{istioRoute6, istioRule6, istioPassthrough},
			onlyIPv4,
			[]string{
				`route "ip -6 route local default dev lo table 133"`,
				`policy rule "ip -6 rule priority 32765 fwmark 0x539 lookup 133"`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := netnstest.New(t)
			mustEnsure(t, n, tc.have)
			ip(t, n, tc.before...)
			before := state(t, n)
			found, err := route.FindIstio(n, istioPolicy, tc.keep)
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tc.found, found, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("found objects (-want +got):\n%s", diff)
			}
			checkState(t, n, before...)
			if _, err := route.Prune(n, tc.keep); err != nil {
				t.Fatal(err)
			}
			removed, err := route.PruneIstio(n, istioPolicy, tc.keep)
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(found, removed, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("objects of Istio (-found +removed):\n%s", diff)
			}
		})
	}
}

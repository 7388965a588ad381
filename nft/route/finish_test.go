package route_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// sluiceRules describes the rules of Sluice that a change finds in the namespace.
type sluiceRules struct {
	exist     bool          // before the change
	remaining []rules.Table // after a failed change
}

// changeWithRoutes changes rules and their routes in the namespace of the thread, like nft.Apply.
// change changes the rules.
func changeWithRoutes(
	want rules.Routing, exclusive bool, change func() (sluiceRules, error),
) (changed int, err error) {
	added, err := route.Ensure(nil, want)
	if err != nil {
		return 0, err
	}
	found, err := change()
	switch {
	case err == nil:
		return added.Finish(found.exist, exclusive)
	case exclusive:
		err = errors.Join(err, added.Rollback(found.remaining))
	}
	return 0, err
}

func TestRoutesOfAChange(t *testing.T) {
	const other4 = "-4 rule add pref 133 fwmark 99 lookup 133"
	refused := errors.New("refused")
	rule := func(m rules.Match, a rules.Action) []rules.Table {
		return []rules.Table{{Chains: []rules.Chain{{Rules: []rules.Rule{{
			Matches: []rules.Match{m}, Actions: []rules.Action{a},
		}}}}}}
	}
	matchIPv6 := rules.MatchAddr{Ranges: rules.AddrRanges([]netip.Prefix{netip.PrefixFrom(rules.PassthroughIPv6(), 128)})}
	tcp := rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}
	for _, tc := range []struct {
		name   string
		before []string
		want   rules.Routing
		// withoutLock is set if the caller does not hold the lock of the namespace.
		withoutLock bool
		// found and err are the results of the change of rules.
		found sluiceRules
		err   error
		// changed is the number of changed objects, and state the resulting routing.
		changed int
		state   []string
	}{
		{
			"missing routing is added", nil, everything, false,
			sluiceRules{},
			nil, 5,
			join(state4, state6, statePassthrough),
		},
		{
			"existing routing is not changed",
			[]string{sluiceRule4, istioRoute4},
			onlyIPv4, false,
			sluiceRules{exist: true},
			nil, 0, state4,
		},
		{
			"objects that are no longer needed are removed",
			[]string{sluiceRule4, istioRoute4, istioPassthrough},
			nothing, false,
			sluiceRules{exist: true},
			nil, 3, nil,
		},
		{
			"without rules of Sluice, ::6 is kept, because it may be Istio's",
			[]string{sluiceRule4, istioRoute4, istioPassthrough},
			nothing, false,
			sluiceRules{},
			nil, 2, statePassthrough,
		},
		{
			"a policy route of another mark is replaced",
			[]string{other4, istioRoute4},
			onlyIPv4,
			false,
			sluiceRules{exist: true},
			nil, 2, state4,
		},
		{"a change that fails leaves no routes", nil, everything, false, sluiceRules{}, refused, 0, nil},
		{
			"a change that fails keeps existing routes",
			[]string{sluiceRule4, istioRoute4},
			everything, false,
			sluiceRules{},
			refused, 0, state4,
		},
		{
			"a change that fails keeps unwanted routes",
			[]string{sluiceRule4, istioRoute4, istioPassthrough},
			nothing, false,
			sluiceRules{},
			refused, 0, join(state4, statePassthrough),
		},
		{
			"a change that fails without the lock keeps its routes", nil, everything, true,
			sluiceRules{},
			refused, 0, join(state4, state6, statePassthrough),
		},
		{
			"a failed change keeps routing that remaining tproxy rules may use",
			nil, everything, false,
			sluiceRules{remaining: rule(tcp, rules.TProxy{Port: 15006})},
			refused, 0, join(state4, state6),
		},
		{
			"a failed change keeps routing that remaining rules of iptables-legacy may use",
			nil, everything, false,
			sluiceRules{remaining: rule(tcp, rules.TProxyDrop{Port: 15006})},
			refused, 0, join(state4, state6),
		},
		{
			"a failed change keeps ::6 if IPv6 rules remain",
			nil, everything, false,
			sluiceRules{remaining: rule(matchIPv6, rules.Return)},
			refused, 0, statePassthrough,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := netnstest.New(t)
			ip(t, n, tc.before...)
			var changed int
			err := n.Do(func() (err error) {
				changed, err = changeWithRoutes(tc.want, !tc.withoutLock, func() (sluiceRules, error) {
					return tc.found, tc.err
				})
				return err
			})
			if !errors.Is(err, tc.err) || changed != tc.changed {
				t.Errorf("changed %d objects, error %v; want %d, error %v", changed, err,
					tc.changed, tc.err)
			}
			checkState(t, n, tc.state...)
		})
	}
}

// TestFinishAddsRemovedRoutesAgain removes routes during the change, like another process while the
// caller does not hold the lock.
func TestFinishAddsRemovedRoutesAgain(t *testing.T) {
	n := netnstest.New(t)
	err := n.Do(func() error {
		_, err := changeWithRoutes(everything, false, func() (sluiceRules, error) {
			_, err := route.Prune(nil, nothing)
			return sluiceRules{}, err
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	checkState(t, n, join(state4, state6, statePassthrough)...)
}

// TestFailedFinishCountsSuccessfulSteps checks that Finish returns an error for failed steps,
// together with the number of changed objects.
func TestFailedFinishCountsSuccessfulSteps(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before []string
		want   rules.Routing
		// withoutLock is set if the caller does not hold the lock of the namespace.
		withoutLock bool
		// during makes Finish fail. It is called during the change of rules.
		during  func(t *testing.T, n *netns.NS) (restore func())
		text    string
		changed int
		state   []string
	}{
		{
			"old routes cannot be removed",
			[]string{istioPassthrough},
			onlyIPv4, false,
			func(t *testing.T, _ *netns.NS) func() { return dropNetAdmin(t) },
			"the rules are in place, but not all old routes are removed: ",
			2, join(state4, statePassthrough),
		},
		{
			"a route that conflicts with a foreign one cannot be added again",
			nil, onlyIPv4, true,
			func(t *testing.T, n *netns.NS) func() {
				ip(t, n, "-4 route del local default dev lo table 133",
					"-4 route add unreachable default table 133")
				return func() {}
			},
			"the rules are in place, but not all of their routes: ",
			2,
			[]string{state4[0], "-4 route unreachable default table 133"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := netnstest.New(t)
			ip(t, n, tc.before...)
			var changed int
			err := n.Do(func() (err error) {
				restore := func() {}
				defer func() { restore() }()
				changed, err = changeWithRoutes(tc.want, !tc.withoutLock, func() (sluiceRules, error) {
					restore = tc.during(t, n)
					return sluiceRules{exist: true}, nil
				})
				return err
			})
			if err == nil || !strings.HasPrefix(err.Error(), tc.text) || changed != tc.changed {
				t.Errorf("changed %d objects, error %v; want %d, error %q", changed, err,
					tc.changed, tc.text)
			}
			checkState(t, n, tc.state...)
		})
	}
}

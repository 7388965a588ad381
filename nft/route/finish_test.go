package route_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// found describes the rules of Sluice before a change.
type found struct {
	Any  bool          // before the change
	Stay []rules.Table // after a change that failed
}

// around changes rules and their routes in the namespace of the thread.
func around(
	want rules.Routing, exclusive bool, change func() (found, error),
) (changed int, err error) {
	added, err := route.Ensure(nil, want)
	if err != nil {
		return 0, err
	}
	found, err := change()
	switch {
	case err == nil:
		return added.Finish(found.Any, exclusive)
	case exclusive:
		err = errors.Join(err, added.Rollback(found.Stay))
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
	ofIPv6 := rules.MatchAddr{Ranges: rules.AddrRanges([]netip.Prefix{netip.PrefixFrom(rules.PassthroughIPv6(), 128)})}
	tcp := rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}
	for _, tc := range []struct {
		name   string
		before []string
		want   rules.Routing
		shared bool // not exclusive
		found  found
		err    error
		// changed is the result of Finish, and state the resulting routing.
		changed int
		state   []string
	}{
		{
			"missing routing is added", nil, everything, false,
			found{},
			nil, 5,
			join(state4, state6, stateSix),
		},
		{
			"existing routing is not changed",
			[]string{ourRule4, istioRoute4},
			onlyIPv4, false,
			found{Any: true},
			nil, 0, state4,
		},
		{
			"objects that are no longer needed are removed",
			[]string{ourRule4, istioRoute4, istioSix},
			nothing, false,
			found{Any: true},
			nil, 3, nil,
		},
		{
			"without rules of Sluice, ::6 may be Istio's",
			[]string{ourRule4, istioRoute4, istioSix},
			nothing, false,
			found{},
			nil, 2, stateSix,
		},
		{
			"a policy route of another mark is replaced",
			[]string{other4, istioRoute4},
			onlyIPv4,
			false,
			found{Any: true},
			nil, 2, state4,
		},
		{"a change that fails leaves no routes", nil, everything, false, found{}, refused, 0, nil},
		{
			"a change that fails keeps existing routes",
			[]string{ourRule4, istioRoute4},
			everything, false,
			found{},
			refused, 0, state4,
		},
		{
			"a change that fails keeps unwanted routes",
			[]string{ourRule4, istioRoute4, istioSix},
			nothing, false,
			found{},
			refused, 0, join(state4, stateSix),
		},
		{
			"a change that fails without the lock keeps its routes", nil, everything, true,
			found{},
			refused, 0, join(state4, state6, stateSix),
		},
		{
			"a failed change keeps routing that remaining tproxy rules may use",
			nil, everything, false,
			found{Stay: rule(tcp, rules.TProxy{Port: 15006})},
			refused, 0, join(state4, state6),
		},
		{
			"a failed change keeps routing that remaining rules of iptables-legacy may use",
			nil, everything, false,
			found{Stay: rule(tcp, rules.TProxyDrop{Port: 15006})},
			refused, 0, join(state4, state6),
		},
		{
			"a failed change keeps ::6 if IPv6 rules remain",
			nil, everything, false,
			found{Stay: rule(ofIPv6, rules.Return)},
			refused, 0, stateSix,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := netnstest.New(t)
			ip(t, n, tc.before...)
			var changed int
			err := n.Do(func() (err error) {
				changed, err = around(tc.want, !tc.shared, func() (found, error) {
					return tc.found, tc.err
				})
				return err
			})
			if !errors.Is(err, tc.err) || changed != tc.changed {
				t.Errorf("changed %d, %v, want %d, %v", changed, err, tc.changed, tc.err)
			}
			wantState(t, n, tc.state...)
		})
	}
}

// TestFinishAddsRemovedRoutesAgain removes routes during the change, like a process that does not
// take the lock.
func TestFinishAddsRemovedRoutesAgain(t *testing.T) {
	n := netnstest.New(t)
	err := n.Do(func() error {
		_, err := around(everything, false, func() (found, error) {
			_, err := route.Prune(nil, nothing)
			return found{}, err
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wantState(t, n, join(state4, state6, stateSix)...)
}

// TestFinishThatFails checks that Finish returns an error for failed steps and counts the
// successful ones.
func TestFinishThatFails(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before []string
		want   rules.Routing
		shared bool // not exclusive
		// during makes Finish fail.
		during  func(t *testing.T, n *netns.NS) (restore func())
		text    string
		changed int
		state   []string
	}{
		{
			"old routes cannot be removed",
			[]string{istioSix},
			onlyIPv4, false,
			func(t *testing.T, _ *netns.NS) func() { return dropNetAdmin(t) },
			"the rules are in place, but not all old routes are removed: ",
			2, join(state4, stateSix),
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
				changed, err = around(tc.want, !tc.shared, func() (found, error) {
					restore = tc.during(t, n)
					return found{Any: true}, nil
				})
				return err
			})
			if err == nil || !strings.HasPrefix(err.Error(), tc.text) || changed != tc.changed {
				t.Errorf("changed %d, %v, want %d, %q", changed, err, tc.changed, tc.text)
			}
			wantState(t, n, tc.state...)
		})
	}
}

func TestEnsureThatFailsBeforeTheChange(t *testing.T) {
	n := netnstest.New(t)
	ip(t, n, "-4 route add unreachable default table 133")
	err := n.Do(func() error {
		_, err := around(onlyIPv4, true, func() (found, error) {
			t.Error("called")
			return found{}, nil
		})
		return err
	})
	if err == nil {
		t.Error("no error")
	}
	if errors.Is(err, unix.EEXIST) {
		t.Errorf("%v, want the conflicting route", err)
	}
}

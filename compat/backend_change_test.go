package compat_test

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

func TestApplyMovesRulesToTheOtherBackend(t *testing.T) {
	for _, tc := range []struct {
		name          string
		before, after []func(*rules.Redirect)
	}{
		{
			"the same parameters, redirect",
			[]func(*rules.Redirect){dual, allDNS},
			[]func(*rules.Redirect){dual, allDNS},
		},
		{
			"the same parameters, tproxy",
			[]func(*rules.Redirect){tproxy, dual},
			[]func(*rules.Redirect){tproxy, dual},
		},
		{"from redirect to tproxy", []func(*rules.Redirect){dual}, []func(*rules.Redirect){tproxy, dual}},
		{"from tproxy with IPv6 to redirect without IPv6", []func(*rules.Redirect){tproxy, dual}, nil},
	} {
		for i, from := range backends {
			to := backends[1-i]
			t.Run(tc.name+", to backend "+string(to), func(t *testing.T) {
				ns := netnstest.New(t)
				applyAndCheck(t, chosen(t, from), ns, compiled(t, tc.before...), nft.Created)
				rs := compiled(t, tc.after...)
				if plan, err := chosen(t, to).Plan(ns, rs, compat.Snapshot{}); err != nil ||
					plan.Outcome != nft.Replaced {
					t.Errorf("plan %+v, error %v; want outcome replaced", plan, err)
				}
				if r := applyAndCheck(t, chosen(t, to), ns, rs, nft.Replaced); !r.Moved ||
					r.Backend != to {
					t.Errorf("result %+v, want Moved true and backend %s", r, to)
				}
				installed, err := compat.InstalledBackends(ns)
				if err != nil || len(installed) != 1 || installed[0].Name() != to {
					t.Errorf("installed backends %v, error %v; want %s", installed, err, to)
				}
				applyAndCheck(t, chosen(t, to), ns, rs, nft.Unchanged)
				// The automatic backend finds the rules in either backend.
				wantInSync(t, chosen(t, compat.BackendAuto), ns, rs)
				if removed, err := chosen(t, compat.BackendAuto).Remove(ns); err != nil ||
					!removed {
					t.Errorf("Remove: %t, error %v; want true", removed, err)
				}
				wantNoRules(t, ns)
			})
		}
	}
}

// If the new backend rejects the ruleset, the rules of the old backend remain unchanged.
func TestFailedBackendChangeChangesNothing(t *testing.T) {
	rs := compiled(t, tproxy, dual)
	for _, tc := range []struct {
		from compat.BackendName
		move func(*netns.NS) (compat.Result, error)
	}{
		{compat.BackendLegacy, func(ns *netns.NS) (compat.Result, error) {
			return chosen(t, compat.BackendNFT).Apply(ns, rejectedByNFT(t), compat.Snapshot{})
		}},
		{compat.BackendNFT, func(ns *netns.NS) (compat.Result, error) {
			return compat.ApplyLegacy(ns, withRejectedLastTable(t, tproxy))
		}},
	} {
		t.Run("from "+string(tc.from), func(t *testing.T) {
			ns := netnstest.New(t)
			applyAndCheck(t, chosen(t, tc.from), ns, rs, nft.Created)
			result, err := tc.move(ns)
			if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) ||
				result != (compat.Result{}) {
				t.Fatalf("result %+v, error %v; want the zero Result and the error of the kernel", result,
					err)
			}
			wantInSync(t, chosen(t, tc.from), ns, rs)
		})
	}
}

// Check reports Sluice's rules in the other backend as a difference. Remove keeps the routes that
// those rules need.
func TestOneBackendDoesNotDisturbTheOther(t *testing.T) {
	rs := compiled(t, tproxy, dual)
	for i, backendName := range backends {
		t.Run(string(backendName), func(t *testing.T) {
			ns := netnstest.New(t)
			b, other := chosen(t, backendName), chosen(t, backends[1-i])
			applyAndCheck(t, b, ns, rs, nft.Created)
			found, err := other.Check(ns, rs, compat.Snapshot{})
			if err != nil || !slices.ContainsFunc(found.Differences, func(d rules.Difference) bool {
				return d.Kind == rules.Extra && d.Where == backendName.String()
			}) {
				t.Errorf("differences %v, error %v; want the rules in %s", found.Differences, err, b.Name())
			}
			if removed, err := other.Remove(ns); err != nil || removed {
				t.Errorf("Remove: %t, error %v; want false", removed, err)
			}
			wantInSync(t, b, ns, rs)
		})
	}
}

// rejectedByNFT returns a ruleset that nf_tables rejects.
func rejectedByNFT(t testing.TB) rules.Ruleset {
	t.Helper()
	rs := compiled(t, tproxy, dual)
	prepend(&rs, "mangle-prerouting", rules.RedirectTo{Port: 1},
		rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}})
	return rs
}

func prepend(rs *rules.Ruleset, chain string, action rules.Action, matches ...rules.Match) {
	c := rs.Tables[0].Chain(chain)
	c.Rules = slices.Concat([]rules.Rule{{Matches: matches, Actions: []rules.Action{action}}},
		c.Rules)
}

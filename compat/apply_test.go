package compat_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// refusedLast is a ruleset of which the kernel takes all tables of iptables-legacy but the last, IPv6's nat.
func refusedLast(t testing.TB, change ...func(*rules.Redirect)) compat.Legacy {
	t.Helper()
	l, err := compat.Translate(compiled(t, append(change, dual)...))
	if err != nil {
		t.Fatal(err)
	}
	last := &l.Tables[len(l.Tables)-1]
	c := last.Chain("SLUICE_OUTPUT")
	c.Rules = append(c.Rules, rules.Rule{
		Matches: []rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}},
		Actions: []rules.Action{rules.TProxyDrop{Port: 15006, Value: 1, Mask: 1}}, // a target for mangle only
	})
	return l
}

// refusedByNFT is a ruleset that nf_tables refuse.
func refusedByNFT(t testing.TB) rules.Ruleset {
	t.Helper()
	rs := compiled(t, tproxy, dual)
	prepend(&rs, "mangle-prerouting", rules.RedirectTo{Port: 1}, rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}})
	return rs
}

func prepend(rs *rules.Ruleset, chain string, action rules.Action, matches ...rules.Match) {
	c := rs.Tables[0].Chain(chain)
	c.Rules = slices.Concat([]rules.Rule{{Matches: matches, Actions: []rules.Action{action}}}, c.Rules)
}

func TestLegacyUndoesEverythingWhenTheLastTableIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before []func(*rules.Redirect) // nil: nothing of ours
		change []func(*rules.Redirect)
	}{
		{"a first installation", nil, []func(*rules.Redirect){tproxy, allDNS}},
		{"a change of the mode", []func(*rules.Redirect){dual}, []func(*rules.Redirect){tproxy, allDNS}},
		{"and back", []func(*rules.Redirect){dual, tproxy, allDNS, exclusions}, []func(*rules.Redirect){dropInvalid}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := istiotest.Load(t, istiotest.Legacy, istiotest.Case{})
			b := chosen(t, compat.EngineLegacy)
			if tc.before != nil {
				applied(t, b, ns, compiled(t, tc.before...), nft.Created)
			}
			before, routing := istiotest.Dump(t, ns, istiotest.Legacy), routes(t, ns)
			_, err := compat.ApplyLegacy(ns, refusedLast(t, tc.change...))
			if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "iptables-legacy ip6 nat: replace") {
				t.Errorf("error %v, want that table ip6 nat is refused", err)
			}
			if diff := cmp.Diff(before, istiotest.Dump(t, ns, istiotest.Legacy)); diff != "" {
				t.Errorf("-before +after:\n%s", diff)
			}
			if diff := cmp.Diff(routing, routes(t, ns)); diff != "" {
				t.Errorf("routes: -before +after:\n%s", diff)
			}
		})
	}
}

func routes(t testing.TB, ns *netns.NS) string {
	t.Helper()
	found, err := route.Read(ns)
	if err != nil {
		t.Fatal(err)
	}
	return (&rules.Ruleset{Routing: found}).String()
}

func TestRulesMoveToTheOtherEngine(t *testing.T) {
	for _, tc := range []struct {
		name     string
		from, to []func(*rules.Redirect)
	}{
		{"the same, redirect", []func(*rules.Redirect){dual, allDNS}, []func(*rules.Redirect){dual, allDNS}},
		{"the same, tproxy", []func(*rules.Redirect){tproxy, dual}, []func(*rules.Redirect){tproxy, dual}},
		{"to tproxy", []func(*rules.Redirect){dual}, []func(*rules.Redirect){tproxy, dual}},
		{"to redirect, without IPv6", []func(*rules.Redirect){tproxy, dual}, nil},
	} {
		for i, from := range engines {
			to := engines[1-i]
			t.Run(tc.name+", to "+string(to), func(t *testing.T) {
				ns := netnstest.New(t)
				applied(t, chosen(t, from), ns, compiled(t, tc.from...), nft.Created)
				rs := compiled(t, tc.to...)
				if plan, err := chosen(t, to).Plan(ns, rs); err != nil || plan.Outcome != nft.Replaced {
					t.Errorf("plan %+v, error %v", plan, err)
				}
				if r := applied(t, chosen(t, to), ns, rs, nft.Replaced); !r.Moved || r.Engine != to {
					t.Errorf("result %+v", r)
				}
				holders, err := compat.Holders(ns)
				if err != nil || len(holders) != 1 || holders[0].Engine() != to {
					t.Errorf("held by %v, error %v", holders, err)
				}
				applied(t, chosen(t, to), ns, rs, nft.Unchanged)
				// The automatic backend finds them wherever they are.
				equal(t, chosen(t, compat.EngineAuto), ns, rs)
				if removed, err := chosen(t, compat.EngineAuto).Remove(ns); err != nil || !removed {
					t.Error(removed, err)
				}
				nothingHeld(t, ns)
			})
		}
	}
}

// When the new engine refuses, the old one's rules are as they were.
func TestAMoveThatFailsChangesNothing(t *testing.T) {
	rs := compiled(t, tproxy, dual)
	for _, tc := range []struct {
		from compat.Engine
		move func(*netns.NS) error
	}{
		{compat.EngineLegacy, func(ns *netns.NS) error {
			_, err := chosen(t, compat.EngineNFT).Apply(ns, refusedByNFT(t))
			return err
		}},
		{compat.EngineNFT, func(ns *netns.NS) error {
			_, err := compat.ApplyLegacy(ns, refusedLast(t, tproxy))
			return err
		}},
	} {
		t.Run("from "+string(tc.from), func(t *testing.T) {
			ns := netnstest.New(t)
			applied(t, chosen(t, tc.from), ns, rs, nft.Created)
			if err := tc.move(ns); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
				t.Fatalf("error %v, want that it is refused", err)
			}
			equal(t, chosen(t, tc.from), ns, rs)
		})
	}
}

// Rules of ours in an engine where they should not be are a difference, and the routes stay for those that remain.
func TestOneEngineDoesNotDisturbTheOther(t *testing.T) {
	rs := compiled(t, tproxy, dual)
	for i, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			ns := netnstest.New(t)
			b, other := chosen(t, e), chosen(t, engines[1-i])
			applied(t, b, ns, rs, nft.Created)
			found, err := other.Check(ns, rs)
			if err != nil || !slices.ContainsFunc(found.Differences, func(d rules.Difference) bool {
				return d.Kind == rules.Extra && d.Where == e.String()
			}) {
				t.Errorf("found %v, error %v", found, err)
			}
			if removed, err := other.Remove(ns); err != nil || removed {
				t.Error(removed, err)
			}
			equal(t, b, ns, rs)
		})
	}
}

// Whoever comes last has all of it, of whichever engine, and nothing is left of the others.
func TestAppliersAtOnce(t *testing.T) {
	ns := netnstest.New(t)
	rulesets := []rules.Ruleset{compiled(t, tproxy, dual), compiled(t, dual, allDNS)}
	for range times(6, 100) {
		var appliers sync.WaitGroup
		for i := range 4 {
			appliers.Go(func() {
				b, err := compat.Choose(engines[i/2])
				if err == nil {
					_, err = b.Apply(ns, rulesets[i%2])
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		appliers.Wait()
		holders, err := compat.Holders(ns)
		if err != nil || len(holders) != 1 {
			t.Fatalf("held by %v, error %v", holders, err)
		}
		if !slices.ContainsFunc(rulesets, func(rs rules.Ruleset) bool {
			found, err := holders[0].Check(ns, rs)
			return err == nil && len(found.Differences) == 0
		}) {
			t.Fatal("a mixture")
		}
	}
}

// Others who write the same tables meanwhile lose no rule, and neither do we. (Counters may be lost between a replacement and the next: the
// kernel has no other way to keep them.)
func TestOthersWriteTheTablesMeanwhile(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4, "*nat\n[7:420] -A OUTPUT -o eth3 -j ACCEPT\nCOMMIT\n*mangle\nCOMMIT\n")
	var stopped atomic.Bool
	var others sync.WaitGroup
	for _, name := range []string{"nat", "mangle"} {
		others.Go(func() {
			for i := 0; !stopped.Load(); i++ {
				table, err := xtables.Read(ns, rules.IPv4, name)
				if err == nil && i%2 == 0 {
					_, err = table.AddChain("OTHER")
				} else if err == nil {
					err = table.DeleteChain("OTHER")
				}
				if err == nil {
					err = xtables.Replace(ns, table)
				}
				replaced := (*xtables.ReplacedError)(nil)
				switch {
				case errors.As(err, &replaced): // what somebody else has written right after is the next one's business
				case errors.Is(err, xtables.ErrChanged):
					i++ // the same again
				case err != nil:
					t.Error(err)
					return
				}
			}
		})
	}
	b := chosen(t, compat.EngineLegacy)
	for i := range times(20, 200) {
		rs := compiled(t, []func(*rules.Redirect){tproxy, allDNS}[i%2])
		if _, err := b.Apply(ns, rs); err != nil {
			t.Error(err)
		}
		equal(t, b, ns, rs)
	}
	stopped.Store(true)
	others.Wait()
	if dump := istiotest.Dump(t, ns, istiotest.Legacy); !strings.Contains(dump, " -A OUTPUT -o eth3 -j ACCEPT\n") {
		t.Errorf("the other rule is lost:\n%s", dump)
	}
}

// Routes go in first: where they cannot, no table is touched, and it is no reason to try the other engine.
func TestNothingIsAppliedWithoutItsRoutes(t *testing.T) {
	for _, e := range append(slices.Clone(engines), compat.EngineAuto) {
		t.Run(string(e), func(t *testing.T) {
			ns := netnstest.New(t)
			err := ns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6", []byte("1"), 0) })
			if err != nil {
				t.Fatal(err)
			}
			_, err = chosen(t, e).Apply(ns, compiled(t, tproxy, dual))
			if !errors.Is(err, route.ErrNoIPv6) || strings.Contains(err.Error(), "cannot be used") || compat.IsNotSupported(err) {
				t.Errorf("error %v, want that there is no IPv6", err)
			}
			nothingHeld(t, ns)
			if made, err := xtables.Tables(ns); err != nil || len(made) > 0 {
				t.Errorf("tables %v, error %v", made, err)
			}
		})
	}
}

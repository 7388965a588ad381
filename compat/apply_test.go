package compat_test

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

// withRejectedLastTable returns the iptables-legacy tables of a ruleset. The kernel rejects only
// the last table, nat of IPv6.
func withRejectedLastTable(t testing.TB, change ...func(*rules.Redirect)) compat.Legacy {
	t.Helper()
	l, err := compat.Translate(compiled(t, append(change, dual)...))
	if err != nil {
		t.Fatal(err)
	}
	last := &l.Tables[len(l.Tables)-1]
	c := last.Chain("SLUICE_OUTPUT")
	c.Rules = append(c.Rules, rules.Rule{
		Matches: []rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}},
		// The kernel accepts TPROXY only in mangle.
		Actions: []rules.Action{rules.TProxyDrop{Port: 15006, Value: 1, Mask: 1}},
	})
	return l
}

func TestLegacyUndoesAllTablesWhenTheLastOneIsRejected(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before []func(*rules.Redirect) // nil: no rules of Sluice
		change []func(*rules.Redirect)
	}{
		{"a first installation", nil, []func(*rules.Redirect){tproxy, allDNS}},
		{
			"a change to TPROXY",
			[]func(*rules.Redirect){dual},
			[]func(*rules.Redirect){tproxy, allDNS},
		},
		{
			"a change to REDIRECT",
			[]func(*rules.Redirect){dual, tproxy, allDNS, exclusions},
			[]func(*rules.Redirect){dropInvalid},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := istiotest.Load(t, istiotest.Legacy, istiotest.Case{})
			b := chosen(t, compat.BackendLegacy)
			if tc.before != nil {
				applyAndCheck(t, b, ns, compiled(t, tc.before...), nft.Created)
			}
			before, routing := istiotest.Dump(t, ns, istiotest.Legacy), routes(t, ns)
			result, err := compat.ApplyLegacy(ns, withRejectedLastTable(t, tc.change...))
			if result != (compat.Result{}) {
				t.Errorf("result %+v, want the zero Result", result)
			}
			if !errors.Is(err, unix.EINVAL) ||
				!strings.Contains(err.Error(), "iptables-legacy ip6 nat: replace") {
				t.Errorf("error %v, want a rejected table ip6 nat", err)
			}
			if diff := cmp.Diff(before, istiotest.Dump(t, ns, istiotest.Legacy)); diff != "" {
				t.Errorf("rules: -before +after:\n%s", diff)
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

// The last Apply determines all rules, whichever backend it uses. No rules of the other backend
// remain, unless an Apply waited for the lock until the timeout and continued without it.
func TestConcurrentAppliesLeaveOneRulesetInOneBackend(t *testing.T) {
	ns := netnstest.New(t)
	rulesets := []rules.Ruleset{compiled(t, tproxy, dual), compiled(t, dual, allDNS)}
	for range times(6, 100) {
		var appliers sync.WaitGroup
		start := time.Now()
		for i := range 4 {
			appliers.Go(func() {
				b, err := compat.Choose(backends[i/2])
				if err == nil {
					_, err = b.Apply(ns, rulesets[i%2], compat.Snapshot{})
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		appliers.Wait()
		if time.Since(start) > netns.LockTimeout {
			continue // an Apply may not have waited for the lock
		}
		installed, err := compat.InstalledBackends(ns)
		if err != nil || len(installed) != 1 {
			t.Fatalf("installed backends %v, error %v, want one backend", installed, err)
		}
		if !slices.ContainsFunc(rulesets, func(rs rules.Ruleset) bool {
			found, err := installed[0].Check(ns, rs, compat.Snapshot{})
			return err == nil && len(found.Differences) == 0
		}) {
			t.Fatal("the rules in the namespace equal neither ruleset")
		}
	}
}

// Concurrent writers of the same tables do not lose each other's rules. Counters are lost if
// another writer replaces the table before they are restored, because each replacement sets them to
// 0.
//
// During one Apply, each of the other writers changes its table fewer than 20 times. This is the
// maximum number of attempts of Apply, so that Apply succeeds on a busy machine too.
func TestConcurrentWritersKeepEachOthersRules(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4,
		"*nat\n[7:420] -A OUTPUT -o eth3 -j ACCEPT\nCOMMIT\n*mangle\nCOMMIT\n")
	var others sync.WaitGroup
	permits := map[string]chan struct{}{
		"nat":    make(chan struct{}, 15),
		"mangle": make(chan struct{}, 15),
	}
	for name, permits := range permits {
		others.Go(func() {
			for i := 0; ; i++ {
				if _, more := <-permits; !more {
					return
				}
				table, err := xtables.Read(ns, rules.IPv4, name)
				if err == nil && i%2 == 0 {
					_, err = table.AddChains("OTHER")
				} else if err == nil {
					table.DeleteChains(func(name string) bool { return name == "OTHER" })
				}
				if err == nil {
					err = xtables.Replace(ns, table)
				}
				replaced := (*xtables.ReplacedError)(nil)
				switch {
				// Another program replaced the table before its counters were set.
				case errors.As(err, &replaced):
				case errors.Is(err, xtables.ErrChanged):
					i++ // with the loop's i++, the same operation is repeated
				case err != nil:
					t.Error(err)
					return
				}
			}
		})
	}
	b := chosen(t, compat.BackendLegacy)
	for i := range times(20, 200) {
		for _, permits := range permits {
			for len(permits) < cap(permits) {
				permits <- struct{}{}
			}
		}
		rs := compiled(t, []func(*rules.Redirect){tproxy, allDNS}[i%2])
		if _, err := b.Apply(ns, rs, compat.Snapshot{}); err != nil {
			t.Error(err)
		}
		wantInSync(t, b, ns, rs)
	}
	for _, permits := range permits {
		close(permits)
	}
	others.Wait()
	if dump := istiotest.Dump(t, ns, istiotest.Legacy); !strings.Contains(dump,
		" -A OUTPUT -o eth3 -j ACCEPT\n") {
		t.Errorf("the foreign rule in OUTPUT is lost:\n%s", dump)
	}
}

// Apply adds the routes first. If this fails, it changes no table and does not try the other
// backend.
func TestNoRulesAreAppliedIfRoutesFail(t *testing.T) {
	for _, backendName := range append(slices.Clone(backends), compat.BackendAuto) {
		t.Run(string(backendName), func(t *testing.T) {
			ns := netnstest.New(t)
			err := ns.Do(func() error {
				return os.WriteFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6", []byte("1"), 0)
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = chosen(t, backendName).Apply(ns, compiled(t, tproxy, dual), compat.Snapshot{})
			if !errors.Is(err, route.ErrNoIPv6) ||
				strings.Contains(err.Error(), "cannot use nftables") || compat.IsNotSupported(err) {
				t.Errorf("error %v, want an error about disabled IPv6", err)
			}
			wantNoRules(t, ns)
			if list, err := xtables.Tables(ns); err != nil || len(list) > 0 {
				t.Errorf("tables %v, error %v; want no tables", list, err)
			}
		})
	}
}

// TestLegacyReplacesThousandsOfPrefixesInLinearTime checks that the time for comparing and writing
// rules is linear in the number of rules. Quadratic time would be half a minute. The test limits
// processor time, which does not depend on other processes.
func TestLegacyReplacesThousandsOfPrefixesInLinearTime(t *testing.T) {
	ns := netnstest.New(t)
	prefixes := func(last byte) func(*rules.Redirect) {
		return func(r *rules.Redirect) {
			for i := range 6000 {
				a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), last})
				r.OutboundExcludeCIDRs = append(r.OutboundExcludeCIDRs, netip.PrefixFrom(a, 25))
			}
		}
	}
	b := chosen(t, compat.BackendLegacy)
	applyAndCheck(t, b, ns, compiled(t, prefixes(0)), nft.Created)
	begin := processorTime(t)
	applyAndCheck(t, b, ns, compiled(t, prefixes(128)), nft.Replaced)
	if used := processorTime(t) - begin; used > 20*time.Second {
		t.Errorf("Apply took %v of processor time, want at most 20 s", used)
	}
}

// processorTime returns the processor time of the process.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Nano())
}

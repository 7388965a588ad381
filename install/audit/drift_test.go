package audit_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestDriftIsRepairedImmediately checks that changes to the rules of a running pod are repaired,
// reported and counted immediately.
func TestDriftIsRepairedImmediately(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*fakeNamespace)
		kind   string
		text   string
	}{
		{"all rules are missing", func(s *fakeNamespace) {
			s.rules = rules.Ruleset{}
		}, "absent", "no rule is left"},
		{"a rule is missing", func(s *fakeNamespace) {
			firstChain(s).Rules = firstChain(s).Rules[1:]
		}, "missing", "missing in chain inet sluice"},
		{"a rule exists twice", func(s *fakeNamespace) {
			firstChain(s).Rules = append(firstChain(s).Rules, firstChain(s).Rules[0])
		}, "extra", "extra in chain inet sluice"},
		{"two rules are swapped", func(s *fakeNamespace) {
			c := &s.rules.Tables[0].Chains[1]
			c.Rules[0], c.Rules[1] = c.Rules[1], c.Rules[0]
		}, "reordered", "reordered in chain inet sluice"},
		{"a foreign route exists", func(s *fakeNamespace) {
			s.rules.Routing.Policies = []rules.PolicyRoute{{Family: rules.IPv4, Priority: 1}}
		}, "routes", "extra in routing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := meshPod("web")
				var s *fakeNamespace
				env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(web) })
				if got := env.states(); got != "1 redirected" || s.applied > 0 {
					t.Fatalf("before: %s, applied %d times; want 1 redirected, never", got, s.applied)
				}
				env.change(s, func() {
					s.rules = rules.MustCompile(env.redirect(web)) // a deep copy
					row.change(s)
				})
				if !rules.Equal(rules.MustCompile(env.redirect(web)), s.rules) || s.applied != 1 ||
					env.states() != "1 redirected" {
					t.Errorf("applied %d times, %s; want once, 1 redirected", s.applied, env.states())
				}
				// The repair gets the comparison of the audit, so that it need not read the rules
				// again: see compat.Backend.
				if len(s.repairedWith.Differences) == 0 || (s.hasNoRulesCalls > 0) != (row.kind == "absent") {
					t.Errorf("repaired with %+v, after %d calls of HasNoRules; want the differences, "+
						"and a call only if all rules are missing", s.repairedWith, s.hasNoRulesCalls)
				}
				if env.metric("sluice_drifts_total{"+row.kind+"}") < 1 ||
					env.metric("sluice_repairs_total{drift,repair,success}") != 1 {
					t.Errorf("counted %v, want the drift and one repair", env.counted)
				}
				if len(env.events) != 1 || env.events[0].Reason != "RedirectRepaired" ||
					env.events[0].About.UID != "uid-web" {
					t.Fatalf("events %+v, want RedirectRepaired on the pod", env.events)
				}
				for _, want := range []string{
					row.text, `process "nft", pid 4711`, "the redirection is restored",
				} {
					if text := env.events[0].Message; !strings.Contains(text, want) {
						t.Errorf("message %q, want the text %q", text, want)
					}
				}
			})
		})
	}
}

// firstChain returns the first chain with rules.
func firstChain(s *fakeNamespace) *rules.Chain {
	for i := range s.rules.Tables[0].Chains {
		if c := &s.rules.Tables[0].Chains[i]; len(c.Rules) > 0 {
			return c
		}
	}
	return nil
}

// TestChangesWithoutEventsAreFound checks that changes without events, as in iptables-legacy, are
// found within the interval, and that after lost events all pods are audited immediately.
func TestChangesWithoutEventsAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a, b *fakeNamespace
		env := startTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1m"}, func(env *testEnv) {
			a, b = env.addRedirected(meshPod("a")), env.addRedirected(meshPod("b"))
		})
		advance(time.Second) // shortly after audits, a loss would not cause audits immediately
		env.set(func() { a.rules, b.rules = rules.Ruleset{}, rules.Ruleset{} })
		env.ruleEvents <- watch.Event{Lost: true}
		synctest.Wait()
		if a.applied != 1 || b.applied != 1 {
			t.Errorf("after a loss: repaired %d and %d times, want once each", a.applied, b.applied)
		}
		env.set(func() { a.rules = rules.Ruleset{} })
		advance(time.Minute)
		if a.applied != 2 || b.applied != 1 {
			t.Errorf("after the interval: repaired %d and %d times, want twice and once", a.applied, b.applied)
		}
		if env.metric("sluice_events_lost_total{nftables}") != 1 ||
			env.metric("sluice_repairs_total{drift,repair,success}") != 3 {
			t.Errorf("counted %v, want one loss and three repairs", env.counted)
		}
	})
}

// TestFailedRepairDoesNotChangeTheBackend covers failed repairs by nft whose result names
// iptables-legacy: the pod's backend remains nft.
func TestFailedRepairDoesNotChangeTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
			s.repairErr = errors.New("no memory")
			s.failedRepair = compat.Result{
				Backend: compat.BackendLegacy, Result: nft.Result{Outcome: nft.Updated},
			}
		})
		env.set(func() { s.rules = rules.Ruleset{} })
		env.ruleEvents <- watch.Event{Lost: true}
		advance(time.Hour)
		env.set(func() {
			if s.applied < 2 || s.repairedBy != compat.BackendNFT {
				t.Errorf("%d repairs, the last with the backend %s; want several with nft", s.applied,
					s.repairedBy)
			}
		})
	})
}

// TestContinuousLossesOfEventsCostLittle checks that continuous losses of events, which a pod can
// cause, lead to audits that use at most 2 % of a core.
func TestContinuousLossesOfEventsCostLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 100
		var list []*fakeNamespace
		env := startTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1h"}, func(env *testEnv) {
			for i := range pods {
				list = append(list, env.addRedirected(meshPod(strings.Repeat("x", i+1))))
			}
		})
		for range 600 {
			env.ruleEvents <- watch.Event{Lost: true}
			advance(100 * time.Millisecond)
		}
		checked := 0
		for _, s := range list {
			checked += s.checked
		}
		// 10 audits per second, 2 ms each.
		if least, most := 60*10-2*pods, 60*10+4*pods; checked < least || checked > most {
			t.Errorf("%d comparisons in a minute, want %d to %d", checked, least, most)
		}
	})
}

// TestAPodThatFlushesItsRulesIsRepairedOnceASecond checks that a pod that flushes its rules
// continuously is repaired once a second, which costs little, and is reported.
func TestAPodThatFlushesItsRulesIsRepairedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s, other *fakeNamespace
		env := startTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1h"}, func(env *testEnv) {
			s, other = env.addRedirected(meshPod("hostile")), env.addRedirected(meshPod("other"))
		})
		for range 10 * 60 * 20 { // the maximum rate of the watcher for one namespace, for ten minutes
			env.flush(s)
			advance(50 * time.Millisecond)
		}
		if s.applied > 10*60+5 || s.applied < 10*60-5 {
			t.Errorf("repaired %d times in ten minutes, want about once a second", s.applied)
		}
		if s.checked > 2*s.applied+20 {
			t.Errorf("compared %d times in ten minutes, want about twice for each repair", s.checked)
		}
		if other.applied > 0 {
			t.Error("the other pod was repaired")
		}
		// A repeated event is reported every five minutes.
		reported := env.takeEvents()
		if !strings.HasPrefix(reported, "RedirectRepaired, RedirectDrifted") ||
			strings.Count(reported, ",") > 6 {
			t.Errorf("events %s, want RedirectRepaired and RedirectDrifted first, and at most seven", reported)
		}
		// The pod stops flushing.
		advance(2 * time.Minute)
		if env.states() != "2 redirected" {
			t.Errorf("states: %s, want 2 redirected", env.states())
		}
	})
}

// TestRemovedRulesAreRestoredWithinASecond checks that removed rules are restored immediately if
// removals are rare, and within a second if they are frequent, even if another difference cannot be
// repaired.
func TestRemovedRulesAreRestoredWithinASecond(t *testing.T) {
	for name, foreignRoute := range map[string]string{
		"everything can be repaired": "",
		"a route cannot be removed":  "ip -4 rule priority 133 from all lookup 7",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *fakeNamespace
				env := startTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1h"}, func(env *testEnv) {
					s = env.addRedirected(meshPod("web"))
					s.foreignRoute = foreignRoute
				})
				advance(10 * time.Minute)
				hasNoRules := func() bool {
					env.mu.Lock()
					defer env.mu.Unlock()
					return len(s.rules.Tables) == 0
				}
				start, before := time.Now(), s.applied
				for i := range 3 {
					if env.flush(s); hasNoRules() {
						t.Errorf("after a pause, removal %d is not repaired immediately", i+1)
					}
				}
				for i := range 60 {
					env.flush(s)
					begin := time.Now()
					for hasNoRules() {
						advance(10 * time.Millisecond)
					}
					if elapsed := time.Since(begin); elapsed > 1100*time.Millisecond {
						t.Fatalf("removal %d is repaired after %v, want within a second", i+4, elapsed)
					}
				}
				if n, elapsed := s.applied-before, time.Since(start); n > int(elapsed/time.Second)+3 {
					t.Errorf("repaired %d times in %v, want at most once a second", n, elapsed)
				}
			})
		})
	}
}

// TestRulesThatAreRemovedDuringRepairsAreRestoredWithinASecond checks that repairs have no backoff,
// only their rate limit, if another process removes the rules before the check of each repair. When
// the process ends, the pod is redirected within a second.
func TestRulesThatAreRemovedDuringRepairsAreRestoredWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1h"}, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
		})
		env.change(s, func() {
			s.rules = rules.Ruleset{}
			s.afterRepair = func() { s.rules = rules.Ruleset{} }
		})
		advance(5 * time.Minute)
		if s.applied < 5*60-5 || s.applied > 5*60+5 {
			t.Errorf("repaired %d times in five minutes, want about once a second", s.applied)
		}
		for _, e := range env.events {
			if !strings.Contains(e.Message, "another program changes the rules repeatedly") {
				t.Errorf("event %q, want only events about repeated changes", e.Message)
			}
		}
		if env.states() != "1 unprotected" || len(env.events) == 0 {
			t.Errorf("%s, %d events; want 1 unprotected, some", env.states(), len(env.events))
		}
		env.set(func() { s.afterRepair = nil })
		advance(time.Second)
		if env.states() != "1 redirected" {
			t.Errorf("a second after the last removal: %s, want 1 redirected", env.states())
		}
	})
}

// TestDriftThatCannotBeRepairedIsReportedOnce checks that differences that cannot be repaired are
// reported once and shown as a state, and that the repair is retried rarely.
func TestDriftThatCannotBeRepairedIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
			s.foreignRoute = "ip -4 rule priority 133 from all lookup 7"
		})
		advance(time.Hour)
		// The delays between attempts double from a second to a minute.
		if env.states() != "1 drifted" || s.applied < 3 || s.applied > 75 {
			t.Errorf("%s, applied %d times in an hour; want 1 drifted, 3 to 75 times", env.states(), s.applied)
		}
		if len(env.events) != 1 ||
			!strings.Contains(env.events[0].Message, "the agent cannot repair these differences") ||
			!strings.Contains(env.events[0].Message, "lookup 7") {
			t.Errorf("events %+v, want one that names the route", env.events)
		}
		// Other rules are repaired nevertheless.
		applied := s.applied
		env.flush(s)
		advance(time.Minute)
		if s.applied == applied || len(s.rules.Tables) == 0 {
			t.Errorf("after the removal of the rules: applied %d times more, want once or more, and rules",
				s.applied-applied)
		}
		env.set(func() { s.foreignRoute = "" })
		advance(2 * time.Minute)
		if env.states() != "1 redirected" {
			t.Errorf("states: %s, want 1 redirected", env.states())
		}
	})
}

// TestForeignRulesThatLetTrafficBypassAreReported checks that foreign rules that let traffic bypass
// the proxy are reported once and shown as a state, and that the agent does not change them. Their
// effect is determined again when rules may have changed.
func TestForeignRulesThatLetTrafficBypassAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(meshPod("web")) })
		advance(10 * time.Minute)
		if s.inspected > 2 {
			t.Errorf("decided %d times although nothing has changed, want at most twice", s.inspected)
		}
		if !s.inspectedEqual {
			t.Error("all rules are inspected, although Sluice's rules are correct")
		}
		env.change(s, func() {
			s.foreign.Bypasses = []foreign.Bypass{{
				Rule: "ip evil out #1: notrack", Owner: foreign.OwnerNFT,
			}}
		})
		advance(3 * time.Minute)
		if env.states() != "1 drifted" || s.applied > 0 || len(env.events) != 1 ||
			!strings.Contains(env.events[0].Message, "rule of nft: ip evil out #1") {
			t.Errorf("%s, applied %d times, events %+v; want 1 drifted, never, one event that names the rule",
				env.states(), s.applied, env.events)
		}
		if reported := env.takeEvents(); reported != "RedirectBypassed" ||
			env.metric("sluice_pods_foreign_rules{bypass}") != 1 {
			t.Errorf("events %q, counted %v; want RedirectBypassed, one pod with a bypass", reported, env.counted)
		}
		env.change(s, func() { s.foreign.Bypasses = nil })
		advance(2 * time.Minute)
		if env.states() != "1 redirected" || env.metric("sluice_pods_foreign_rules{bypass}") != 0 {
			t.Errorf("%s, counted %v; want 1 redirected, no pod with a bypass", env.states(), env.counted)
		}
	})
}

// TestRulesThatAreRemovedDuringADecisionAreDrift checks that rules that are removed after the
// comparison, while the effect of foreign rules is determined, are restored, and that the bypass
// which their removal causes is not attributed to foreign rules.
func TestRulesThatAreRemovedDuringADecisionAreDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(meshPod("web")) })
		removed := false
		env.change(s, func() {
			s.duringForeign = func() {
				s.foreign.Bypasses = nil
				if !removed {
					removed, s.rules = true, rules.Ruleset{}
					s.foreign.Bypasses = []foreign.Bypass{{}}
				}
			}
		})
		advance(time.Second)
		reported := env.takeEvents()
		if !removed || env.states() != "1 redirected" || s.applied != 1 || reported != "RedirectRepaired" {
			t.Errorf("removed: %t, %s, applied %d times, events %q; want true, 1 redirected, once, RedirectRepaired",
				removed, env.states(), s.applied, reported)
		}
	})
}

// TestIPv6AddressAfterADDIsReported covers a pod that receives an IPv6 address, for example from a
// router, after its rules were made for IPv4 only.
func TestIPv6AddressAfterADDIsReported(t *testing.T) {
	for _, row := range []struct{ dualStack, states, reported string }{
		{"true", "1 drifted", "RedirectBypassed"},
		{"false", "1 redirected", ""}, // Istio does not capture it either
	} {
		synctest.Test(t, func(t *testing.T) {
			var s *fakeNamespace
			env := startTestEnv(t, nil, func(env *testEnv) {
				pod := meshPod("web")
				pod.Spec.Containers[0].Env = []decide.EnvVar{
					{Name: "ISTIO_DUAL_STACK", Value: row.dualStack},
				}
				s = env.addRedirected(pod)
			})
			if env.states() != "1 redirected" {
				t.Errorf("states: %s, want 1 redirected", env.states())
			}
			env.set(func() { s.addresses = append(s.addresses, netip.MustParseAddr("fd00::7")) })
			advance(3 * time.Minute)
			const text = "the addresses in the CNI result did not require it, but the present ones do, and " +
				"IPv6 traffic of fd00::7 bypasses the proxy"
			if env.states() != row.states || len(env.events) > 0 &&
				!strings.Contains(env.events[0].Message, text) {
				t.Errorf("dual stack %s: %s, events %+v; want %s, events only about IPv6", row.dualStack,
					env.states(), env.events, row.states)
			}
			// Locate returns the same decision as the audit.
			want := map[string]string{"true": text}[row.dualStack]
			if l, err := env.Locate(t.Context(), "shop", "web"); err != nil || l.IPv6Bypass != want {
				t.Errorf("dual stack %s: location %+v, error %v; want IPv6Bypass %q", row.dualStack, l, err,
					want)
			}
			if reported := env.takeEvents(); reported != row.reported {
				t.Errorf("dual stack %s: events %q, want %q", row.dualStack, reported, row.reported)
			}
			env.set(func() { s.addresses = s.addresses[:1] })
			advance(2 * time.Minute)
			if l, err := env.Locate(t.Context(), "shop", "web"); env.states() != "1 redirected" ||
				err != nil || l.IPv6Bypass != "" {
				t.Errorf("states: %s, location %+v, error %v; want 1 redirected, no bypass", env.states(), l,
					err)
			}
		})
	}
}

// TestLocationWithUnknownIPv6 checks that the location of a pod whose rules do not capture IPv6
// says why it is unknown whether IPv6 traffic bypasses the proxy, instead of saying that none does.
func TestLocationWithUnknownIPv6(t *testing.T) {
	refused := errors.New("operation not permitted")
	addIPv6 := func(env *testEnv, s *fakeNamespace) {
		env.set(func() { s.addresses = append(s.addresses, netip.MustParseAddr("fd00::7")) })
	}
	for name, row := range map[string]struct {
		prepare func(*testEnv, *fakeNamespace)
		want    string
	}{
		"the namespace cannot be opened": {func(env *testEnv, _ *fakeNamespace) {
			env.set(func() { env.openErr = refused })
		}, "the pod's addresses cannot be read: operation not permitted"},
		"the addresses cannot be read": {func(env *testEnv, s *fakeNamespace) {
			env.set(func() { s.addressesErr = refused })
		}, "the pod's addresses cannot be read: operation not permitted"},
		"the pod is orphaned": {func(env *testEnv, s *fakeNamespace) {
			env.forceDelete(meshPod("web"))
			addIPv6(env, s)
		}, "whether the rules should capture IPv6 traffic of fd00::7 is unknown, because the API server " +
			"no longer has the pod"},
		"the pod is orphaned and has no IPv6 address": {func(env *testEnv, _ *fakeNamespace) {
			env.forceDelete(meshPod("web"))
		}, ""},
		"the pod's addresses require no IPv6": {addIPv6, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *fakeNamespace
				env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(meshPod("web")) })
				row.prepare(env, s)
				settle()
				l, err := env.Locate(t.Context(), "shop", "web")
				if err != nil || l.IPv6Unknown != row.want || l.IPv6Bypass != "" {
					t.Errorf("location %+v, error %v; want IPv6Unknown %q, no IPv6Bypass", l, err, row.want)
				}
			})
		})
	}
}

// TestADecisionThatExceedsItsBudgetIsRepeated checks that a decision that exceeds its budget is
// repeated soon, with a larger budget. An event reports only that the repeated decision exceeds its
// budget too.
func TestADecisionThatExceedsItsBudgetIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
			s.foreign = foreign.Effect{
				Unknown: []string{"the decision took more than 50ms of work"}, Exhausted: true,
			}
		})
		if reported := env.takeEvents(); env.states() != "1 unknown" || reported != "" {
			t.Errorf("%s, events %s; want 1 unknown, no event", env.states(), reported)
		}
		advance(20 * time.Second)
		if reported := env.takeEvents(); env.states() != "1 unknown" || reported != "RedirectUnknown" {
			t.Errorf("%s, events %s; want 1 unknown, event RedirectUnknown", env.states(), reported)
		}
		if want := []diff.Budget{diff.AgentBudget, diff.AgentRetryBudget}; !slices.Equal(s.budgets[:2], want) {
			t.Errorf("budgets %v, want %v first", s.budgets, want)
		}
		env.set(func() { s.foreign = foreign.Effect{} })
		advance(time.Minute)
		if env.states() != "1 redirected" {
			t.Errorf("states: %s, want 1 redirected", env.states())
		}
	})
}

func TestFailedRepairIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
			s.repairErr = errors.New("no memory")
		})
		env.flush(s)
		advance(10 * time.Minute)
		// The delays between attempts double from a second to a minute.
		failed := env.metric("sluice_repairs_total{drift,repair,error}")
		if env.states() != "1 unprotected" || s.applied < 5 || s.applied > 25 ||
			failed != float64(s.applied) {
			t.Errorf("%s, tried %d times, counted %v; want 1 unprotected, 5 to 25 times, all counted",
				env.states(), s.applied, env.counted)
		}
		if reported := env.takeEvents(); !strings.HasPrefix(reported, "RedirectRepairFailed") {
			t.Errorf("events %q, want RedirectRepairFailed first", reported)
		}
		env.set(func() { s.repairErr = nil })
		advance(2 * time.Minute)
		if env.states() != "1 redirected" {
			t.Errorf("states: %s, want 1 redirected", env.states())
		}
	})
}

// TestDriftIsOnlyReportedWithoutRepair checks that drift is only reported if SLUICE_AUDIT_REPAIR is
// false.
func TestDriftIsOnlyReportedWithoutRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, map[string]string{"SLUICE_AUDIT_REPAIR": "false"}, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
		})
		env.flush(s)
		advance(4 * time.Minute)
		reported := env.takeEvents()
		if s.applied > 0 || env.states() != "1 unprotected" || reported != "RedirectDrifted" {
			t.Errorf("applied %d times, %s, events %q; want never, 1 unprotected, one event RedirectDrifted",
				s.applied, env.states(), reported)
		}
		if env.metric("sluice_drifts_total{absent}") != 1 {
			t.Errorf("counted %v, want one drift", env.counted)
		}
	})
}

// TestRulesAreNotComparedWithoutAudit checks that rules are not compared and no events are received
// if SLUICE_AUDIT is false.
func TestRulesAreNotComparedWithoutAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, map[string]string{"SLUICE_AUDIT": "false"}, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
		})
		env.set(func() { s.rules = rules.Ruleset{} })
		advance(time.Hour)
		if s.checked+s.applied+env.added > 0 || env.states() != "" {
			t.Errorf("compared %d times, applied %d times, %d subscriptions, %s; want never, none, no state",
				s.checked, s.applied, env.added, env.states())
		}
	})
}

// TestEqualRulesAreOnlyCheckedForChanges checks that rules that were equal are only checked for
// changes, and that the rules are read again after a difference.
func TestEqualRulesAreOnlyCheckedForChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
			s.generation = 7
		})
		advance(10 * time.Minute) // ten audits
		if s.checked < 9 || s.checkedSince != s.checked-1 {
			t.Errorf("compared %d times, of which %d by checking for changes; want all but the first",
				s.checked, s.checkedSince)
		}
		env.set(func() { s.rules = rules.Ruleset{}; s.checked, s.checkedSince = 0, 0 })
		advance(2 * time.Minute)
		if s.applied != 1 || s.checked-s.checkedSince != 2 {
			t.Errorf("repaired %d times, compared %d times, of which %d by checking for changes; "+
				"want two readings of all rules: after the repair, and at the next audit",
				s.applied, s.checked, s.checkedSince)
		}
	})
}

// TestAuditsAreCombined checks that periodic audits take place at a few times of the interval, and
// that each pod is audited at one of these times in each interval.
func TestAuditsAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var namespaces []*fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			for i := range 100 {
				namespaces = append(namespaces, env.addRedirected(meshPod(fmt.Sprintf("web-%d", i))))
			}
		})
		count := func() (n int) {
			env.mu.Lock()
			defer env.mu.Unlock()
			for _, s := range namespaces {
				n += s.checked
			}
			return n
		}
		advance(time.Minute)
		begin, times, most := count(), 0, 0
		for last, minute := begin, 0; minute < 60; minute++ {
			advance(time.Second)
			if total := count(); total > last {
				times, most, last = times+1, max(most, total-last), total
			}
		}
		if audited := count() - begin; audited != len(namespaces) || times > 6 ||
			most > len(namespaces)/2 {
			t.Errorf("%d audits of %d pods at %d times, at most %d at one time; "+
				"want one of each pod, at most 6 times, at most half of the pods at one time",
				audited, len(namespaces), times, most)
		}
		for i, s := range namespaces {
			if s.checked != namespaces[0].checked {
				t.Errorf("web-%d is audited %d times, web-0 %d times; want equally often", i, s.checked,
					namespaces[0].checked)
			}
		}
	})
}

// TestForeignRulesAreEvaluatedAgainAfterAChangeOfRoutes checks that the effect of foreign rules is
// determined again when policy routes have changed, because the policy routes decide where marked
// packets go.
func TestForeignRulesAreEvaluatedAgainAfterAChangeOfRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(meshPod("web")) })
		advance(10 * time.Minute)
		before := s.inspected
		env.set(func() { s.foreign = foreign.Effect{Bypasses: []foreign.Bypass{{Packets: "all"}}} })
		env.ruleEvents <- watch.Event{NS: s.id, Routes: true, Count: 1}
		synctest.Wait()
		if s.inspected != before+1 || env.states() != "1 drifted" {
			t.Errorf("decided %d times after a change of routes, %s; want once, 1 drifted",
				s.inspected-before, env.states())
		}
	})
}

// TestForeignRulesAreEvaluatedAgainAfterAMissedChangeOfRoutes checks that the effect of foreign
// rules is determined again if a change of policy routes may have been missed.
func TestForeignRulesAreEvaluatedAgainAfterAMissedChangeOfRoutes(t *testing.T) {
	for _, row := range []struct {
		name string
		// change changes the policy routes.
		change func(env *testEnv, s *fakeNamespace, changeRoutes func())
	}{
		{"without a subscription to events", func(env *testEnv, _ *fakeNamespace, changeRoutes func()) {
			env.set(func() { env.subscribeErr = errors.New("subscribe") })
			advance(2 * time.Minute)
			env.set(changeRoutes)
		}},
		{"while the subscription temporarily failed", func(env *testEnv, _ *fakeNamespace, changeRoutes func()) {
			env.set(func() { env.subscribeErr = errors.New("subscribe") })
			advance(2 * time.Minute)
			env.set(func() { changeRoutes(); env.subscribeErr = nil })
		}},
		{"with an event whose audit fails", func(env *testEnv, s *fakeNamespace, changeRoutes func()) {
			env.set(func() { changeRoutes(); env.openErr = unix.EMFILE })
			env.ruleEvents <- watch.Event{NS: s.id, Routes: true, Count: 1}
			advance(time.Second)
			env.set(func() { env.openErr = nil })
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *fakeNamespace
				env := startTestEnv(t, nil, func(env *testEnv) {
					s = env.addRedirected(meshPod("web"))
					s.generation = 7 // of nftables, which a change of routes does not affect
				})
				advance(10 * time.Minute)
				row.change(env, s, func() { s.foreign = foreign.Effect{Bypasses: []foreign.Bypass{{Packets: "all"}}} })
				advance(2 * time.Minute)
				if env.states() != "1 drifted" {
					t.Errorf("after a change of routes: %s, want 1 drifted", env.states())
				}
			})
		})
	}
}

// TestDifferencesWithoutARecordHaveNoKnownCause checks that differences of a pod without a record
// of ADD are not attributed to a change of the rules, because the pod's annotations may have
// changed.
func TestDifferencesWithoutARecordHaveNoKnownCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addSandbox(web)
			s.rules = rules.MustCompile(env.redirect(web))
			web.Metadata.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "81"
			env.put(web, running)
		})
		if s.applied != 1 || len(env.events) != 1 ||
			!strings.HasPrefix(env.events[0].Message, "the pod has no record of ADD, and its rules are not") {
			t.Errorf("applied %d times, events %+v; want once, one event that names no cause", s.applied, env.events)
		}
	})
}

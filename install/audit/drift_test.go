package audit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/rules"
)

// TestDriftIsRepairedImmediately checks that changes to the rules of a running pod are repaired,
// reported and counted immediately.
func TestDriftIsRepairedImmediately(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*space)
		kind   string
		text   string
	}{
		{"all rules are missing", func(s *space) {
			s.has = rules.Ruleset{}
		}, "absent", "no rule is left"},
		{"a rule is missing", func(s *space) {
			first(s).Rules = first(s).Rules[1:]
		}, "missing", "missing in chain inet sluice"},
		{"a rule twice", func(s *space) {
			first(s).Rules = append(first(s).Rules, first(s).Rules[0])
		}, "extra", "extra in chain inet sluice"},
		{"rules in another order", func(s *space) {
			c := &s.has.Tables[0].Chains[1]
			c.Rules[0], c.Rules[1] = c.Rules[1], c.Rules[0]
		}, "reordered", "reordered in chain inet sluice"},
		{"an additional route", func(s *space) {
			s.has.Routing.Policies = []rules.PolicyRoute{{Family: rules.IPv4, Priority: 1}}
		}, "routes", "extra in routing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := meshPod("web")
				var s *space
				w := node(t, nil, func(w *testEnv) { s = w.redirected(web) })
				if got := w.states(); got != "1 redirected" || s.applied > 0 {
					t.Fatalf("before: %s, applied %d times", got, s.applied)
				}
				w.change(s, func() {
					s.has = rules.MustCompile(w.redirect(web)) // a deep copy
					row.change(s)
				})
				if !rules.Equal(rules.MustCompile(w.redirect(web)), s.has) || s.applied != 1 ||
					w.states() != "1 redirected" {
					t.Errorf("applied %d times, %s", s.applied, w.states())
				}
				// The rules that the audit has found need not be read again: see compat.Backend.
				if len(s.mended.Differences) == 0 || (s.searched > 0) != (row.kind == "absent") {
					t.Errorf("repaired with %+v, after %d searches for rules", s.mended, s.searched)
				}
				if w.metric("sluice_drifts_total{"+row.kind+"}") < 1 ||
					w.metric("sluice_repairs_total{drift,repair,success}") != 1 {
					t.Errorf("counted %v", w.counted)
				}
				if len(w.events) != 1 || w.events[0].Reason != "RedirectRepaired" ||
					w.events[0].About.UID != "uid-web" {
					t.Fatalf("told %+v", w.events)
				}
				for _, want := range []string{
					row.text, `process "nft", pid 4711`, "the redirection is restored",
				} {
					if text := w.events[0].Message; !strings.Contains(text, want) {
						t.Errorf("%q is missing: %s", want, text)
					}
				}
			})
		})
	}
}

// first returns the first chain with rules.
func first(s *space) *rules.Chain {
	for i := range s.has.Tables[0].Chains {
		if c := &s.has.Tables[0].Chains[i]; len(c.Rules) > 0 {
			return c
		}
	}
	return nil
}

// TestMissedEvents checks that changes without events, as in iptables-legacy, are found
// within the interval, and that after lost events all pods are audited immediately.
func TestMissedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a, b *space
		w := node(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1m"}, func(w *testEnv) {
			a, b = w.redirected(meshPod("a")), w.redirected(meshPod("b"))
		})
		pass(time.Second) // after the first pass, the next one is allowed
		w.set(func() { a.has, b.has = rules.Ruleset{}, rules.Ruleset{} })
		w.heard <- watch.Event{Lost: true}
		synctest.Wait()
		if a.applied != 1 || b.applied != 1 {
			t.Errorf("after a loss: repaired %d and %d times", a.applied, b.applied)
		}
		w.set(func() { a.has = rules.Ruleset{} })
		pass(time.Minute)
		if a.applied != 2 || b.applied != 1 {
			t.Errorf("after the interval: repaired %d and %d times", a.applied, b.applied)
		}
		if w.metric("sluice_events_lost_total{nftables}") != 1 ||
			w.metric("sluice_repairs_total{drift,repair,success}") != 3 {
			t.Errorf("counted %v", w.counted)
		}
	})
}

// TestLossesWithoutEnd checks that continuous losses, which a pod can cause, lead to audits that
// use at most 2 % of a core.
func TestLossesWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 100
		var list []*space
		w := node(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1h"}, func(w *testEnv) {
			for i := range pods {
				list = append(list, w.redirected(meshPod(strings.Repeat("x", i+1))))
			}
		})
		for range 600 {
			w.heard <- watch.Event{Lost: true}
			pass(100 * time.Millisecond)
		}
		checked := 0
		for _, s := range list {
			checked += s.checked
		}
		// 10 audits per second, 2 ms each.
		if most := 60*10 + 4*pods; checked > most || checked < 60*10-2*pods {
			t.Errorf("%d comparisons in a minute, want some %d", checked, most)
		}
	})
}

// TestAHostilePod checks that a pod that flushes its rules continuously is repaired once a second,
// which costs little, and is reported.
func TestAHostilePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s, other *space
		w := node(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1h"}, func(w *testEnv) {
			s, other = w.redirected(meshPod("hostile")), w.redirected(meshPod("other"))
		})
		for range 10 * 60 * 20 { // the maximum rate of the watcher for one namespace, for ten minutes
			w.flush(s)
			pass(50 * time.Millisecond)
		}
		if s.applied > 10*60+5 || s.applied < 10*60-5 {
			t.Errorf("repaired %d times in ten minutes", s.applied)
		}
		if s.checked > 2*s.applied+20 {
			t.Errorf("compared %d times in ten minutes", s.checked)
		}
		if other.applied > 0 {
			t.Error("the other pod was repaired")
		}
		reported := w.told()
		if !strings.HasPrefix(reported, "RedirectRepaired, RedirectDrifted") ||
			strings.Count(reported, ",") > 6 {
			t.Errorf("told %s", reported)
		}
		// The pod stops flushing.
		pass(2 * time.Minute)
		if w.states() != "2 redirected" {
			t.Error(w.states())
		}
	})
}

// TestRepairWithinASecond checks that removed rules are restored immediately if removals are rare,
// and within a second if they are frequent, also if another difference cannot be repaired.
func TestRepairWithinASecond(t *testing.T) {
	for name, stranger := range map[string]string{
		"everything can be repaired": "",
		"a route cannot be removed":  "ip -4 rule priority 133 from all lookup 7",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *space
				w := node(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1h"}, func(w *testEnv) {
					s = w.redirected(meshPod("web"))
					s.stranger = stranger
				})
				pass(10 * time.Minute)
				bare := func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					return len(s.has.Tables) == 0
				}
				start, before := time.Now(), s.applied
				for i := range 3 {
					if w.flush(s); bare() {
						t.Errorf("after a pause, removal %d is not repaired immediately", i+1)
					}
				}
				for i := range 60 {
					w.flush(s)
					begin := time.Now()
					for bare() {
						pass(10 * time.Millisecond)
					}
					if elapsed := time.Since(begin); elapsed > 1100*time.Millisecond {
						t.Fatalf("removal %d is repaired after %v", i+4, elapsed)
					}
				}
				if n, elapsed := s.applied-before, time.Since(start); n > int(elapsed/time.Second)+3 {
					t.Errorf("repaired %d times in %v", n, elapsed)
				}
			})
		})
	}
}

// TestDriftThatCannotBeRepaired checks that differences that cannot be repaired are reported once,
// shown as a state, and retried rarely.
func TestDriftThatCannotBeRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *space
		w := node(t, nil, func(w *testEnv) {
			s = w.redirected(meshPod("web"))
			s.stranger = "ip -4 rule priority 133 from all lookup 7"
		})
		pass(time.Hour)
		if w.states() != "1 drifted" || s.applied < 3 || s.applied > 75 {
			t.Errorf("%s, applied %d times in an hour", w.states(), s.applied)
		}
		if len(w.events) != 1 ||
			!strings.Contains(w.events[0].Message, "the agent cannot repair these differences") ||
			!strings.Contains(w.events[0].Message, "lookup 7") {
			t.Errorf("told %+v", w.events)
		}
		// Other rules are repaired nevertheless.
		applied := s.applied
		w.flush(s)
		pass(time.Minute)
		if s.applied == applied || len(s.has.Tables) == 0 {
			t.Error("the rules are not repaired")
		}
		w.set(func() { s.stranger = "" })
		pass(2 * time.Minute)
		if w.states() != "1 redirected" {
			t.Error(w.states())
		}
	})
}

// TestRulesOfOthersByWhichTrafficBypassesTheProxy checks that foreign rules that let traffic bypass
// the proxy are reported once and shown as a state, without a change. The decision is made again
// when rules may have changed.
func TestRulesOfOthersByWhichTrafficBypassesTheProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *space
		w := node(t, nil, func(w *testEnv) { s = w.redirected(meshPod("web")) })
		pass(10 * time.Minute)
		if s.inspected > 2 {
			t.Errorf("decided %d times although nothing has changed", s.inspected)
		}
		w.change(s, func() {
			s.foreign.Bypasses = []foreign.Bypass{{
				Rule: "ip evil out #1: notrack", Owner: foreign.OwnerNFT,
			}}
		})
		pass(3 * time.Minute)
		if w.states() != "1 drifted" || s.applied > 0 || len(w.events) != 1 ||
			!strings.Contains(w.events[0].Message, "rule of nft: ip evil out #1") {
			t.Errorf("%s, applied %d times, events %+v", w.states(), s.applied, w.events)
		}
		if reported := w.told(); reported != "RedirectBypassed" ||
			w.metric("sluice_pods_foreign_rules{bypass}") != 1 {
			t.Errorf("%s, %v", reported, w.counted)
		}
		w.change(s, func() { s.foreign.Bypasses = nil })
		pass(2 * time.Minute)
		if w.states() != "1 redirected" || w.metric("sluice_pods_foreign_rules{bypass}") != 0 {
			t.Errorf("%s, %v", w.states(), w.counted)
		}
	})
}

// TestADecisionOverBudgetIsMadeAgain checks that a decision that exceeded its budget is repeated
// soon. Only if that fails too, an event reports it.
func TestADecisionOverBudgetIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *space
		w := node(t, nil, func(w *testEnv) {
			s = w.redirected(meshPod("web"))
			s.foreign = foreign.Effect{
				Unknown: []string{"the decision took more than 50ms of work"}, Exhausted: true,
			}
		})
		if reported := w.told(); w.states() != "1 unknown" || reported != "" {
			t.Errorf("%s, told %s", w.states(), reported)
		}
		pass(20 * time.Second)
		if reported := w.told(); w.states() != "1 unknown" || reported != "RedirectUnknown" {
			t.Errorf("%s, told %s", w.states(), reported)
		}
		w.set(func() { s.foreign = foreign.Effect{} })
		pass(time.Minute)
		if w.states() != "1 redirected" {
			t.Error(w.states())
		}
	})
}

func TestRepairThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *space
		w := node(t, nil, func(w *testEnv) {
			s = w.redirected(meshPod("web"))
			s.refuse = errors.New("no memory")
		})
		w.flush(s)
		pass(10 * time.Minute)
		failed := w.metric("sluice_repairs_total{drift,repair,error}")
		if w.states() != "1 unprotected" || s.applied < 5 || s.applied > 25 ||
			failed != float64(s.applied) {
			t.Errorf("%s, tried %d times, %v", w.states(), s.applied, w.counted)
		}
		if reported := w.told(); !strings.HasPrefix(reported, "RedirectRepairFailed") {
			t.Error(reported)
		}
		w.set(func() { s.refuse = nil })
		pass(2 * time.Minute)
		if w.states() != "1 redirected" {
			t.Error(w.states())
		}
	})
}

// TestReportOnly checks that drift is only reported without SLUICE_AUDIT_REPAIR.
func TestReportOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *space
		w := node(t, map[string]string{"SLUICE_AUDIT_REPAIR": "false"}, func(w *testEnv) {
			s = w.redirected(meshPod("web"))
		})
		w.flush(s)
		pass(4 * time.Minute)
		if s.applied > 0 || w.states() != "1 unprotected" || w.told() != "RedirectDrifted" {
			t.Errorf("applied %d times, %s", s.applied, w.states())
		}
		if w.metric("sluice_drifts_total{absent}") != 1 {
			t.Errorf("counted %v", w.counted)
		}
	})
}

// TestWithoutAudit checks that without SLUICE_AUDIT rules are not compared, and no events are
// received.
func TestWithoutAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *space
		w := node(t, map[string]string{"SLUICE_AUDIT": "false"}, func(w *testEnv) {
			s = w.redirected(meshPod("web"))
		})
		w.set(func() { s.has = rules.Ruleset{} })
		pass(time.Hour)
		if s.checked+s.applied+w.added > 0 || w.states() != "" {
			t.Errorf("compared %d times, %s", s.checked, w.states())
		}
	})
}

// TestEqualRulesAreCheckedAgain checks that rules that were equal are only checked for changes;
// after a difference, or with another sandbox, they are read again.
func TestEqualRulesAreCheckedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *space
		w := node(t, nil, func(w *testEnv) { s = w.redirected(meshPod("web")) })
		pass(10 * time.Minute)
		if s.checked < 9 || s.rechecked != s.checked-1 {
			t.Errorf("compared %d times, of which %d by checking for changes", s.checked, s.rechecked)
		}
		w.set(func() { s.has = rules.Ruleset{}; s.checked, s.rechecked = 0, 0 })
		pass(2 * time.Minute)
		if s.applied != 1 || s.checked-s.rechecked != 2 {
			t.Errorf("repaired %d times, compared %d times, of which %d by checking for changes; want a reading after the repair, and one after that",
				s.applied, s.checked, s.rechecked)
		}
	})
}

// TestReconciliationsAreCombined checks that audits of the timer happen at a few times of the
// interval: each pod's at one of them, in each interval.
func TestReconciliationsAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var spaces []*space
		w := node(t, nil, func(w *testEnv) {
			for i := range 100 {
				spaces = append(spaces, w.redirected(meshPod(fmt.Sprintf("web-%d", i))))
			}
		})
		count := func() (n int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, s := range spaces {
				n += s.checked
			}
			return n
		}
		pass(time.Minute)
		begin, moments, most := count(), 0, 0
		for last, minute := begin, 0; minute < 60; minute++ {
			pass(time.Second)
			if now := count(); now > last {
				moments, most, last = moments+1, max(most, now-last), now
			}
		}
		if visited := count() - begin; visited != len(spaces) || moments > 6 ||
			most > len(spaces)/2 {
			t.Errorf("%d audits of %d pods at %d times, at most %d at one", visited, len(spaces),
				moments, most)
		}
		for i, s := range spaces {
			if s.checked != spaces[0].checked {
				t.Errorf("web-%d is audited %d times, web-0 %d times", i, s.checked,
					spaces[0].checked)
			}
		}
	})
}

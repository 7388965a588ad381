package audit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

// countedPod returns a mesh pod whose rules have counters.
func countedPod(namespace, name string) *decide.Pod {
	p := meshPod(name)
	p.Metadata.Namespace = namespace
	p.Metadata.Annotations["sluice-mesh.github.io/counters"] = "true"
	return p
}

// setPackets sets the packet count of the first rule with a role.
func (s *fakeNamespace) setPackets(role rules.Role, packets uint64) {
	s.env.set(func() { s.setPacketsLocked(role, packets) })
}

// setPacketsLocked is setPackets for callers that hold the lock of the environment.
func (s *fakeNamespace) setPacketsLocked(role rules.Role, packets uint64) {
	for _, c := range s.rules.Tables[0].Chains {
		for i := range c.Rules {
			if c.Rules[i].Role == role {
				c.Rules[i].Hits.Packets = packets
				return
			}
		}
	}
	s.env.t.Errorf("no rule has the role %s %s", role.Direction(), role.Outcome())
}

// checkCountersAfterAudit waits for the next audit, and checks the series of
// sluice_rule_packets_total that are not 0.
func (env *testEnv) checkCountersAfterAudit(when string, want ...string) {
	env.t.Helper()
	advance(time.Minute)
	env.Measure()
	env.mu.Lock()
	defer env.mu.Unlock()
	var got []string
	for series, n := range env.counted {
		if labels, found := strings.CutPrefix(series, "sluice_rule_packets_total"); found && n > 0 {
			got = append(got, fmt.Sprint(labels, " ", n))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		env.t.Errorf("%s: counters %q, want %q", when, got, want)
	}
}

// countSeries returns the number of series of sluice_rule_packets_total.
func (env *testEnv) countSeries() (n int) {
	env.Measure()
	env.mu.Lock()
	defer env.mu.Unlock()
	for series := range env.counted {
		if strings.HasPrefix(series, "sluice_rule_packets_total") {
			n++
		}
	}
	return n
}

func TestOnlyPodsWithTheMostPacketsHaveCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := startTestEnv(t, map[string]string{
			"SLUICE_COUNTER_METRICS": "pod", "SLUICE_COUNTER_METRICS_PODS": "2",
		})
		a, b, c := countedPod("shop", "a"), countedPod("shop", "b"), countedPod("bank", "c")
		nsA, nsB, nsC := env.addRedirected(a), env.addRedirected(b), env.addRedirected(c)
		nsA.setPackets(rules.OutboundCaptured, 10)
		nsA.setPackets(rules.InboundCaptured, 5)
		nsB.setPackets(rules.OutboundCaptured, 1)
		nsC.setPackets(rules.OutboundProxy, 7)
		env.checkCountersAfterAudit("at first", "{bank,c,outbound,proxy} 7",
			"{shop,a,inbound,captured} 5", "{shop,a,outbound,captured} 10")
		nsB.setPackets(rules.OutboundCaptured, 100)
		env.checkCountersAfterAudit("after b has received packets",
			"{shop,a,inbound,captured} 5", "{shop,a,outbound,captured} 10",
			"{shop,b,outbound,captured} 100")
		env.delete(b)
		env.checkCountersAfterAudit("after b was deleted", "{bank,c,outbound,proxy} 7",
			"{shop,a,inbound,captured} 5", "{shop,a,outbound,captured} 10")
		env.delete(a)
		env.delete(c)
		env.checkCountersAfterAudit("without pods")
	})
}

// TestCountersFollowTheNextPodWithTheName covers a force-deleted pod of a StatefulSet whose sandbox
// still exists when the next pod with its name starts. The series count the packets of the next
// pod.
func TestCountersFollowTheNextPodWithTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := startTestEnv(t, map[string]string{"SLUICE_COUNTER_METRICS": "pod"})
		first, next := countedPod("shop", "db-0"), countedPod("shop", "db-0")
		next.Metadata.UID = "uid-next"
		s := env.addRedirected(first)
		s.setPackets(rules.OutboundCaptured, 10)
		env.checkCountersAfterAudit("at first", "{shop,db-0,outbound,captured} 10")
		env.forceDelete(first)
		env.checkCountersAfterAudit("after the deletion", "{shop,db-0,outbound,captured} 10")
		env.addRedirected(next).setPackets(rules.OutboundCaptured, 3)
		s.setPackets(rules.OutboundCaptured, 20)
		env.checkCountersAfterAudit("with the next pod", "{shop,db-0,outbound,captured} 3")
		env.removeRecord(first)
		env.removeSandbox(s)
		env.checkCountersAfterAudit("after the end of the sandbox", "{shop,db-0,outbound,captured} 3")
	})
}

func TestSeriesOfCountersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for per, limit := range map[string]int{"pod": 3, "namespace": 2, "none": 0} {
			env := startTestEnv(t, map[string]string{
				"SLUICE_COUNTER_METRICS": per, "SLUICE_COUNTER_METRICS_PODS": "3",
			})
			var roles int
			for i := range 20 {
				s := env.addRedirected(countedPod(fmt.Sprint("ns-", i%2), fmt.Sprint("pod-", i)))
				s.setPackets(rules.OutboundCaptured, uint64(i))
				roles = countRoles(s.rules)
			}
			advance(time.Minute)
			if n := env.countSeries(); n != limit*roles {
				t.Errorf("%s: %d series, want %d for each of %d roles", per, n, limit, roles)
			}
			env.stop()
		}
	})
}

// countRoles returns the number of roles of the rules.
func countRoles(rs rules.Ruleset) int {
	roles := map[rules.Role]bool{}
	for _, n := range rules.PacketsByRule(rs, rs) {
		roles[n.Role] = true
	}
	return len(roles)
}

func TestPodWithoutCountersHasNoSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, per := range []string{"pod", "namespace"} {
			env := startTestEnv(t, map[string]string{"SLUICE_COUNTER_METRICS": per})
			env.addRedirected(meshPod("without"))
			advance(time.Minute)
			if n := env.countSeries(); n != 0 {
				t.Errorf("%s: %d series, want none", per, n)
			}
			env.stop()
		}
	})
}

func TestCountersNeverDecrease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := startTestEnv(t, map[string]string{"SLUICE_COUNTER_METRICS": "pod"})
		p := countedPod("shop", "web")
		s := env.addRedirected(p)
		s.setPackets(rules.OutboundCaptured, 10)
		s.setPackets(rules.InboundCaptured, 20)
		env.checkCountersAfterAudit("at first", "{shop,web,inbound,captured} 20",
			"{shop,web,outbound,captured} 10")
		env.change(s, func() { // the repair creates all rules again, with counters of 0
			s.rules.Tables[0].Chains[0].Rules = nil
		})
		s.setPackets(rules.OutboundCaptured, 12)
		env.checkCountersAfterAudit("after a repair", "{shop,web,inbound,captured} 20",
			"{shop,web,outbound,captured} 22")
		s = env.addSandbox(p) // a new sandbox of the same pod, with more packets than the previous one
		r := env.redirect(p)
		env.set(func() { s.rules = rules.MustCompile(r) })
		s.setPackets(rules.OutboundCaptured, 30)
		env.record(p, &r)
		env.put(p, running)
		env.checkCountersAfterAudit("after a new sandbox", "{shop,web,inbound,captured} 20",
			"{shop,web,outbound,captured} 52")
		r.OutboundExcludePorts = rules.Singles[uint16](5432)
		env.set(func() { s.rules = rules.MustCompile(r) })
		s.setPackets(rules.OutboundCaptured, 31)
		env.record(p, &r)
		env.put(p, running)
		// The packets since the last audit are not counted: see podCounters.update.
		env.checkCountersAfterAudit("after a change of the parameters", "{shop,web,inbound,captured} 20",
			"{shop,web,outbound,captured} 52")
		s.setPackets(rules.OutboundExcludedPort, 4)
		env.checkCountersAfterAudit("after packets under the new parameters", "{shop,web,inbound,captured} 20",
			"{shop,web,outbound,captured} 52", "{shop,web,outbound,excluded_port} 4")
	})
}

// TestPacketsDuringARepairAreCounted checks that the counters of the rules that a repair creates
// are compared with 0, even if they are above the values of the removed rules when they are read.
func TestPacketsDuringARepairAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := startTestEnv(t, map[string]string{"SLUICE_COUNTER_METRICS": "pod"})
		s := env.addRedirected(countedPod("shop", "web"))
		s.setPackets(rules.OutboundCaptured, 10)
		env.checkCountersAfterAudit("at first", "{shop,web,outbound,captured} 10")
		s.afterRepair = func() { s.setPacketsLocked(rules.OutboundCaptured, 15) }
		env.flush(s)
		env.checkCountersAfterAudit("after the repair", "{shop,web,outbound,captured} 25")
	})
}

func TestCountersOfANamespaceIncludeEndedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := startTestEnv(t, nil)
		a, b := countedPod("shop", "a"), countedPod("shop", "b")
		nsA, nsB := env.addRedirected(a), env.addRedirected(b)
		nsA.setPackets(rules.OutboundCaptured, 10)
		nsB.setPackets(rules.OutboundCaptured, 1)
		env.checkCountersAfterAudit("of two pods", "{shop,,outbound,captured} 11")
		env.delete(a)
		nsB.setPackets(rules.OutboundCaptured, 3)
		env.checkCountersAfterAudit("of the other pod", "{shop,,outbound,captured} 13")
		env.delete(b)
		env.checkCountersAfterAudit("without pods")
	})
}

func TestNoPacketIsCountedTwiceAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for per, want := range map[string][2]string{
			"pod": {"{shop,web,outbound,captured} 10", "{shop,web,outbound,captured} 12"},
			// Prometheus has counted the packets from before the restart: see readCounters.
			"namespace": {"", "{shop,,outbound,captured} 2"},
		} {
			env := newTestEnv(t, map[string]string{"SLUICE_COUNTER_METRICS": per})
			s := env.addRedirected(countedPod("shop", "web"))
			s.setPackets(rules.OutboundCaptured, 10)
			env.start()
			var first []string
			if want[0] != "" {
				first = []string{want[0]}
			}
			env.checkCountersAfterAudit(per+" at first", first...)
			s.setPackets(rules.OutboundCaptured, 12)
			env.checkCountersAfterAudit(per+" after two more packets", want[1])
			env.stop()
		}
	})
}

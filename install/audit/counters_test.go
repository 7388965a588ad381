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

// countedPod returns a pod in a namespace whose rules have counters.
func countedPod(namespace, name string) *decide.Pod {
	p := meshPod(name)
	p.Metadata.Namespace = namespace
	p.Metadata.Annotations["sluice-mesh.github.io/counters"] = "true"
	return p
}

// counts sets the packet count of the pod's rules with a role.
func (s *space) counts(role rules.Role, packets uint64) {
	s.w.set(func() {
		for _, c := range s.has.Tables[0].Chains {
			for i := range c.Rules {
				if c.Rules[i].Role == role {
					c.Rules[i].Hits.Packets = packets
					return
				}
			}
		}
		s.w.t.Errorf("no rule has the role %s %s", role.Direction(), role.Outcome())
	})
}

// wantCounters checks the series of the counters that are not 0.
func (w *testEnv) wantCounters(when string, want ...string) {
	w.t.Helper()
	pass(time.Minute)
	w.Measure()
	w.mu.Lock()
	defer w.mu.Unlock()
	var got []string
	for series, n := range w.counted {
		if labels, is := strings.CutPrefix(series, "sluice_rule_packets_total"); is && n > 0 {
			got = append(got, fmt.Sprint(labels, " ", n))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: %q, want %q", when, got, want)
	}
}

// series returns the number of series.
func (w *testEnv) series() (n int) {
	w.Measure()
	w.mu.Lock()
	defer w.mu.Unlock()
	for series := range w.counted {
		if strings.HasPrefix(series, "sluice_rule_packets_total") {
			n++
		}
	}
	return n
}

func TestCountersOfThePodsWithTheMostPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t, map[string]string{
			"SLUICE_COUNTER_METRICS": "pod", "SLUICE_COUNTER_METRICS_PODS": "2",
		})
		a, b, c := countedPod("shop", "a"), countedPod("shop", "b"), countedPod("bank", "c")
		ofA, ofB, ofC := w.redirected(a), w.redirected(b), w.redirected(c)
		ofA.counts(rules.OutboundCaptured, 10)
		ofA.counts(rules.InboundCaptured, 5)
		ofB.counts(rules.OutboundCaptured, 1)
		ofC.counts(rules.OutboundProxy, 7)
		w.wantCounters("at first", "{bank,c,outbound,proxy} 7",
			"{shop,a,inbound,captured} 5", "{shop,a,outbound,captured} 10")
		ofB.counts(rules.OutboundCaptured, 100)
		w.wantCounters("with more packets of the third pod",
			"{shop,a,inbound,captured} 5", "{shop,a,outbound,captured} 10",
			"{shop,b,outbound,captured} 100")
		w.delete(b)
		w.wantCounters("without the first pod", "{bank,c,outbound,proxy} 7",
			"{shop,a,inbound,captured} 5", "{shop,a,outbound,captured} 10")
		w.delete(a)
		w.delete(c)
		w.wantCounters("without pods")
	})
}

func TestSeriesOfCountersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for per, limit := range map[string]int{"pod": 3, "namespace": 2, "none": 0} {
			w := node(t, map[string]string{
				"SLUICE_COUNTER_METRICS": per, "SLUICE_COUNTER_METRICS_PODS": "3",
			})
			var roles int
			for i := range 20 {
				s := w.redirected(countedPod(fmt.Sprint("ns-", i%2), fmt.Sprint("pod-", i)))
				s.counts(rules.OutboundCaptured, uint64(i))
				roles = rolesOf(s.has)
			}
			pass(time.Minute)
			if n := w.series(); n != limit*roles {
				t.Errorf("%s: %d series, want %d of %d roles", per, n, limit, roles)
			}
			w.stop()
		}
	})
}

// rolesOf returns the number of roles of the rules.
func rolesOf(rs rules.Ruleset) int {
	roles := map[rules.Role]bool{}
	for _, n := range rules.PacketsByRule(rs, rs) {
		roles[n.Role] = true
	}
	return len(roles)
}

func TestPodWithoutCountersHasNoSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, per := range []string{"pod", "namespace"} {
			w := node(t, map[string]string{"SLUICE_COUNTER_METRICS": per})
			w.redirected(meshPod("without"))
			pass(time.Minute)
			if n := w.series(); n != 0 {
				t.Errorf("%s: %d series", per, n)
			}
			w.stop()
		}
	})
}

func TestCountersNeverDecrease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t, map[string]string{"SLUICE_COUNTER_METRICS": "pod"})
		p := countedPod("shop", "web")
		s := w.redirected(p)
		s.counts(rules.OutboundCaptured, 10)
		s.counts(rules.InboundCaptured, 20)
		w.wantCounters("at first", "{shop,web,inbound,captured} 20",
			"{shop,web,outbound,captured} 10")
		w.change(s, func() { // the repair creates all rules again
			s.has.Tables[0].Chains[0].Rules = nil
		})
		s.counts(rules.OutboundCaptured, 12)
		w.wantCounters("after a repair", "{shop,web,inbound,captured} 20",
			"{shop,web,outbound,captured} 22")
		s = w.home(p) // a new sandbox of the same pod, with more packets than the previous one
		r := w.redirect(p)
		w.set(func() { s.has = rules.MustCompile(r) })
		s.counts(rules.OutboundCaptured, 30)
		w.record(p, &r)
		w.put(p, running)
		w.wantCounters("after a new sandbox", "{shop,web,inbound,captured} 20",
			"{shop,web,outbound,captured} 52")
		r.OutboundExcludePorts = rules.Singles[uint16](5432)
		w.set(func() { s.has = rules.MustCompile(r) })
		s.counts(rules.OutboundCaptured, 31)
		w.record(p, &r)
		w.put(p, running)
		w.wantCounters("after a change of the parameters", "{shop,web,inbound,captured} 20",
			"{shop,web,outbound,captured} 52")
		s.counts(rules.OutboundExcludedPort, 4)
		w.wantCounters("later", "{shop,web,inbound,captured} 20",
			"{shop,web,outbound,captured} 52", "{shop,web,outbound,excluded_port} 4")
	})
}

func TestCountersOfANamespaceKeepThoseOfPodsThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t, nil)
		a, b := countedPod("shop", "a"), countedPod("shop", "b")
		ofA, ofB := w.redirected(a), w.redirected(b)
		ofA.counts(rules.OutboundCaptured, 10)
		ofB.counts(rules.OutboundCaptured, 1)
		w.wantCounters("of two pods", "{shop,,outbound,captured} 11")
		w.delete(a)
		ofB.counts(rules.OutboundCaptured, 3)
		w.wantCounters("of the other pod", "{shop,,outbound,captured} 13")
		w.delete(b)
		w.wantCounters("without pods")
	})
}

func TestCountersAfterARestartOfTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for per, want := range map[string][2]string{
			"pod":       {"{shop,web,outbound,captured} 10", "{shop,web,outbound,captured} 12"},
			"namespace": {"", "{shop,,outbound,captured} 2"}, // the namespace's counters of ended pods are lost
		} {
			w := newTestEnv(t, map[string]string{"SLUICE_COUNTER_METRICS": per})
			s := w.redirected(countedPod("shop", "web"))
			s.counts(rules.OutboundCaptured, 10)
			w.start()
			var first []string
			if want[0] != "" {
				first = []string{want[0]}
			}
			w.wantCounters(per+" at first", first...)
			s.counts(rules.OutboundCaptured, 12)
			w.wantCounters(per+" later", want[1])
			w.stop()
		}
	})
}

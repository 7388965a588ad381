package nft

import (
	"fmt"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// counted returns the ruleset of withCounters, with a different count for each rule.
func counted(change func(*rules.Redirect)) rules.Ruleset {
	rs := withCounters(change)
	n := uint64(0)
	for _, c := range rs.Tables[0].Chains {
		for i := range c.Rules {
			n++
			c.Rules[i].Hits = rules.Hits{Packets: n, Bytes: 60 * n}
		}
	}
	return rs
}

// withCounters returns the ruleset of the example "counters" after a change of the parameters.
func withCounters(change func(*rules.Redirect)) rules.Ruleset {
	return compileWith(func(r *rules.Redirect) {
		captureAll(r)
		r.Counters = true
		r.OutboundExcludeCIDRs = prefixList("10.0.0.0/8", "192.168.0.0/16")
		change(r)
	})
}

func unchanged(*rules.Redirect) {}

// hits returns the counters in the namespace by chain and rule, like hitsByRule.
func hits(t testing.TB, ns *netns.NS) map[string]rules.Hits {
	t.Helper()
	rs, err := Read(ns)
	if err != nil {
		t.Fatal(err)
	}
	return hitsByRule(&rs)
}

// hitsByRule returns the counters of a ruleset by chain and rule. The key of a rule that is printed
// like an earlier one ends with an apostrophe.
func hitsByRule(rs *rules.Ruleset) map[string]rules.Hits {
	found := map[string]rules.Hits{}
	for _, c := range rs.Tables[0].Chains {
		for i := range c.Rules {
			key := fmt.Sprint(c.Name, ": ", &c.Rules[i])
			for _, exists := found[key]; exists; _, exists = found[key] {
				key += "'"
			}
			found[key] = c.Rules[i].Hits
		}
	}
	return found
}

func TestCountersAreNotCompared(t *testing.T) {
	ns := netnstest.New(t)
	mustApply(t, ns, counted(unchanged), Created)
	want := withCounters(unchanged)
	checkRuleset(t, ns, want)
	mustApply(t, ns, want, Unchanged)
	if _, met, _ := readExpecting(t, ns, want); !met {
		t.Error("the fast comparison does not recognize rules with other counts")
	}
}

func TestCountersAreAddedAndRemoved(t *testing.T) {
	ns := netnstest.New(t)
	with := withCounters(unchanged)
	without := with.WithoutCounters()
	mustApply(t, ns, without, Created)
	mustApply(t, ns, with, Replaced)
	checkRuleset(t, ns, with)
	mustApply(t, ns, without, Replaced)
	checkRuleset(t, ns, without)
}

func TestRepairKeepsTheCounters(t *testing.T) {
	for _, row := range []struct {
		change  string
		outcome Outcome
	}{
		{"insert rule inet sluice nat-output accept", Replaced},
		{"add chain inet sluice other", Replaced},
		{"add table inet sluice { flags dormant; }", Replaced},
		{"add element inet sluice outbound-exclude-ipv4 { 20.9.9.9 }", Updated},
	} {
		t.Run(row.change, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			rs := counted(unchanged)
			mustApply(t, ns, rs, Created)
			load(t, ns, row.change)
			mustApply(t, ns, withCounters(unchanged), row.outcome)
			checkHits(t, hits(t, ns), hitsByRule(&rs))
		})
	}
}

// TestRepairDoesNotRestoreTheCountersOfASnapshot changes the counters in the snapshot, so that they
// differ from the counters in the kernel.
func TestRepairDoesNotRestoreTheCountersOfASnapshot(t *testing.T) {
	ns := netnstest.New(t)
	mustApply(t, ns, withCounters(unchanged), Created)
	load(t, ns, "insert rule inet sluice nat-output accept")
	snapshot := readSnapshot(t, ns)
	for i := range snapshot.found[0].Chains {
		for j := range snapshot.found[0].Chains[i].Rules {
			snapshot.found[0].Chains[i].Rules[j].Hits.Packets = 1000
		}
	}
	if _, err := mustPrepare(t, withCounters(unchanged)).Apply(ns, ApplyOptions{
		Since: snapshot,
	}); err != nil {
		t.Fatal(err)
	}
	for rule, h := range hits(t, ns) {
		if h.Packets >= 1000 {
			t.Errorf("%s: %v, want fewer than the 1000 packets of the snapshot", rule, h)
		}
	}
}

// TestAChangeKeepsTheCountersOfOtherRules adds a rule and replaces an element of a set.
func TestAChangeKeepsTheCountersOfOtherRules(t *testing.T) {
	ns := netnstest.New(t)
	old := counted(unchanged)
	mustApply(t, ns, old, Created)
	exclude := func(r *rules.Redirect) {
		r.OutboundExcludePorts = portList("5432")
		r.OutboundExcludeCIDRs = prefixList("10.0.0.0/8", "172.16.0.0/12")
	}
	mustApply(t, ns, withCounters(exclude), Replaced)
	want := hitsByRule(&old)
	want["nat-output: tcp dport 5432 counter return"] = rules.Hits{}
	checkHits(t, hits(t, ns), want)
}

// TestModeChangeKeepsTheCountersOfOtherRules covers a replacement that adds a gate to the old rules
// first.
func TestModeChangeKeepsTheCountersOfOtherRules(t *testing.T) {
	ns := netnstest.New(t)
	old := counted(unchanged)
	mustApply(t, ns, old, Created)
	mustApply(t, ns, withCounters(func(r *rules.Redirect) { r.Mode = rules.ModeTProxy }), Replaced)
	before := hitsByRule(&old)
	kept := 0
	for rule, got := range hits(t, ns) {
		if want, ok := before[rule]; ok {
			kept++
			if got.Packets < want.Packets {
				t.Errorf("%s: %v, want at least %v", rule, got, want)
			}
		}
	}
	if kept == 0 {
		t.Error("no rule is in both rulesets, want at least one")
	}
}

func checkHits(t *testing.T, got, want map[string]rules.Hits) {
	t.Helper()
	for rule, w := range want {
		if g, ok := got[rule]; !ok || g != w {
			t.Errorf("%s: %v (rule exists: %t), want %v", rule, g, ok, w)
		}
	}
	for rule := range got {
		if _, ok := want[rule]; !ok {
			t.Errorf("unexpected rule %s", rule)
		}
	}
}

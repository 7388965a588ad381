package compat_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

func counters(r *rules.Redirect) { r.Counters = true }

func TestLegacyRulesAreTheSameWithCounters(t *testing.T) {
	for _, change := range []func(*rules.Redirect){tproxy, dual} {
		if diff := cmp.Diff(tables(t, change, allDNS, exclusions),
			tables(t, change, allDNS, exclusions, counters), cmp.Comparer(sameText)); diff != "" {
			t.Errorf("-without +with counters:\n%s", diff)
		}
	}
}

func sameText(a, b rules.Rule) bool { return a.String() == b.String() && a.Comment == b.Comment }

// TestLegacyKeepsCounters verifies that the remaining rules keep their counters if Apply repairs a
// deleted rule, and that some rules keep them if the parameters change.
func TestLegacyKeepsCounters(t *testing.T) {
	ns := netnstest.New(t)
	b := chosen(t, compat.BackendLegacy)
	applyAndCheck(t, b, ns, compiled(t), nft.Created)
	before := setCounters(t, ns)
	table := must(xtables.Read(ns, rules.IPv4, "nat"))
	out := table.Chain("SLUICE_OUTPUT")
	out.Rules = out.Rules[1:]
	if err := xtables.Replace(ns, table); err != nil {
		t.Fatal(err)
	}
	remaining := hits(t, ns)
	applyAndCheck(t, b, ns, compiled(t), nft.Replaced)
	for rule, h := range hits(t, ns) {
		if _, exists := remaining[rule]; exists && h != before[rule] {
			t.Errorf("%s: %v after the repair, want %v", rule, h, before[rule])
		}
	}
	applyAndCheck(t, b, ns, compiled(t, exclusions), nft.Replaced)
	kept := 0
	for rule, h := range hits(t, ns) {
		if _, exists := remaining[rule]; exists && h == before[rule] {
			kept++
		}
	}
	if kept == 0 {
		t.Error("no rule kept its counter when the parameters changed")
	}
}

// setCounters gives each IPv4 rule a different counter, and returns the counters as hits does.
func setCounters(t *testing.T, ns *netns.NS) map[string]rules.Hits {
	t.Helper()
	var counted strings.Builder
	n := 0
	for line := range strings.Lines(istiotest.Save(t, ns, istiotest.Legacy, rules.IPv4)) {
		if rule, ok := strings.CutPrefix(line, "[0:0] -A"); ok {
			n++
			line = fmt.Sprintf("[%d:%d] -A%s", n, 60*n, rule)
		}
		counted.WriteString(line)
	}
	istiotest.Run(t, ns, counted.String(), "iptables-legacy-restore", "--counters")
	return hits(t, ns)
}

// hits returns the counters of Sluice's IPv4 rules in nat, by chain and rule.
func hits(t *testing.T, ns *netns.NS) map[string]rules.Hits {
	t.Helper()
	rs, err := chosen(t, compat.BackendLegacy).Read(ns)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]rules.Hits{}
	for _, table := range rs.Tables {
		if table.Name != "nat" || table.Family != rules.IPv4 {
			continue
		}
		for _, c := range table.Chains {
			for i := range c.Rules {
				found[c.Name+": "+c.Rules[i].String()] = c.Rules[i].Hits
			}
		}
	}
	return found
}

func TestCheckIgnoresAdditionalCounters(t *testing.T) {
	ns := netnstest.New(t)
	b := chosen(t, compat.BackendNFT)
	with, without := compiled(t, dual, counters), compiled(t, dual)
	applyAndCheck(t, b, ns, with, nft.Created)
	wantInSync(t, b, ns, without)
	applyAndCheck(t, b, ns, without, nft.Replaced)
	found, err := b.Check(ns, with, compat.Snapshot{})
	if err != nil || len(found.Differences) == 0 {
		t.Errorf("differences %v, error %v; want differences for the missing counters",
			found.Differences, err)
	}
}

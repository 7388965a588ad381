package compat_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestOrderOfChainsAtConntracksPriority verifies that ReadLive reports whether chains at
// conntrack's priority run before conntrack, or that their order is unknown if the kernel does not
// list the functions at a hook. At equal priority the kernel first runs the function that was
// registered last, and conntrack registers its function when the first rule needs it.
func TestOrderOfChainsAtConntracksPriority(t *testing.T) {
	ns := netnstest.New(t)
	_, err := nft.Hooks(ns)
	isListed := !nft.IsNotSupported(err)
	chain := func(table, rule string) string {
		return "table inet " + table + " { chain c { type filter hook prerouting priority -200; " +
			rule + "; }; }"
	}
	orders := func() (found map[string]int, ambiguous []compat.Ambiguity) {
		live := readLive(t, ns, compat.OriginAll)
		found = map[string]int{}
		for _, c := range live.Ruleset.BaseChains(rules.Prerouting) {
			found[c.Table.Name] = c.Chain.Base.Order
		}
		return found, live.Ambiguous
	}
	nftables(t, ns, chain("older", "counter"))
	found, ambiguous := orders()
	if diff := cmp.Diff(map[string]int{"older": 0}, found); diff != "" || len(ambiguous) > 0 {
		t.Errorf("without conntrack, ambiguous: %v, want no ambiguity; orders -want +got\n%s", ambiguous,
			diff)
	}
	nftables(t, ns, chain("tracks", "ct state new counter"))
	nftables(t, ns, chain("newer", "counter"))
	nftables(t, ns, chain("newest", "counter"))
	found, ambiguous = orders()
	if !isListed {
		if len(ambiguous) != 1 || len(ambiguous[0].Chains) != 4 {
			t.Errorf("with conntrack and without a list of functions, ambiguous: %v, want the four chains",
				ambiguous)
		}
		return
	}
	want := map[string]int{"newest": -2, "newer": -1, "tracks": 1, "older": 2}
	if diff := cmp.Diff(want, found); diff != "" || len(ambiguous) > 0 {
		t.Errorf("with conntrack, ambiguous: %v, want no ambiguity; orders -want +got\n%s", ambiguous, diff)
	}
}

// TestChainsAtOtherHooksAreReported verifies that ReadLive reports a chain at the hook ingress of a
// device.
func TestChainsAtOtherHooksAreReported(t *testing.T) {
	ns := netnstest.New(t)
	nftables(t, ns,
		`table netdev filter { chain ingress { type filter hook ingress device "lo" priority 0; drop; }; }`)
	for origin, want := range map[compat.Origin][]string{
		compat.OriginAll:         {"table netdev filter chain ingress at ingress of lo (1 rule)"},
		compat.OriginNFT:         {"table netdev filter chain ingress at ingress of lo (1 rule)"},
		compat.OriginNFTables:    {"table netdev filter chain ingress at ingress of lo (1 rule)"},
		compat.OriginIPTablesNFT: nil,
		compat.OriginLegacy:      nil,
	} {
		if diff := cmp.Diff(want, readLive(t, ns, origin).UnmodeledChains); diff != "" {
			t.Errorf("origin %q, -want +got\n%s", origin, diff)
		}
	}
}

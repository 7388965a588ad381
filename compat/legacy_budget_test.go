package compat_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestManyChainsOfAPodCostLittleTime checks that a repair quickly removes thousands of chains with
// Sluice's prefix that a pod has added, and the jumps to them.
func TestManyChainsOfAPodCostLittleTime(t *testing.T) {
	netnstest.RequireRoot(t)
	ns := netnstest.New(t)
	const n = 30_000 // about the limit of package xtables
	table, err := xtables.Open(ns, rules.IPv4, "mangle")
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%sPOD_%d", compat.ChainPrefix, i)
	}
	if _, err = table.AddChains(names...); err != nil {
		t.Fatal(err)
	}
	output := table.Chain("OUTPUT")
	for _, name := range names {
		jump, err := xtables.NewRule(rules.IPv4, xtables.Header{}, nil, xtables.Target{Chain: name})
		if err != nil {
			t.Fatal(err)
		}
		output.Rules = append(output.Rules, jump)
	}
	if err := xtables.Replace(ns, table); err != nil {
		t.Fatal(err)
	}
	legacy, rs := chosen(t, compat.BackendLegacy), compiled(t)
	bound := budgettest.Bound{Processor: 5 * time.Second / 2, Allocated: 2 << 30}
	err = ns.Do(func() (err error) {
		bound.Check(t, "the repair", func() { _, err = legacy.Apply(nil, rs, compat.Snapshot{}) })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wantInSync(t, legacy, ns, rs)
	if table, err = xtables.Read(ns, rules.IPv4, "mangle"); err != nil {
		t.Fatal(err)
	}
	if len(table.Chains) > 5 {
		t.Errorf("%d chains remain in the table, want the built-in chains", len(table.Chains))
	}
}

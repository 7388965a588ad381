package kerneltest_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestValuesThatOnlyUnknownConditionsRead loads pairs of rulesets of which one writes what the same
// condition of both reads, and which the model has no word for. The kernel treats the packet in two
// ways, and no decision calls the rulesets equivalent; of a ruleset and itself it still does,
// unless a list of the kernel decides.
func TestValuesThatOnlyUnknownConditionsRead(t *testing.T) {
	n := network(t)
	type pair struct {
		says         string
		writes       func() kerneltest.Table
		reads        func() kerneltest.Table
		sameAsItself bool
	}
	inNFT := func(list ...string) func() kerneltest.Table {
		return func() kerneltest.Table {
			return chains(rules.Inet, append([]string{mangleNFT}, list...))
		}
	}
	inXT := func(p kerneltest.Program, list ...string) func() kerneltest.Table {
		return func() kerneltest.Table { return xtables(p, "mangle", list...) }
	}
	pairs := []pair{
		{
			"a priority", inNFT("meta priority set 1:2", "meta priority 1:2 drop"),
			inNFT("meta priority 1:2 drop"), true,
		},
		{"a label", inNFT("ct label set 1", "ct label 1 drop"), inNFT("ct label 1 drop"), true},
	}
	for _, p := range []kerneltest.Program{legacy, variant} {
		const checks = "PREROUTING -m recent --name r --rcheck -j DROP"
		const labelled = "PREROUTING -m connlabel --label 1 -j DROP"
		pairs = append(
			pairs,
			pair{
				string(p) + ": recent addresses",
				inXT(p, "PREROUTING -m recent --name r --set", checks),
				inXT(p, checks), true,
			},
			pair{
				string(p) + ": a label",
				inXT(p, "PREROUTING -m connlabel --label 1 --set", labelled),
				inXT(p, labelled), true,
			},
		)
	}
	for _, tc := range pairs {
		t.Run(tc.says, func(t *testing.T) {
			look := func(table kerneltest.Table) (diff.Side, string) {
				if err := n.Load(one(table)); err != nil {
					t.Fatal(err)
				}
				live, err := n.Read()
				if err != nil {
					t.Fatal(err)
				}
				p := syn
				n.Complete(&p)
				o, err := n.Observe([]rules.Packet{p})
				if err != nil {
					t.Fatal(err)
				}
				effect, err := o[0].Effect(&p)
				if err != nil || o[0].Err != nil {
					t.Fatal(err, o[0].Err)
				}
				return diff.Side{Ruleset: live.Ruleset}, effect.String()
			}
			left, dropped := look(tc.writes())
			right, passes := look(tc.reads())
			if dropped != "dropped" || passes == dropped {
				t.Errorf("the kernel: %s and %s", dropped, passes)
			}
			if r := diff.Decide(left, right, diff.Options{}); r.Verdict(true) == diff.Equivalent {
				t.Error("both are said to be equivalent")
			}
			if r := diff.Decide(right, right,
				diff.Options{}); (r.Verdict(true) == diff.Equivalent) != tc.sameAsItself {
				t.Errorf("of a ruleset and itself: %s, want equivalent %t", r.Verdict(true),
					tc.sameAsItself)
			}
		})
	}
}

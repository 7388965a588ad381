package kerneltest_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestDecisionsConsiderValuesOfUnknownConditions loads pairs of rulesets with the same condition,
// which the model cannot express. Only one ruleset of a pair writes the value that the condition
// reads. The kernel drops a packet with this ruleset only. Therefore no decision may say that the
// rulesets are equivalent. A ruleset is still equivalent to itself.
func TestDecisionsConsiderValuesOfUnknownConditions(t *testing.T) {
	n := network(t)
	type pair struct {
		name          string
		writes, reads kerneltest.Table
	}
	inNFT := func(list ...string) kerneltest.Table {
		return chains(rules.Inet, append([]string{mangleNFT}, list...))
	}
	pairs := []pair{
		{
			"a priority", inNFT("meta priority set 1:2", "meta priority 1:2 drop"),
			inNFT("meta priority 1:2 drop"),
		},
		{"a label", inNFT("ct label set 1", "ct label 1 drop"), inNFT("ct label 1 drop")},
	}
	for _, p := range []kerneltest.Program{legacy, iptablesNFT} {
		const checks = "PREROUTING -m recent --name r --rcheck -j DROP"
		const labeled = "PREROUTING -m connlabel --label 1 -j DROP"
		pairs = append(
			pairs,
			pair{
				string(p) + ": recent addresses",
				xtables(p, "mangle", "PREROUTING -m recent --name r --set", checks),
				xtables(p, "mangle", checks),
			},
			pair{
				string(p) + ": a label",
				xtables(p, "mangle", "PREROUTING -m connlabel --label 1 --set", labeled),
				xtables(p, "mangle", labeled),
			},
		)
	}
	for _, tc := range pairs {
		t.Run(tc.name, func(t *testing.T) {
			loadAndSend := func(table kerneltest.Table) (diff.Side, string) {
				if err := n.Load(rulesetOf(table)); err != nil {
					t.Fatal(err)
				}
				live, err := n.Read()
				if err != nil {
					t.Fatal(err)
				}
				effect := sendSYN(t, n)
				return diff.Side{Ruleset: live.Ruleset}, effect.String()
			}
			left, withWrite := loadAndSend(tc.writes)
			right, withoutWrite := loadAndSend(tc.reads)
			if withWrite != "dropped" || withoutWrite == "dropped" {
				t.Errorf("the kernel: %s with the writing rule, %s without it; want dropped only "+
					"with it", withWrite, withoutWrite)
			}
			if r := diff.Decide(left, right, diff.Options{}); r.StrictVerdict() == diff.Equivalent {
				t.Errorf("with and without the writing rule: verdict %s, want another one",
					diff.Equivalent)
			}
			if r := diff.Decide(right, right, diff.Options{}); r.StrictVerdict() != diff.Equivalent {
				t.Errorf("a ruleset compared with itself: %s, want %s", r.StrictVerdict(),
					diff.Equivalent)
			}
		})
	}
}

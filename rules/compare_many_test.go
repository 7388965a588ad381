package rules_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// manyRules returns n rules in a chain, which redirect connections to the port: as in
// iptables-legacy, one rule for each address.
func manyRules(n int, port uint16) rules.Ruleset {
	chain := make([]rules.Rule, n)
	for i := range chain {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		chain[i] = rules.Rule{
			Matches: []rules.Match{rules.MatchAddr{
				Side:   rules.Destination,
				Ranges: rules.AddrRanges([]netip.Prefix{netip.PrefixFrom(a, 32)}),
			}},
			Actions: []rules.Action{redirect(port)},
		}
	}
	return rules.Ruleset{Tables: []rules.Table{{
		Name: "nat", Chains: []rules.Chain{{Name: "OUTPUT", Rules: chain}},
	}}}
}

func TestCompareManyRules(t *testing.T) {
	const n = 10_000
	list := func(rs rules.Ruleset) *[]rules.Rule { return &rs.Tables[0].Chains[0].Rules }
	for _, tc := range []struct {
		name   string
		change func(list []rules.Rule) []rules.Rule
		// kinds is the expected number of differences of each kind.
		kinds map[rules.DifferenceKind]int
	}{
		{"all rules changed", func([]rules.Rule) []rules.Rule {
			return *list(manyRules(n, 2))
		}, map[rules.DifferenceKind]int{
			rules.Missing: n, rules.Extra: n,
		}},
		{"every second rule changed", func(l []rules.Rule) []rules.Rule {
			for i, other := range *list(manyRules(n, 2)) {
				if i%2 == 0 {
					l[i] = other
				}
			}
			return l
		}, map[rules.DifferenceKind]int{rules.Missing: n / 2, rules.Extra: n / 2}},
		{"the first rule moved to the end", func(l []rules.Rule) []rules.Rule {
			return append(l[1:], l[0])
		}, map[rules.DifferenceKind]int{rules.Reordered: 1}},
		{"the first and last rule deleted, and one inserted", func(l []rules.Rule) []rules.Rule {
			return slices.Insert(l[1:n-1], n/2, rules.Rule{Actions: []rules.Action{rules.Drop}})
		}, map[rules.DifferenceKind]int{rules.Missing: 2, rules.Extra: 1}},
		{"all rules in reverse order", func(l []rules.Rule) []rules.Rule {
			slices.Reverse(l)
			return l
		}, map[rules.DifferenceKind]int{rules.Reordered: n - 1}},
		{"all rules duplicated", func(l []rules.Rule) []rules.Rule {
			return append(l, l...)
		}, map[rules.DifferenceKind]int{rules.Extra: n}},
		{"the same rule repeated", func(l []rules.Rule) []rules.Rule {
			return slices.Repeat(l[1:2], n)
		}, map[rules.DifferenceKind]int{rules.Missing: n - 1, rules.Extra: n - 1}},
	} {
		got := manyRules(n, 1)
		*list(got) = tc.change(*list(got))
		kinds := map[rules.DifferenceKind]int{}
		for _, d := range rules.Compare(manyRules(n, 1), got) {
			kinds[d.Kind]++
		}
		if fmt.Sprint(kinds) != fmt.Sprint(tc.kinds) {
			t.Errorf("%s: differences by kind %v, want %v", tc.name, kinds, tc.kinds)
		}
	}
}

// TestCompareTakesLinearSpace verifies that the allocations per rule hardly grow with the number of
// rules.
func TestCompareTakesLinearSpace(t *testing.T) {
	perRule := func(n int) (objects, bytes float64) {
		want, got := manyRules(n, 1), manyRules(n, 2)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rules.Compare(want, got)
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / float64(n),
			float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
	}
	objects, bytes := perRule(2_000)
	manyObjects, manyBytes := perRule(10_000)
	if manyObjects > 1.5*objects || manyBytes > 1.5*bytes {
		t.Errorf("Compare allocates %.0f objects and %.0f bytes per rule for 10,000 rules, "+
			"want at most 1.5 times the %.0f objects and %.0f bytes per rule for 2,000 rules",
			manyObjects, manyBytes, objects, bytes)
	}
}

func BenchmarkCompare(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		for name, got := range map[string]rules.Ruleset{
			"equal": manyRules(n, 1), "changed": manyRules(n, 2),
		} {
			want := manyRules(n, 1)
			b.Run(fmt.Sprintf("%s/rules=%d", name, n), func(b *testing.B) {
				for b.Loop() {
					rules.Compare(want, got)
				}
			})
		}
	}
}

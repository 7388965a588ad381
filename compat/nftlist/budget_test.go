package nftlist_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat/nftlist"
	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// boundOfReading is the bound for reading a text. boundOfDecision is the bound for one decision
// within diff.AgentBudget, including resources that the budget does not count. The bounds are
// twenty times the measured values.
var (
	boundOfReading  = budgettest.Bound{Processor: 10 * time.Second, Allocated: 1 << 30}
	boundOfDecision = budgettest.Bound{Processor: 2 * time.Second, Allocated: 256 << 20}
)

// TestCostlyTextsAreReadWithinTheirBudget verifies that the cost of reading is about proportional
// to the length of the text.
func TestCostlyTextsAreReadWithinTheirBudget(t *testing.T) {
	const many = 20_000
	repeated := func(format string) string {
		var all strings.Builder
		for i := range many {
			fmt.Fprintf(&all, format, i)
		}
		return "table inet t {\n" + all.String() + "}\n"
	}
	texts := map[string]string{
		"many chains":      repeated("\tchain c%d {\n\t\tdrop\n\t}\n"),
		"many sets":        repeated("\tset s%d {\n\t\ttype ipv4_addr\n\t\telements = { 1.1.1.1 }\n\t}\n"),
		"many base chains": repeated("\tchain c%d {\n\t\ttype filter hook output priority 0; policy drop;\n\t}\n"),
		"many rules":       chainOf(strings.Repeat("tcp dport 80 drop\n", many)),
		"many statements":  chainOf(strings.Repeat("counter ", many)),
		"unknown words":    chainOf(strings.Repeat("x ", many)),
		"many braces":      chainOf(strings.Repeat("{", many) + strings.Repeat("}", many)),
		"nested elements": chainOf("tcp dport " + strings.Repeat("{ 1, ", many) +
			strings.Repeat("}", many)),
		"many elements": chainOf("tcp dport { " + strings.Repeat("1, ", many) + "} drop"),
		"many flags":    chainOf("ct state " + strings.Repeat("new,", many) + "new drop"),
		"quotes":        chainOf(strings.Repeat(`"`, 2*many)),
		"verdict maps":  mapsOf(many, "tcp dport vmap @m\n"),
		"address maps":  addressMapsOf(many),
		"used empty sets": repeated("\tset s%[1]d {\n\t\ttype ipv4_addr\n\t}\n" +
			"\tset r%[1]d {\n\t\ttype ipv4_addr\n\t}\n" +
			"\tchain c%[1]d {\n\t\tip saddr @s%[1]d ip daddr @r%[1]d drop\n\t}\n"),
		"unmodeled chains": repeated("}\ntable netdev t%d {\n" +
			"\tchain c {\n\t\ttype filter hook ingress device lo priority 0; policy drop;\n\t}\n" +
			"\tchain d {\n\t}\n\tchain e {\n\t}\n"),
		"an anonymous map": chainOf("tcp dport vmap { " + strings.Repeat("1 : drop, ", many) + "}"),
		"deep operations":  chainOf("meta mark" + strings.Repeat(" & 1", many) + " == 1 drop"),
		"computations":     chainOf(strings.Repeat("jhash ", many) + "ip saddr mod 2 1 drop"),
		"protocol matches": chainOf(strings.Repeat("meta l4proto icmp ", many)),
		"concatenations":   chainOf("fib " + strings.Repeat("daddr . ", many) + "oif type local"),
	}
	for _, name := range rulestest.Sample(slices.Sorted(maps.Keys(texts)), os.Getenv) {
		text := texts[name]
		t.Run(name, func(t *testing.T) {
			boundOfReading.Check(t, "reading", func() {
				l, err := nftlist.Parse("file", strings.NewReader(text))
				if err == nil && len(l.UnmodeledChains) > 101 {
					t.Errorf("%d lines about unmodeled chains, want at most 101", len(l.UnmodeledChains))
				}
				if tooMany := name == "many base chains"; tooMany != (err != nil) {
					t.Errorf("error %v, want an error: %t", err, tooMany)
				}
			})
		})
	}
}

// TestLargeListing verifies that the size of a listing is limited, and that the error names the
// limit.
func TestLargeListing(t *testing.T) {
	large := strings.NewReader(strings.Repeat("# no rules\n", 80<<20/11))
	for _, tc := range []struct {
		memory int64
		want   string
	}{
		{256 << 20, "file: more than 512 KiB, which is the limit with the memory limit GOMEMLIMIT"},
		{math.MaxInt64, "file: more than 64 MiB"},
	} {
		previous := debug.SetMemoryLimit(tc.memory)
		_, err := nftlist.Parse("file", large)
		debug.SetMemoryLimit(previous)
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("memory limit %d: error %v, want %s", tc.memory, err, tc.want)
		}
	}
}

// mapsOf returns a listing with many elements in a map and many rules that use it.
func mapsOf(many int, rule string) string {
	var elements strings.Builder
	for i := range many {
		fmt.Fprintf(&elements, "%d : drop, ", i)
	}
	return "table inet t {\n\tmap m {\n\t\ttype inet_service : verdict\n\t\telements = { " +
		elements.String() + "}\n\t}\n\tchain c {\n" + strings.Repeat(rule, many) + "\t}\n}\n"
}

// addressMapsOf returns a listing with many elements in a map of addresses and many rules that use
// it.
func addressMapsOf(many int) string {
	var elements strings.Builder
	for i := range many {
		fmt.Fprintf(&elements, "10.0.%d.%d : 10.1.1.1, ", i>>8, i&0xff)
	}
	return "table inet t {\n\tmap m {\n\t\ttype ipv4_addr : ipv4_addr\n\t\telements = { " +
		elements.String() + "}\n\t}\n\tchain c {\n" +
		strings.Repeat("dnat ip to ip saddr map @m\n", many) + "\t}\n}\n"
}

// FuzzTextWithinBudget verifies that there is no panic, that errors name the file, and that
// decisions end within their budget.
func FuzzTextWithinBudget(f *testing.F) {
	files, err := filepath.Glob("../../nft/testdata/programs/*.nft")
	if err != nil || len(files) == 0 {
		f.Fatalf("rulesets of programs %v, error %v; want some", files, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	for _, rule := range append(knownRules, unknownRules...) {
		f.Add(chainOf(rule))
	}
	f.Fuzz(func(t *testing.T, text string) {
		var l *nftlist.Listing
		boundOfReading.Check(t, "reading", func() {
			l, err = nftlist.Parse("file", strings.NewReader(text))
		})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "file:") {
				t.Errorf("the error does not begin with the name of the file: %v", err)
			}
			return
		}
		ruleset := rules.Ruleset{Tables: l.Tables}
		_ = ruleset.String()
		boundOfDecision.Check(t, "deciding", func() {
			diff.Decide(diff.Side{Ruleset: ruleset}, diff.Side{}, diff.Options{Budget: diff.AgentBudget})
		})
	})
}

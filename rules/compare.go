package rules

import (
	"fmt"
	"net/netip"
	"slices"
)

// A Difference is a difference between an actual ruleset and the expected one.
type Difference struct {
	Kind DifferenceKind `json:"kind"`
	// Where is the position: "the ruleset", "table inet sluice", "chain inet sluice nat-output" or
	// "routing". If the elements of a set differ, Where also names the set, as in "chain inet
	// sluice nat-output, set outbound-exclude-ipv4", and Want or Got lists the differing elements.
	Where string `json:"where"`
	// Want is the expected text and Got the actual one; either may be empty.
	Want string `json:"want,omitempty"`
	Got  string `json:"got,omitempty"`
}

// DifferenceKind is the kind of a difference.
type DifferenceKind string

// The kinds of differences.
const (
	Missing   DifferenceKind = "missing"
	Extra     DifferenceKind = "extra"
	Changed   DifferenceKind = "changed"
	Reordered DifferenceKind = "reordered" // the same rule at another position among the rules
)

// String describes the difference in one line.
func (d Difference) String() string {
	switch d.Kind {
	case Missing:
		return fmt.Sprintf("missing in %s: %s", d.Where, d.Want)
	case Changed:
		return fmt.Sprintf("changed in %s: want %s, found %s", d.Where, d.Want, d.Got)
	}
	return fmt.Sprintf("%s in %s: %s", d.Kind, d.Where, d.Got)
}

// DifferenceTexts returns the text of each difference; see [Difference.String].
func DifferenceTexts(differences []Difference) []string {
	return textsOf(differences, Difference.String)
}

// Compare compares two rulesets rule by rule, and returns their differences, even if both treat
// every packet alike. The order of rules matters, the order of tables and chains does not.
// Comments, roles, values of counters, handles, line numbers and the names of sets are not
// compared, nor are [Base.Order], [Table.XTables] and [Rule.XTables].
func Compare(want, got Ruleset) []Difference {
	diffs := compareNamed(want.Tables, got.Tables,
		func(t *Table) string { return "table " + t.Family.String() + " " + t.Name }, compareTables)
	return append(diffs, compareRouting(want.Routing, got.Routing)...)
}

// Equal reports whether [Compare] returns no differences.
func Equal(a, b Ruleset) bool { return len(Compare(a, b)) == 0 }

// compareNamed returns the differences that compare finds between elements of the same name, and a
// difference for each element whose name only one side has.
func compareNamed[T any](
	want, got []T, name func(*T) string, compare func(want, got *T) []Difference,
) []Difference {
	var diffs []Difference
	index := func(elements []T) map[string]*T {
		byName := make(map[string]*T, len(elements))
		// Iterate backward: of several elements with the same name, the first one is compared.
		for i := range slices.Backward(elements) {
			byName[name(&elements[i])] = &elements[i]
		}
		return byName
	}
	wanted, found := index(want), index(got)
	for i := range want {
		key := name(&want[i])
		if found[key] != nil {
			diffs = append(diffs, compare(&want[i], found[key])...)
			continue
		}
		diffs = append(diffs, Difference{Kind: Missing, Where: "the ruleset", Want: key})
	}
	for i := range got {
		if key := name(&got[i]); wanted[key] == nil {
			diffs = append(diffs, Difference{Kind: Extra, Where: "the ruleset", Got: key})
		}
	}
	return diffs
}

// compareTables returns the differences of two tables: of their chains and their owner flags, and
// one for each unused set of got that no rule of want uses.
func compareTables(want, got *Table) []Difference {
	table := want.Family.String() + " " + want.Name
	chainName := func(c *Chain) string { return "chain " + table + " " + c.Name }
	diffs := compareNamed(want.Chains, got.Chains, chainName,
		func(want, got *Chain) []Difference { return compareChains(chainName(want), want, got) })
	if want.Owned != got.Owned {
		diffs = append(diffs,
			Difference{Changed, "table " + table, want.ownerText(), got.ownerText()})
	}
	for _, name := range got.UnusedSets {
		// If the rule that uses the set is missing, the missing rule is already reported.
		if !slices.ContainsFunc(want.Sets(), func(m MatchAddr) bool { return m.Set == name }) {
			diffs = append(diffs,
				Difference{Extra, "table " + table, "", "set " + name + ", which no rule uses"})
		}
	}
	return diffs
}

// ownerText describes whether a process owns the table.
func (t *Table) ownerText() string {
	if t.Owned {
		return "flags owner"
	}
	return "no owner"
}

// compareChains returns the differences of two chains. where describes the chain.
func compareChains(where string, want, got *Chain) []Difference {
	var diffs []Difference
	if !sameBase(want.Base, got.Base) {
		diffs = append(diffs, Difference{Changed, where, want.Base.String(), got.Base.String()})
	}
	if slices.EqualFunc(want.Rules, got.Rules, sameRule) {
		return diffs
	}
	return append(diffs, compareRules(where, want.Rules, got.Rules)...)
}

// sameBase reports whether two chains have the same hook, type, priority and policy.
func sameBase(a, b *Base) bool {
	if a == nil || b == nil {
		return a == b
	}
	sameOrder := *a
	sameOrder.Order = b.Order
	return sameOrder == *b
}

// compareRouting returns the differences of two routings.
func compareRouting(want, got Routing) []Difference {
	var diffs []Difference
	missing := func(text string) {
		diffs = append(diffs, Difference{Kind: Missing, Where: "routing", Want: text})
	}
	extra := func(text string) {
		diffs = append(diffs, Difference{Kind: Extra, Where: "routing", Got: text})
	}
	forEachNotIn(want.Policies, got.Policies, func(p PolicyRoute) { missing(p.String()) })
	forEachNotIn(got.Policies, want.Policies, func(p PolicyRoute) { extra(p.String()) })
	// A policy rule without its route is extra, unless the desired routing contains it: then it was
	// reported as missing above.
	forEachNotIn(got.Unrouted, want.Policies, func(p PolicyRoute) {
		extra(p.ruleString() + ", without its route")
	})
	address := func(a netip.Addr) string { return "address " + a.String() + " dev lo" }
	forEachNotIn(want.LoopbackAddrs, got.LoopbackAddrs, func(a netip.Addr) { missing(address(a)) })
	forEachNotIn(got.LoopbackAddrs, want.LoopbackAddrs, func(a netip.Addr) { extra(address(a)) })
	forEachNotIn(got.Others, want.Others, extra)
	return diffs
}

// forEachNotIn calls report with each value that is not among the others.
func forEachNotIn[T comparable](values, others []T, report func(T)) {
	for _, v := range values {
		if !slices.Contains(others, v) {
			report(v)
		}
	}
}

// String returns the policy rule and its route in the syntax of the ip command.
func (p PolicyRoute) String() string {
	return fmt.Sprintf("%s; local default dev lo table %d", p.ruleString(), p.Table)
}

// ruleString returns the policy rule in the syntax of the ip command.
func (p PolicyRoute) ruleString() string {
	family := map[Family]string{IPv4: "-4", IPv6: "-6"}[p.Family]
	mark := fmt.Sprintf("0x%x", p.Mark)
	if p.Mask != 0 {
		mark += fmt.Sprintf("/0x%x", p.Mask)
	}
	return fmt.Sprintf("ip %s rule priority %d fwmark %s lookup %d", family, p.Priority, mark,
		p.Table)
}

// String returns the type, hook, priority and policy in nft's syntax, or "no hook" for nil.
func (b *Base) String() string {
	if b == nil {
		return "no hook"
	}
	policy := Accept
	if b.Drop {
		policy = Drop
	}
	return fmt.Sprintf("type %s hook %s priority %d; policy %s;", b.Type, b.Hook, b.Priority,
		policy)
}

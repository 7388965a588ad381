// Package rulestest provides helpers for tests: the number of random inputs, waiting for a
// condition, and functions that list or replace matches of rules.
package rulestest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// Unknowns returns three lists of the unsupported expressions in foreign rules. The first list is
// about the chains that packets at prerouting can reach, the second about the chains that packets
// at output can reach, and the third about the chains that no base chain reaches. Each list begins
// with the number of rules that have such an expression, and the number of all rules, and contains
// each text once. If the chains of a list have no rules, the list is omitted.
func Unknowns(tables []rules.Table) string {
	text := new(strings.Builder)
	for _, hook := range []rules.Hook{rules.Prerouting, rules.Output} {
		atHook := func(c rules.Chain) bool { return c.Base != nil && c.Base.Hook == hook }
		writeUnknowns(text, hook.String(), chainsOf(tables, atHook))
	}
	reached := chainsOf(tables, func(c rules.Chain) bool { return c.Base != nil })
	var others []*rules.Chain
	rs := rules.Ruleset{Tables: tables}
	for _, c := range rs.AllChains() {
		if !slices.Contains(reached, c) {
			others = append(others, c)
		}
	}
	writeUnknowns(text, "not reached", others)
	return text.String()
}

// chainsOf returns the selected chains, and the chains that they call.
func chainsOf(tables []rules.Table, selected func(rules.Chain) bool) []*rules.Chain {
	var found []*rules.Chain
	for i := range tables {
		t := &tables[i]
		var visit func(c *rules.Chain)
		visit = func(c *rules.Chain) {
			if c == nil || slices.Contains(found, c) {
				return
			}
			found = append(found, c)
			for _, r := range c.Rules {
				for _, a := range r.Actions {
					if jump, ok := a.(rules.Jump); ok {
						visit(t.Chain(jump.Chain))
					}
				}
			}
		}
		for j := range t.Chains {
			if selected(t.Chains[j]) {
				visit(&t.Chains[j])
			}
		}
	}
	return found
}

// writeUnknowns writes the list of the unsupported expressions of chains, unless the chains have no
// rules.
func writeUnknowns(w *strings.Builder, description string, chains []*rules.Chain) {
	var texts []string
	total, unsupported := 0, 0
	for _, c := range chains {
		total += len(c.Rules)
		for _, r := range c.Rules {
			if unknowns := unknownTexts(r); len(unknowns) > 0 {
				unsupported++
				texts = append(texts, unknowns...)
			}
		}
	}
	if total == 0 {
		return
	}
	fmt.Fprintf(w, "%s: %d of %d rules\n", description, unsupported, total)
	slices.Sort(texts)
	for _, text := range slices.Compact(texts) {
		fmt.Fprintf(w, "\t%s\n", text)
	}
}

// unknownTexts returns the unsupported expressions of a rule.
func unknownTexts(r rules.Rule) []string {
	var texts []string
	var visit func(m rules.Match)
	visit = func(m rules.Match) {
		switch m := m.(type) {
		case rules.Unknown:
			texts = append(texts, m.Text)
		case rules.MatchTuple:
			for _, alternative := range m.Alternatives {
				for _, part := range alternative {
					visit(part)
				}
			}
		}
	}
	for m := range r.AllMatches() {
		visit(m)
	}
	return texts
}

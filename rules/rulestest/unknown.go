// Package rulestest provides helpers for tests of packages that read rules.
package rulestest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// Unknowns lists the unsupported expressions in foreign rules, each text once: first the
// expressions that packets at prerouting and output can reach, then the ones in chains without a
// known caller. Each list begins with the number of rules with such an expression, and the number
// of all rules.
func Unknowns(tables []rules.Table) string {
	text := new(strings.Builder)
	for _, hook := range []rules.Hook{rules.Prerouting, rules.Output} {
		atHook := func(c rules.Chain) bool { return c.Base != nil && c.Base.Hook == hook }
		list(text, hook.String(), chainsOf(tables, atHook))
	}
	reached := chainsOf(tables, func(c rules.Chain) bool { return c.Base != nil })
	var others []*rules.Chain
	for i := range tables {
		for j := range tables[i].Chains {
			if c := &tables[i].Chains[j]; !slices.Contains(reached, c) {
				others = append(others, c)
			}
		}
	}
	list(text, "not reached", others)
	return text.String()
}

// chainsOf returns the chains that begin selects, and the chains that they call.
func chainsOf(tables []rules.Table, begin func(rules.Chain) bool) []*rules.Chain {
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
			if begin(t.Chains[j]) {
				visit(&t.Chains[j])
			}
		}
	}
	return found
}

// list writes the texts of the chains, unless they have no rules.
func list(w *strings.Builder, description string, chains []*rules.Chain) {
	var texts []string
	total, with := 0, 0
	for _, c := range chains {
		total += len(c.Rules)
		for _, r := range c.Rules {
			if of := textsOf(r); len(of) > 0 {
				with++
				texts = append(texts, of...)
			}
		}
	}
	if total == 0 {
		return
	}
	fmt.Fprintf(w, "%s: %d of %d rules\n", description, with, total)
	slices.Sort(texts)
	for _, text := range slices.Compact(texts) {
		fmt.Fprintf(w, "\t%s\n", text)
	}
}

// textsOf returns the unsupported expressions of a rule.
func textsOf(r rules.Rule) []string {
	var texts []string
	var match func(m rules.Match)
	match = func(m rules.Match) {
		switch m := m.(type) {
		case rules.Unknown:
			texts = append(texts, m.Text)
		case rules.MatchTuple:
			for _, alternative := range m.Alternatives {
				for _, part := range alternative {
					match(part)
				}
			}
		}
	}
	for _, m := range r.Matches {
		match(m)
	}
	for _, a := range r.Actions {
		switch a := a.(type) {
		case rules.Unknown:
			texts = append(texts, a.Text)
		case rules.Require:
			match(a.Match)
		}
	}
	return texts
}

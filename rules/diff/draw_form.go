package diff

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A drawForm is a way to write random conditions: as expressions of nftables, to which iptables-nft
// converts limits, or as matches of xtables, as iptables-save prints these limits. The same
// condition has another text and other data in each form.
type drawForm uint8

const (
	expressionForm drawForm = 1 << iota
	matchForm
)

// drawFormOf returns the form of a random condition, or 0 for other conditions.
func drawFormOf(u rules.Unknown) drawForm {
	switch {
	case u.Effect != rules.ReadsVarying:
		return 0
	case strings.HasPrefix(u.Text, "-m "), strings.HasPrefix(u.Text, "match "):
		return matchForm
	}
	return expressionForm
}

// drawForms returns the forms of the random conditions of a ruleset.
func drawForms(rs *rules.Ruleset) drawForm {
	var forms drawForm
	addForm := func(m rules.Match) {
		if u, ok := m.(rules.Unknown); ok {
			forms |= drawFormOf(u)
		}
	}
	for r := range allRules(rs) {
		for _, m := range r.Matches {
			addForm(m)
		}
		for _, a := range r.Actions {
			switch a := a.(type) {
			case rules.Unknown:
				addForm(a)
			case rules.Require:
				addForm(a.Match)
			}
		}
	}
	return forms
}

// mixesDraws reports whether the two rulesets have random conditions in different forms. It is then
// unknown whether they are the same conditions.
func mixesDraws(left, right *rules.Ruleset) bool {
	l, r := drawForms(left), drawForms(right)
	return l != 0 && r != 0 && l|r == expressionForm|matchForm
}

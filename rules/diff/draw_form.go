package diff

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A drawForm is a way to write random conditions: as expressions of nftables, to which iptables-nft
// converts limits, as the text of such an expression, which is all that the output of
// iptables-nft-save determines, or as matches of xtables. The same condition has other data, or
// another text too, in each form.
type drawForm uint8

const (
	expressionForm drawForm = 1 << iota
	textForm
	matchForm
)

// drawFormOf returns the form of a random condition, or 0 for other conditions.
func drawFormOf(u rules.Unknown) drawForm {
	switch {
	case u.Effect != rules.ReadsVarying:
		return 0
	case strings.HasPrefix(u.Text, "-m "), strings.HasPrefix(u.Text, "match "):
		return matchForm
	case u.Data == "":
		return textForm
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

// compareDraws returns how the random conditions of two rulesets compare. mixed reports that they
// have different forms, so that it is unknown whether conditions are the same if their texts or the
// texts of their rules differ. byText reports that the data of an expression is known on one side
// only, so that the texts alone determine whether expressions are the same.
func compareDraws(left, right *rules.Ruleset) (mixed, byText bool) {
	l, r := drawForms(left), drawForms(right)
	forms := l | r
	mixed = l != 0 && r != 0 && forms&(forms-1) != 0
	return mixed, mixed && forms&textForm != 0
}

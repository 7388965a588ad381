package diff

import (
	"math/bits"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A randomForm is a way in which a ruleset contains a random condition. The same condition has
// different data, and may have a different text, in each form.
type randomForm uint8

const (
	// expressionForm: an expression of nftables. Iptables-nft converts limits to expressions.
	expressionForm randomForm = 1 << iota
	// textForm: the text of an expression without its data, as read from iptables-nft-save.
	textForm
	// matchForm: a match of xtables.
	matchForm
)

// randomFormOf returns the form of a random condition, or 0 for other conditions.
func randomFormOf(u rules.Unknown) randomForm {
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

// randomForms returns the forms of the random conditions of a ruleset.
func randomForms(rs *rules.Ruleset) randomForm {
	var forms randomForm
	for _, r := range rs.AllRules() {
		for m := range r.AllMatches() {
			if u, ok := m.(rules.Unknown); ok {
				forms |= randomFormOf(u)
			}
		}
	}
	return forms
}

// compareRandomForms compares the forms of the random conditions of two rulesets. mixed reports
// that both rulesets have random conditions, and that these have several forms altogether: it is
// then unknown whether two conditions with different texts, or in rules with different texts, are
// the same. byText reports that mixed is true and that the data of some expressions is unknown: two
// expressions with equal texts are then treated as the same.
func compareRandomForms(left, right *rules.Ruleset) (mixed, byText bool) {
	l, r := randomForms(left), randomForms(right)
	forms := l | r
	hasSeveral := bits.OnesCount8(uint8(forms)) > 1
	mixed = l != 0 && r != 0 && hasSeveral
	return mixed, mixed && forms&textForm != 0
}

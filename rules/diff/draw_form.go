package diff

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A drawForm is a way in which random conditions are written: as expressions of nftables, to which
// iptables-nft converts limits, or as matches of xtables, as iptables-save prints these limits. One
// condition differs in text and data between them.
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
	read := func(m rules.Match) {
		if u, ok := m.(rules.Unknown); ok {
			forms |= drawFormOf(u)
		}
	}
	for r := range allRules(rs) {
		for _, m := range r.Matches {
			read(m)
		}
		for _, a := range r.Actions {
			switch a := a.(type) {
			case rules.Unknown:
				read(a)
			case rules.Require:
				read(a.Match)
			}
		}
	}
	return forms
}

// mixesDraws reports whether random conditions of the two rulesets may be the same, although they
// are written in different forms, so that it is unknown whether they agree.
func mixesDraws(left, right *rules.Ruleset) bool {
	l, r := drawForms(left), drawForms(right)
	return l != 0 && r != 0 && l|r == expressionForm|matchForm
}

package nftlist

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

const (
	// maxBaseChains is the maximum number of base chains of a family at a hook in the kernel
	// (MAX_HOOK_COUNT).
	maxBaseChains = 1024
	// maxSentences is the maximum number of sentences about the order of chains, and of lines about
	// unmodeled chains. It keeps the output readable.
	maxSentences = 100
)

// evaluatedHooks are the hooks whose chains package diff evaluates. Conntrack has hook functions
// with [rules.ConntrackPriority] at all of them except postrouting.
var evaluatedHooks = []rules.Hook{rules.Prerouting, rules.Output, rules.Postrouting}

// undecidedOrder returns a sentence about each pair of chains at the same position of a hook whose
// order matters, and about each chain at the position of conntrack, but at most maxSentences. It
// returns an error if there are more base chains than the kernel allows.
func undecidedOrder(tables []rules.Table) ([]string, error) {
	chains, err := baseChains(tables)
	if err != nil {
		return nil, err
	}
	var sentences []string
	for i, a := range chains {
		base := a.Chain.Base
		if !slices.Contains(evaluatedHooks, base.Hook) {
			continue
		}
		if base.Priority == rules.ConntrackPriority && base.Hook != rules.Postrouting {
			sentences = append(sentences, fmt.Sprintf(
				"the listing does not show whether chain %s runs before conntrack", nameOf(a)))
		}
		for _, b := range chains[i+1:] {
			if b.Chain.Base.Hook == base.Hook && samePosition(base, b.Chain.Base) &&
				a.OrderMatters(b) {
				sentences = append(sentences, fmt.Sprintf(
					"the listing does not show which of the chains %s and %s runs first",
					nameOf(a), nameOf(b)))
			}
			if len(sentences) >= maxSentences {
				return sentences[:maxSentences], nil
			}
		}
	}
	return sentences, nil
}

// baseChains returns the base chains that may affect packets. It returns an error if a hook has
// more than maxBaseChains of a family.
func baseChains(tables []rules.Table) ([]rules.ChainRef, error) {
	type familyHook struct {
		family rules.Family
		hook   rules.Hook
	}
	count := map[familyHook]int{}
	var chains []rules.ChainRef
	rs := rules.Ruleset{Tables: tables}
	for t, chain := range rs.AllChains() {
		c, base := rules.ChainRef{Table: t, Chain: chain}, chain.Base
		if base == nil {
			continue
		}
		key := familyHook{t.Family, base.Hook}
		if count[key]++; count[key] > maxBaseChains {
			return nil, fmt.Errorf("chain %s: more than %d chains at hook %s", nameOf(c),
				maxBaseChains, base.Hook)
		}
		if chain.HasEffect() || base.Type == rules.NAT {
			chains = append(chains, c)
		}
	}
	return chains, nil
}

func nameOf(c rules.ChainRef) string {
	return c.Table.Family.String() + " " + c.Table.Name + " " + c.Chain.Name
}

// samePosition reports whether two chains of a hook are at the same position. Their order is then
// unknown.
func samePosition(a, b *rules.Base) bool {
	if a.Type == rules.NAT && b.Type == rules.NAT {
		return a.Priority == b.Priority
	}
	return a.Position() == b.Position()
}

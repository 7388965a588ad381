package diff_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestChainsAtThePositionOfNAT verifies that a chain with the priority of NAT runs after the NAT
// chains of the hook if its Order is greater than theirs, and otherwise before them.
func TestChainsAtThePositionOfNAT(t *testing.T) {
	const localMark = 0x539
	translated := netip.MustParseAddr("5.6.7.8")
	dnat := when(rules.DNATTo{Addr: translated}, to("1.2.3.4/32"))
	snat := when(rules.SNATTo{Addr: translated}, to("1.2.3.4/32"))
	fromTranslated := rules.MatchAddr{
		Side: rules.Source, Ranges: ranges(translated.String() + "/32"),
	}
	// at returns a NAT chain at its priority, and a chain that runs before or after it.
	at := func(hook rules.Hook, natRules []rules.Rule, chainType rules.ChainType,
		priority, order int, list ...rules.Rule,
	) rules.Ruleset {
		natPriority := -100
		if hook == rules.Postrouting {
			natPriority = 100
		}
		nat := base(rules.NAT, hook, natPriority, natRules...)
		nat.Base.Order = 1
		c := base(chainType, hook, priority, list...)
		c.Base.Order = order
		rs := ruleset(nat, c)
		rs.Routing = rules.Routing{Policies: []rules.PolicyRoute{{
			Family: rules.IPv4, Mark: localMark, Table: 133,
		}}}
		return rs
	}
	mark := func(priority, order int) rules.Ruleset {
		return at(rules.Output, []rules.Rule{dnat}, rules.Filter, priority, order,
			when(setMark(localMark, everyBit)))
	}
	dropOut := func(priority, order int) rules.Ruleset {
		return at(rules.Output, []rules.Rule{dnat}, rules.Route, priority, order,
			when(rules.Drop, to("5.6.7.8/32")))
	}
	dropLater := func(priority, order int) rules.Ruleset {
		return at(rules.Output, nil, rules.Filter, priority, order,
			when(rules.Drop, to("5.6.7.8/32")))
	}
	dropIn := func(priority, order int) rules.Ruleset {
		return at(rules.Prerouting, []rules.Rule{dnat}, rules.Filter, priority, order,
			when(rules.Drop, to("5.6.7.8/32")))
	}
	dropPost := func(priority, order int) rules.Ruleset {
		return at(rules.Postrouting, []rules.Rule{snat}, rules.Filter, priority, order,
			when(rules.Drop, fromTranslated))
	}
	for _, row := range []struct {
		name                string
		ruleset             func(priority, order int) rules.Ruleset
		natPriority, before int
	}{
		{"a mark that reroutes translated packets", mark, -100, -150},
		{"the translated destination at output", dropOut, -100, -150},
		{"a destination translated earlier", dropLater, -100, -150},
		{"the translated destination at prerouting", dropIn, -100, -150},
		{"the translated source at postrouting", dropPost, 100, 50},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := diff.Side{Ruleset: row.ruleset(row.before, 0), RoutingKnown: true}
			first := diff.Side{Ruleset: row.ruleset(row.natPriority, 0), RoutingKnown: true}
			last := diff.Side{Ruleset: row.ruleset(row.natPriority, 2), RoutingKnown: true}
			after := diff.Side{Ruleset: row.ruleset(row.natPriority+1, 0), RoutingKnown: true}
			for _, pair := range []struct {
				name        string
				left, right diff.Side
				want        diff.Verdict
			}{
				{"before NAT at another priority and at its priority", before, first, diff.Equivalent},
				{"after NAT at another priority and at its priority", after, last, diff.Equivalent},
				{"before and after NAT at its priority", first, last, diff.Different},
				{"before NAT, and after NAT at its priority", before, last, diff.Different},
			} {
				r := diff.Decide(pair.left, pair.right, diff.Options{})
				if got := r.StrictVerdict(); got != pair.want {
					t.Errorf("%s: verdict %s, want %s", pair.name, got, pair.want)
				}
			}
		})
	}
}

// TestSameRulesAroundNAT verifies that two rulesets whose rules are equal do not count as the same
// if a chain runs before the NAT chains on one side only, even if the NAT chain has no rules.
func TestSameRulesAroundNAT(t *testing.T) {
	with := func(order int) rules.Ruleset {
		nat := base(rules.NAT, rules.Output, -100)
		nat.Base.Order = 1
		c := base(rules.Filter, rules.Output, -100,
			when(rules.Accept, rules.Unknown{Text: "a word"}))
		c.Base.Order = order
		return ruleset(nat, c)
	}
	if r := decide(with(0), with(0)); r.StrictVerdict() != diff.Equivalent {
		t.Errorf("the same order: verdict %s, want %s", r.StrictVerdict(), diff.Equivalent)
	}
	if r := decide(with(0), with(2)); r.StrictVerdict() != diff.Undecidable {
		t.Errorf("another order: verdict %s, want %s", r.StrictVerdict(), diff.Undecidable)
	}
}

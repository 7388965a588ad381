package diff_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestUnknownActionsOfEqualRules compares rules with an unsupported action. The action may do
// anything, but it does the same on both sides if all rules are equal.
func TestUnknownActionsOfEqualRules(t *testing.T) {
	queue := rules.Unknown{Text: "-j NFQUEUE --queue-num 1"}
	other := rules.Unknown{Text: "-j NFQUEUE --queue-num 2"}
	withData := func(data string) rules.Ruleset {
		return ruleset(mangleIn(when(rules.Unknown{Text: "target X revision 0", Data: data}, tcp)))
	}
	listed := when(rules.Drop, rules.Unknown{Text: "@list", Effect: rules.Reads, Data: rules.NoData})
	ofFamily := func(f rules.Family, list ...rules.Rule) rules.Table {
		return rules.Table{
			Family: f, Name: "t", Chains: []rules.Chain{mangleIn(list...)},
		}
	}
	tables := func(list ...rules.Table) rules.Ruleset { return rules.Ruleset{Tables: list} }
	equal := ruleset(mangleIn(when(queue, tcp)))
	matchesUser := func(xtables bool) rules.Ruleset {
		return tables(rules.Table{
			Family: rules.IPv4, Name: "t", XTables: xtables, Chains: []rules.Chain{
				mangleOut(when(queue, tcp), when(rules.Drop, rules.MatchOwner{IDs: rules.Singles[uint32](1)})),
			},
		})
	}
	inSet := func(members ...string) rules.Rule {
		m := to(members...)
		m.Set = "s"
		return when(rules.Accept, m)
	}
	listedIn := func(m rules.Match) rules.Ruleset {
		return ruleset(mangleIn(when(queue, tcp), when(rules.Drop, rules.MatchTuple{
			Alternatives: [][]rules.Match{{m}},
		})))
	}
	list := rules.MatchListed{List: "@l", Parts: "ip saddr"}
	atConntrack := func(order int) rules.Ruleset {
		early := base(rules.Filter, rules.Prerouting, rules.ConntrackPriority, when(queue, tcp))
		early.Base.Order = order
		return ruleset(early)
	}
	for _, tc := range []struct {
		name        string
		left, right rules.Ruleset
		want        diff.Verdict
	}{
		{"the same action", equal, equal, diff.Equivalent},
		{
			"named sets with other elements", ruleset(mangleIn(inSet("10.0.0.0/8"), when(queue))),
			ruleset(mangleIn(inSet("11.0.0.0/8"), when(queue))), diff.Undecidable,
		},
		{
			"named sets with the same elements", ruleset(mangleIn(inSet("10.0.0.0/8"), when(queue))),
			ruleset(mangleIn(inSet("10.0.0.0/8"), when(queue))), diff.Equivalent,
		},
		{
			"an interface and a prefix with equal texts",
			ruleset(mangleIn(when(rules.Accept, rules.MatchInterface{
				Names: []rules.InterfaceName{{Name: "a*"}},
			}), when(queue))),
			ruleset(mangleIn(when(rules.Accept, rules.MatchInterface{
				Names: []rules.InterfaceName{{Name: "a", Prefix: true}},
			}), when(queue))), diff.Undecidable,
		},
		{"a list within a tuple", listedIn(list), listedIn(list), diff.Undecidable},
		{"chains before conntrack", atConntrack(-1), atConntrack(-1), diff.Equivalent},
		{"chains before and after conntrack", atConntrack(-1), atConntrack(1), diff.Undecidable},
		{
			"chains whose order relative to conntrack is unknown", atConntrack(0),
			atConntrack(0), diff.Undecidable,
		},
		{"another parameter", equal, ruleset(mangleIn(when(other, tcp))), diff.Undecidable},
		{
			"an additional log action, which has no effect", ruleset(mangleIn(
				rules.Rule{Actions: []rules.Action{rules.Count{}, rules.NoEffect{Text: "log"}, queue}})),
			ruleset(mangleIn(rules.Rule{Actions: []rules.Action{rules.Count{}, queue}})),
			diff.Equivalent,
		},
		{"another condition", equal, ruleset(mangleIn(when(queue, tcp, toPort(1)))), diff.Undecidable},
		{
			"a later rule that only one side has", equal,
			ruleset(mangleIn(when(queue, tcp), when(rules.Count{}, tcp), when(rules.Drop, marked(1, 1), tcp))),
			diff.Undecidable,
		},
		{
			"a rule at a hook that is not evaluated", equal,
			ruleset(mangleIn(when(queue, tcp)), base(rules.Filter, rules.Input, 0, when(rules.Drop, tcp))),
			diff.Undecidable,
		},
		{
			"an empty chain that only one side has", equal,
			ruleset(mangleIn(when(queue, tcp)), base(rules.Filter, rules.Input, 0)), diff.Equivalent,
		},
		{
			"an empty NAT chain that only one side has", equal,
			ruleset(mangleIn(when(queue, tcp)), natIn()), diff.Undecidable,
		},
		{
			"a text that contains two rules", ruleset(mangleIn(when(queue), when(other))),
			ruleset(mangleIn(when(rules.Unknown{
				Text: queue.Text + ") \nunknown(" + other.Text,
			}))), diff.Undecidable,
		},
		{
			"a text that contains two actions",
			ruleset(mangleIn(rules.Rule{Actions: []rules.Action{queue, other}})),
			ruleset(mangleIn(when(rules.Unknown{Text: queue.Text + ") unknown(" + other.Text}))),
			diff.Undecidable,
		},
		{"the same data", withData("a"), withData("a"), diff.Equivalent},
		{"other data", withData("a"), withData("b"), diff.Undecidable},
		{"data that was not read", withData(rules.NoData), withData(rules.NoData), diff.Undecidable},
		{
			"another rule with a list that was not read",
			ruleset(mangleIn(when(queue, tcp), listed)), ruleset(mangleIn(when(queue, tcp), listed)),
			diff.Undecidable,
		},
		{
			"the order of tables with chains of equal priority",
			tables(ofFamily(rules.IPv4, when(queue, tcp)), ofFamily(rules.Inet, when(rules.Drop, tcp))),
			tables(ofFamily(rules.Inet, when(rules.Drop, tcp)), ofFamily(rules.IPv4, when(queue, tcp))),
			diff.Undecidable,
		},
		{
			"a chain to which only the action may jump",
			ruleset(mangleIn(when(queue, tcp)), chain("u", when(rules.Accept))),
			ruleset(mangleIn(when(queue, tcp)), chain("u", when(rules.Drop))), diff.Undecidable,
		},
		{"a match of a user in two backends", matchesUser(true), matchesUser(false), diff.Undecidable},
	} {
		r := decide(tc.left, tc.right)
		if got := r.StrictVerdict(); got != tc.want {
			t.Errorf("%s: verdict %s, want %s", tc.name, got, tc.want)
		}
	}
	// Only the compared families matter.
	left := tables(ofFamily(rules.IPv4, when(queue, tcp)), ofFamily(rules.IPv6, when(rules.Drop, tcp)))
	r := diff.Decide(diff.Side{Ruleset: left}, diff.Side{Ruleset: equal}, diff.Options{
		Families: []rules.Family{rules.IPv4},
	})
	if got := r.StrictVerdict(); got != diff.Equivalent {
		t.Errorf("rules of a family that is not compared: verdict %s, want %s", got, diff.Equivalent)
	}
}

// TestIdenticalRulesetsNeedNoEvaluation compares rulesets with a budget that is too small for their
// evaluation. They are equivalent if everything that determines their effect is equal and known.
func TestIdenticalRulesetsNeedNoEvaluation(t *testing.T) {
	jump := func(name string) rules.Rule { return when(rules.Jump{Chain: name}, tcp) }
	condition := func(data string) rules.Ruleset {
		return ruleset(mangleIn(when(rules.Drop,
			rules.Unknown{Text: "jhash", Effect: rules.Reads, Data: data})))
	}
	queue := when(rules.Unknown{Text: "queue to 1"}, tcp)
	list := rules.MatchListed{List: "@l", Parts: "ip saddr"}
	order := func(order int) rules.Ruleset {
		c := base(rules.Filter, rules.Prerouting, rules.ConntrackPriority, when(rules.Drop, tcp))
		c.Base.Order = order
		return ruleset(c)
	}
	drops := ruleset(mangleIn(when(rules.Drop, tcp)))
	withUnreachable := func(list ...rules.Rule) rules.Ruleset {
		return ruleset(mangleIn(when(rules.Drop, tcp)), chain("unreachable", list...))
	}
	reads := func(state rules.State) rules.Rule {
		return when(rules.Accept, rules.MatchState{States: rules.States(state)})
	}
	routed := drops
	routed.Routing.Policies = []rules.PolicyRoute{{Family: rules.IPv4, Mark: 1, Table: 133}}
	for _, tc := range []struct {
		name        string
		left, right rules.Ruleset
		want        diff.Verdict
	}{
		{"equal rules", drops, ruleset(mangleIn(when(rules.Drop, tcp))), diff.Equivalent},
		{"other rules", drops, ruleset(mangleIn(when(rules.Accept, tcp))), diff.Undecidable},
		{"another policy route", drops, routed, diff.Different},
		{"an unsupported condition", condition("seed 1"), condition("seed 1"), diff.Equivalent},
		{"another seed", condition("seed 1"), condition("seed 2"), diff.Undecidable},
		{"unread data", condition(rules.NoData), condition(rules.NoData), diff.Undecidable},
		{
			"an unsupported action", ruleset(mangleIn(queue)), ruleset(mangleIn(queue)),
			diff.Equivalent,
		},
		{
			"a list", ruleset(mangleIn(when(rules.Drop, list))),
			ruleset(mangleIn(when(rules.Drop, list))), diff.Equivalent,
		},
		{
			"a list that an unsupported action may change",
			ruleset(mangleIn(queue, when(rules.Drop, list))),
			ruleset(mangleIn(queue, when(rules.Drop, list))), diff.Undecidable,
		},
		{"a chain before conntrack", order(-1), order(-1), diff.Equivalent},
		{"a chain before or after conntrack", order(0), order(0), diff.Undecidable},
		{
			"an unreachable chain", withUnreachable(reads(rules.New)),
			withUnreachable(reads(rules.New)), diff.Equivalent,
		},
		{
			"an unreachable chain that enables conntrack", withUnreachable(reads(rules.New)),
			withUnreachable(), diff.Undecidable,
		},
		{
			"a jump to a missing chain", ruleset(mangleIn(jump("c"))), ruleset(mangleIn(jump("c"))),
			diff.Undecidable,
		},
		{
			"a cycle of jumps", ruleset(mangleIn(jump("c")), chain("c", jump("c"))),
			ruleset(mangleIn(jump("c")), chain("c", jump("c"))), diff.Undecidable,
		},
		{
			"two jumps to a chain",
			ruleset(mangleIn(jump("c"), jump("d")), chain("c", jump("d")), chain("d", queue)),
			ruleset(mangleIn(jump("c"), jump("d")), chain("c", jump("d")), chain("d", queue)),
			diff.Equivalent,
		},
	} {
		r := diff.Decide(diff.Side{Ruleset: tc.left, RoutingKnown: true},
			diff.Side{Ruleset: tc.right, RoutingKnown: true},
			diff.Options{Budget: diff.Budget{Memory: 32 << 10}})
		if got := r.StrictVerdict(); got != tc.want {
			t.Errorf("%s: verdict %s, want %s", tc.name, got, tc.want)
		}
		if equivalent := tc.want == diff.Equivalent; equivalent != (r.Exhausted == "") {
			t.Errorf("%s: exhausted %q, want a limit only if it is not equivalent", tc.name,
				r.Exhausted)
		}
	}
}

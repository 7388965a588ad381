package diff

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// TestValuesDependOnStates compares rulesets that derive a mark or another state from a state.
func TestValuesDependOnStates(t *testing.T) {
	const exceptStates = rules.AllInputs &^ rules.StateInput
	priority := rules.Unknown{
		Text: "meta priority set", Effect: rules.Writes, Data: "1", State: "meta priority",
		Ignores: rules.AllInputs,
	}
	unread := priority
	unread.Data = rules.NoData
	mark := rules.Unknown{
		Text: "meta mark set priority", Effect: rules.WritesMark, Data: "2", Ignores: exceptStates,
	}
	independent := mark
	independent.Ignores = rules.AllInputs
	label := rules.Unknown{
		Text: "ct label set priority", Effect: rules.Writes, Data: "3", State: "ct label",
		Ignores: exceptStates,
	}
	labeled := rules.Unknown{
		Text: "ct label", Effect: rules.Reads, Data: "4", State: "ct label", Ignores: rules.AllInputs,
	}
	type list []rules.Action
	labeledAfter := func(actions ...rules.Action) []rules.Action {
		return append(actions, rules.Require{Match: labeled}, rules.Drop)
	}
	for _, tc := range []struct {
		name        string
		left, right []rules.Action
		want        Verdict
	}{
		{"a mark derived from a state", list{priority, mark}, list{priority, mark}, Equivalent},
		{
			"a mark derived from a state that is written later",
			list{priority, mark},
			list{mark, priority},
			Undecidable,
		},
		{
			"a mark derived from a state that one side writes",
			list{priority, mark},
			list{mark},
			Undecidable,
		},
		{
			"a mark derived from no state",
			list{priority, independent},
			list{independent, priority},
			Equivalent,
		},
		{
			"a state derived from another state", labeledAfter(priority, label),
			labeledAfter(priority, label), Equivalent,
		},
		{
			"a state derived from another state that is written later", labeledAfter(priority, label),
			labeledAfter(label, priority), Undecidable,
		},
		{
			"a state derived from another state that one side writes", labeledAfter(priority, label),
			labeledAfter(label), Undecidable,
		},
		{"a value that was not read", list{unread, mark}, list{unread, mark}, Undecidable},
		{
			"a value that was not read and does not matter",
			list{unread, independent},
			list{unread, independent},
			Equivalent,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			side := func(actions []rules.Action) Side {
				return Side{Ruleset: rules.Ruleset{Tables: []rules.Table{{
					Family: rules.IPv4, Name: "t", Chains: []rules.Chain{{
						Name:  "c",
						Base:  &rules.Base{Type: rules.Filter, Hook: rules.Prerouting},
						Rules: separate(actions),
					}},
				}}}}
			}
			r := Decide(side(tc.left), side(tc.right), Options{Families: []rules.Family{rules.IPv4}})
			if got := r.StrictVerdict(); got != tc.want {
				t.Errorf("verdict %s, want %s: undecided %+v, classes %+v", got, tc.want, r.Undecided,
					r.Classes)
			}
		})
	}
}

// separate returns one rule for each action before the first condition, and one rule for the
// condition and all actions after it.
func separate(actions []rules.Action) []rules.Rule {
	var list []rules.Rule
	for i, a := range actions {
		if _, ok := a.(rules.Require); ok {
			return append(list, rules.Rule{Actions: actions[i:]})
		}
		list = append(list, rules.Rule{Actions: []rules.Action{a}})
	}
	return list
}

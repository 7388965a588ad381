package main

import (
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// The JSON form of a comparison. The help topic "json" describes it.
type (
	jsonDiff struct {
		Verdict     diff.Verdict       `json:"verdict"`
		Left        jsonSide           `json:"left"`
		Right       jsonSide           `json:"right"`
		Classes     []jsonClass        `json:"classes"`
		More        bool               `json:"more,omitempty"`
		Undecided   []jsonUndecided    `json:"undecided,omitempty"`
		Routing     []rules.Difference `json:"routing,omitempty"`
		NotCompared []string           `json:"notCompared,omitempty"`
	}
	jsonSide struct {
		Name        string   `json:"name"`
		Notes       []string `json:"notes,omitempty"`
		Undecided   []string `json:"undecided,omitempty"`
		Unreachable []string `json:"unreachable,omitempty"`
	}
	jsonClass struct {
		Packets    []jsonCondition     `json:"packets"`
		Witness    string              `json:"witness"`
		Left       jsonOutcome         `json:"left"`
		Right      jsonOutcome         `json:"right"`
		Deviations []rules.DeviationID `json:"deviations,omitempty"`
	}
	jsonCondition struct {
		Field  string `json:"field"`
		Values string `json:"values"`
	}
	jsonOutcome struct {
		Fate  jsonFate  `json:"fate"`
		Where string    `json:"where"`
		Rule  *jsonStep `json:"rule,omitempty"`
	}
	jsonUndecided struct {
		Side    string   `json:"side"`
		Text    string   `json:"text"`
		Where   string   `json:"where"`
		Rule    jsonStep `json:"rule"`
		Witness string   `json:"witness"`
	}
)

func (r diffReport) json() jsonDiff {
	return jsonDiff{
		Verdict: r.verdict(),
		Left:    jsonSide{r.left.name, r.left.notes, r.left.undecided, chainTexts(r.Unreachable.Left)},
		Right:   jsonSide{r.right.name, r.right.notes, r.right.undecided, chainTexts(r.Unreachable.Right)},
		Classes: list(r.Classes, func(c *diff.Class) jsonClass {
			return jsonClass{
				Packets:    list(c.Packets, func(c *diff.Condition) jsonCondition { return jsonCondition{c.Field, c.Values} }),
				Witness:    c.Witness.String(),
				Left:       r.left.outcome(c.Outcome.Left),
				Right:      r.right.outcome(c.Outcome.Right),
				Deviations: c.Deviations,
			}
		}),
		More: r.More,
		Undecided: list(r.Undecided, func(u *diff.Undecided) jsonUndecided {
			name, side := "left", r.left
			if u.Right {
				name, side = "right", r.right
			}
			return jsonUndecided{name, u.Text, side.locate(&u.Step), jsonStepOf(&u.Step), u.Witness.String()}
		}),
		Routing:     r.Routing,
		NotCompared: r.notCompared,
	}
}

func (side *diffSide) outcome(o diff.Outcome) jsonOutcome {
	j := jsonOutcome{Fate: jsonFateOf(o.Fate), Where: side.locate(o.Decided)}
	if o.Decided != nil {
		step := jsonStepOf(o.Decided)
		j.Rule = &step
	}
	return j
}

package main

import (
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// The JSON form of a comparison. The help topic "json" describes it.
type (
	jsonDiff struct {
		Verdict   diff.Verdict    `json:"verdict"`
		Left      jsonSide        `json:"left"`
		Right     jsonSide        `json:"right"`
		Classes   []jsonClass     `json:"classes"`
		More      bool            `json:"more,omitempty"`
		Undecided []jsonUndecided `json:"undecided,omitempty"`
		// MoreUndecided reports that not all undecided cases are listed.
		MoreUndecided bool               `json:"moreUndecided,omitempty"`
		Routing       []rules.Difference `json:"routing,omitempty"`
		NotCompared   []string           `json:"notCompared,omitempty"`
		Exhausted     string             `json:"exhausted,omitempty"`
		Unstated      string             `json:"unstated,omitempty"`
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
		Left       jsonSideOutcome     `json:"left"`
		Right      jsonSideOutcome     `json:"right"`
		Deviations []rules.DeviationID `json:"deviations,omitempty"`
	}
	jsonCondition struct {
		Field  string `json:"field"`
		Values string `json:"values"`
	}
	jsonSideOutcome struct {
		Outcome    jsonOutcome  `json:"outcome"`
		IfNoneTrue *jsonOutcome `json:"ifNoneTrue,omitempty"`
		Where      string       `json:"where"`
		Rule       *jsonStep    `json:"rule,omitempty"`
	}
	jsonUndecided struct {
		Side    string    `json:"side"`
		Text    string    `json:"text"`
		Where   string    `json:"where"`
		Rule    *jsonStep `json:"rule,omitempty"`
		Witness string    `json:"witness"`
	}
)

func (jsonDiff) kind() string { return "Diff" }

// json returns the JSON form of the report.
func (r diffReport) json() jsonDiff {
	return jsonDiff{
		Verdict: r.verdict(),
		Left: jsonSide{
			r.left.name, r.left.notes, r.left.undecided, chainTexts(r.Unreachable.Left),
		},
		Right: jsonSide{
			r.right.name, r.right.notes, r.right.undecided, chainTexts(r.Unreachable.Right),
		},
		Classes: convertEach(r.Classes, func(c *diff.Class) jsonClass {
			return jsonClass{
				Packets: convertEach(c.Packets, func(c *diff.Condition) jsonCondition {
					return jsonCondition{c.Field, c.Values}
				}),
				Witness:    c.Witness.String(),
				Left:       r.left.outcome(c.Outcome.Left),
				Right:      r.right.outcome(c.Outcome.Right),
				Deviations: c.Deviations,
			}
		}),
		More: r.More,
		Undecided: convertEach(r.Undecided, func(u *diff.Undecided) jsonUndecided {
			name, side := "left", r.left
			if u.Right {
				name, side = "right", r.right
			}
			return jsonUndecided{
				name, u.Text, side.locate(&u.Step), ruleOf(&u.Step), u.Witness.String(),
			}
		}),
		Routing:     r.Routing,
		NotCompared: r.notCompared,
		Exhausted:   r.Exhausted, MoreUndecided: r.MoreUndecided,
		Unstated: r.unstatedExplanation,
	}
}

// outcome returns the JSON form of an outcome on the side.
func (side *diffSide) outcome(o diff.SideOutcome) jsonSideOutcome {
	j := jsonSideOutcome{Outcome: jsonOutcomeOf(o.Outcome), Where: side.decidedBy(o)}
	if o.IfNoneTrue != nil {
		outcome := jsonOutcomeOf(*o.IfNoneTrue)
		j.IfNoneTrue = &outcome
	}
	if o.Decided != nil {
		j.Rule = ruleOf(o.Decided)
	}
	return j
}

// ruleOf returns the JSON form of the rule of a step, or nil if no rule decided.
func ruleOf(step *rules.Step) *jsonStep {
	if step.Chain == nil {
		return nil
	}
	j := jsonStepOf(step)
	return &j
}

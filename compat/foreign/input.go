package foreign

import (
	"fmt"
	"iter"
	"slices"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// unknownAtInput returns a sentence for each rule at the hook input that may change packets in a
// way that the model does not represent, such as a rule that writes a port or queues packets to a
// program. It returns at most maxClasses sentences. [diff.Bypass] does not evaluate input: it
// assumes that no rule changes the destination of a packet there. Rules that drop, accept or mark
// packets do not change the destination.
func unknownAtInput(live *compat.Live) []string {
	var reasons []string
	for i := range live.Ruleset.Tables {
		t := &live.Ruleset.Tables[i]
		for _, step := range unknownStepsAtInput(t) {
			if len(reasons) < maxClasses {
				reasons = append(reasons,
					fmt.Sprintf("the effect of this rule at input on packets is unknown: %s: %s",
						OwnerOf(&live.Ruleset, &step), step))
			}
		}
	}
	return reasons
}

// unknownStepsAtInput returns the rules of a table that have an action with the effect AnyEffect
// and that packets at input may reach.
func unknownStepsAtInput(t *rules.Table) []rules.Step {
	var from []*rules.Chain
	for i := range t.Chains {
		if c := &t.Chains[i]; c.Base != nil && c.Base.Hook == rules.Input {
			from = append(from, c)
		}
	}
	var steps []rules.Step
	for _, c := range t.ReachableFrom(from...) {
		steps = slices.AppendSeq(steps, stepsWith(t, c, hasAnyEffect))
	}
	return steps
}

// stepsWith returns the rules of a chain that have an action for which the condition is true.
func stepsWith(
	t *rules.Table, c *rules.Chain, condition func(rules.Action) bool,
) iter.Seq[rules.Step] {
	return func(yield func(rules.Step) bool) {
		for i := range c.Rules {
			if slices.ContainsFunc(c.Rules[i].Actions, condition) &&
				!yield(rules.Step{ChainRef: rules.ChainRef{Table: t, Chain: c}, Index: i}) {
				return
			}
		}
	}
}

// hasAnyEffect reports whether the effect of the action is unknown.
func hasAnyEffect(a rules.Action) bool {
	u, ok := a.(rules.Unknown)
	return ok && u.Effect == rules.AnyEffect
}

package foreign

import (
	"fmt"

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
						OwnerOf(&step), step))
			}
		}
	}
	return reasons
}

// unknownStepsAtInput returns the rules of a table that have an action with the effect AnyEffect
// and that packets at input may reach.
func unknownStepsAtInput(t *rules.Table) []rules.Step {
	var reached []*rules.Chain
	isReached := map[*rules.Chain]bool{}
	reach := func(c *rules.Chain) {
		if c != nil && !isReached[c] {
			isReached[c] = true
			reached = append(reached, c)
		}
	}
	for i := range t.Chains {
		if c := &t.Chains[i]; c.Base != nil && c.Base.Hook == rules.Input {
			reach(c)
		}
	}
	var steps []rules.Step
	for i := 0; i < len(reached); i++ { // reach appends chains
		c := reached[i]
		for j := range c.Rules {
			for _, action := range c.Rules[j].Actions {
				switch a := action.(type) {
				case rules.Jump:
					reach(t.Chain(a.Chain))
				case rules.Unknown:
					if a.Effect == rules.AnyEffect {
						steps = append(steps, rules.Step{Table: t, Chain: c, Index: j})
					}
				}
			}
		}
	}
	return steps
}

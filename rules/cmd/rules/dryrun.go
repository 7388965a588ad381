package main

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// planned is the result of a dry run of apply.
type planned struct {
	Outcome   string      `json:"outcome"` // "dry-run"
	Would     string      `json:"would"`   // the outcome without it
	Namespace string      `json:"namespace"`
	Backend   string      `json:"backend"`
	Ruleset   jsonRuleset `json:"ruleset"`
	// Transaction has a line for each message, or with iptables-legacy what its programs would
	// load.
	Transaction []string `json:"transaction"`
	Bytes       int      `json:"bytes"`
}

func (planned) kind() string { return "DryRun" }

// dryRun shows the ruleset and what apply would send to make it of what the namespace holds.
func (s *system) dryRun(ns *netns.NS, p *parameters, ruleset rules.Ruleset) error {
	backend, err := p.chosen()
	if err != nil {
		return err
	}
	plan, err := backend.Plan(ns, ruleset, compat.Snapshot{})
	if compat.IsNotPermitted(err) || compat.IsNotSupported(err) {
		s.warn("what %s holds cannot be read, so this is for an empty one: %s", ns,
			strings.ReplaceAll(err.Error(), "\n", "; "))
		plan, err = backend.Plan(nil, ruleset, compat.EmptySnapshot())
	}
	if err != nil {
		return refused(err)
	}
	object := planned{
		Outcome: "dry-run", Would: string(plan.Outcome), Namespace: ns.String(),
		Backend: string(plan.Backend), Ruleset: toJSON(ruleset),
		Transaction: []string{}, Bytes: plan.Bytes,
	}
	messages := strings.TrimRight(plan.Text, "\n")
	if messages != "" {
		object.Transaction = strings.Split(messages, "\n")
	}
	text := fmt.Sprintf("%s\n%s\n%s", ruleset, planHeading(ns, plan), messages)
	return s.print(strings.TrimRight(text, "\n")+"\n", object)
}

// planHeading says what the text of the plan is.
func planHeading(ns *netns.NS, plan compat.Plan) string {
	switch {
	case plan.Outcome == nft.Unchanged:
		return fmt.Sprintf("unchanged in %s by %s (dry run: nothing is sent)", ns, plan.Backend)
	case plan.Backend == compat.BackendLegacy:
		return fmt.Sprintf(
			"rules of iptables-legacy for %s (dry run: nothing is written), they would be %s:", ns,
			plan.Outcome)
	}
	return fmt.Sprintf("transaction for %s, %s (dry run: nothing is sent), the rules would be %s:",
		ns, count(plan.Bytes, "byte"), plan.Outcome)
}

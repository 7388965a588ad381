package main

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// dryRunResult is what apply prints with --dry-run.
type dryRunResult struct {
	Outcome   string      `json:"outcome"` // "dry-run"
	Would     string      `json:"would"`   // the outcome without --dry-run
	Namespace string      `json:"namespace"`
	Backend   string      `json:"backend"`
	Ruleset   jsonRuleset `json:"ruleset"`
	// Transaction has a line for each message, or with iptables-legacy the lines that
	// iptables-restore would load.
	Transaction []string `json:"transaction"`
	Bytes       int      `json:"bytes"`
}

func (dryRunResult) kind() string { return "DryRun" }

// dryRun prints the ruleset and the messages with which apply would program it.
func (s *system) dryRun(ns *netns.NS, p *parameters, ruleset rules.Ruleset) error {
	backend, err := p.backend()
	if err != nil {
		return err
	}
	plan, err := backend.Plan(ns, ruleset, compat.Snapshot{})
	if compat.IsNotPermitted(err) || compat.IsNotSupported(err) {
		s.warn("the rules of %s cannot be read, so this is the plan for an empty namespace: %s",
			ns, strings.ReplaceAll(err.Error(), "\n", "; "))
		plan, err = backend.Plan(nil, ruleset, compat.EmptySnapshot())
	}
	if err != nil {
		return systemError(err)
	}
	object := dryRunResult{
		Outcome: "dry-run", Would: string(plan.Outcome), Namespace: ns.String(),
		Backend: string(plan.Backend), Ruleset: jsonRulesetOf(ruleset),
		Transaction: []string{}, Bytes: plan.Bytes,
	}
	messages := strings.TrimRight(plan.Text, "\n")
	if messages != "" {
		object.Transaction = strings.Split(messages, "\n")
	}
	text := fmt.Sprintf("%s\n%s\n%s", ruleset, planHeading(ns, plan), messages)
	return s.print(strings.TrimRight(text, "\n")+"\n", object)
}

// planHeading returns the heading of the plan's text.
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

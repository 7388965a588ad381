package validation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// readBack compares the rules and routes in the kernel with the desired rules and routes.
func (v *validator) readBack() Check {
	c := Check{
		Name: "rules and routes", Kind: Rules, Proves: true,
		Expected: "exactly the ruleset and the routes of the parameters",
	}
	found, err := v.backend.Check(v.ns, v.desired, compat.Snapshot{})
	switch {
	case compat.IsNotPermitted(err):
		c.Status, c.Reason = NotChecked, "reading rules needs CAP_NET_ADMIN"
		c.Next = runOnNode
		return c
	case err != nil:
		c.Status, c.Reason, c.Next = NotChecked, err.Error(), "run rules doctor to find the cause"
		return c
	}
	if len(found.Differences) > 0 {
		if rule := onlyIstioRule(v.ns); rule != "" {
			c.Status, c.Proves = NotChecked, false
			c.Reason = "the namespace has rules of Istio (" + rule + ") and none of Sluice, so that" +
				" only connections are checked"
			return c
		}
	}
	return withDifferences(c, found.Differences)
}

// onlyIstioRule returns a rule of Istio's programs. It returns an empty string if there is no such
// rule, if the namespace has rules of Sluice, or if the installed backends cannot be determined.
func onlyIstioRule(ns *netns.NS) string {
	installed, err := compat.InstalledBackends(ns)
	if len(installed) > 0 || err != nil && !compat.IsNotSupported(err) {
		return ""
	}
	// Ignore a backend that cannot be read.
	tables, _ := nft.FindIstio(ns)
	legacy, _ := compat.FindLegacyIstio(ns)
	if found := slices.Concat(tables, legacy); len(found) > 0 {
		return found[0]
	}
	return ""
}

// maxDifferences is the maximum number of differences that a Check contains. The command "rules
// check" lists all differences.
const maxDifferences = 3

// withDifferences sets the status of the check, and describes the differences.
func withDifferences(c Check, differences []rules.Difference) Check {
	if len(differences) == 0 {
		c.Status, c.Found = OK, "read back, and equal"
		return c
	}
	texts := make([]string, min(len(differences), maxDifferences))
	for i := range texts {
		texts[i] = differences[i].String()
	}
	if omitted := len(differences) - len(texts); omitted > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", omitted))
	}
	c.Status, c.Found = Failed, strings.Join(texts, "; ")
	c.Next = "run 'rules apply' to repair the rules; 'rules check' lists all differences"
	return c
}

// explainFailures sets the reason of failed checks to the outcome of their packets with all rules
// in the namespace, if the rules can be read.
func (v *validator) explainFailures(r Result) Result {
	if r.Count(Failed) == 0 {
		return r
	}
	live, err := compat.ReadLive(v.ns, compat.OriginAll)
	if err != nil {
		return r
	}
	for i, c := range r.Checks {
		if c.Status != Failed || c.Packet == "" || c.Reason != "" {
			continue
		}
		if packet, err := rules.ParsePacket(c.Packet); err == nil {
			r.Checks[i].Reason = explanation(diff.Explain(&live.Ruleset, packet),
				diff.Explain(&v.desired, packet).Outcome)
		}
	}
	return r
}

// explanation describes the outcome of a packet, and the last matching rule of the first pass with
// a matching rule.
func explanation(t rules.Trace, desired rules.Outcome) string {
	text := "no rule matches"
	for _, pass := range t.Passes {
		if n := len(pass.Steps); n > 0 {
			text = pass.Steps[n-1].String()
			break
		}
	}
	switch {
	case t.Outcome == desired:
		return "by the rules of the namespace the outcome is the expected one (" + text +
			"): the cause is elsewhere"
	case t.Outcome.Captured() || t.Outcome.Dropped || t.Outcome.Undecided != "":
		return "by the rules of the namespace it is " + t.Outcome.String() + ": " + text
	}
	return "by the rules of the namespace it " + t.Outcome.String() + ": " + text
}

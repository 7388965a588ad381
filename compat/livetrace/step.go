package livetrace

import (
	"fmt"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// A Step is a matching rule, or the policy of a chain.
type Step struct {
	// Chain is nil if the ruleset lacks the chain. Index is -1 if the step is a policy, or a rule
	// that the ruleset lacks.
	rules.Step
	Event trace.Event
	Hook  rules.Hook // of the base chain
	Owner foreign.Owner
	// Ambiguous is set if the kernel's rule contains a map, and the matching element of the map is
	// unknown. Index is then the index of the rule for the first element.
	Ambiguous bool
}

// String returns the owner, the position, the text and the comment of the rule, or the owner, the
// chain and the verdict of the policy.
func (s Step) String() string {
	chain := fmt.Sprintf("%s chain %s %s %s", s.Owner, s.Event.Family, s.Event.Table, s.Event.Chain)
	switch {
	case s.Event.Kind == trace.Policy:
		return chain + " policy " + verdictText(s.Event.Verdict)
	case s.Chain != nil && s.Event.Number > len(s.Chain.Rules):
		return chain + " policy " + policyText(s.Chain)
	case (s.Chain == nil || s.Index < 0) && s.Event.Number > 0:
		return fmt.Sprintf("%s rule %d, which is not in the ruleset now", chain, s.Event.Number)
	case s.Chain == nil || s.Index < 0:
		return fmt.Sprintf("%s rule with handle %d, which is not in the ruleset now", chain,
			s.Event.Handle)
	}
	text := fmt.Sprintf("%s rule %d: %s", chain, s.Number(), s.Rule())
	switch {
	case s.Ambiguous:
		text = fmt.Sprintf("%s rule %d: unknown element of a map", chain, s.Number())
	case endedWithoutEffect(s):
		text += " (without effect)"
	}
	if c := s.Rule().Comment; c != "" {
		text += "  # " + c
	}
	return text
}

// policyText returns the verdict at the end of an iptables-legacy chain.
func policyText(c *rules.Chain) string {
	switch {
	case c.Base == nil:
		return "return"
	case c.Base.Drop:
		return "drop"
	}
	return "accept"
}

// verdictText returns the text of a policy, which is drop or accept.
func verdictText(v trace.Verdict) string {
	if v == trace.Drop {
		return "drop"
	}
	return "accept"
}

// Path returns a line for each step: hook, owner, position and text of the rule. A line also
// contains the conntrack state and the packet's mark, if they differ from the line before, and the
// first assigned conntrack zone. nf_tables reports the mark after the rule, and iptables-legacy the
// mark before it.
func (o *Observation) Path() []string {
	lines := make([]string, len(o.Steps))
	mark, state, hasZone := o.Packet.Mark, "", false
	for i, s := range o.Steps {
		lines[i] = s.Hook.String() + ": " + s.String()
		if s.Event.HasState && s.Event.State.String() != state {
			state = s.Event.State.String()
			lines[i] += " [ct state " + state + "]"
		}
		if s.Event.Mark != mark {
			mark = s.Event.Mark
			lines[i] += fmt.Sprintf(" [mark %#x]", mark)
		}
		if zone, ok := zoneOf(&s); ok && !hasZone {
			hasZone = true // only the first assignment takes effect
			lines[i] += fmt.Sprintf(" [zone %d]", zone)
		}
	}
	return lines
}

// zoneOf returns the conntrack zone that the rule assigns.
func zoneOf(s *Step) (zone uint16, ok bool) {
	if s.Chain == nil || s.Index < 0 {
		return 0, false
	}
	for _, a := range s.Rule().Actions {
		if z, isZone := a.(rules.SetZone); isZone {
			return z.Zone, true
		}
	}
	return 0, false
}

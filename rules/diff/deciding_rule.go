package diff

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// An outcomePart is a part of an outcome, with the rules that can determine the part.
type outcomePart struct {
	// effect completes the sentence "no rule ...", as "redirects it" does.
	effect string
	// value returns the part, which can be compared with ==.
	value func(rules.Outcome) any
	// sets reports whether the action sets the part.
	sets func(rules.Action) bool
	// byFirst reports whether the first rule with such an action determines the part, instead of
	// the last one.
	byFirst bool
	// atBase reports whether rules reached from the base chain can set the part.
	atBase func(*rules.Base) bool
	// isDestination reports whether the part says where the packet goes.
	isDestination bool
}

// differs reports whether the part differs in two outcomes.
func (p *outcomePart) differs(a, b rules.Outcome) bool { return p.value(a) != p.value(b) }

// outcomeParts contains the parts in the order of their importance: if a packet is dropped on one
// side only, its marks do not matter.
var outcomeParts = []outcomePart{
	{
		effect: "drops it", isDestination: true, atBase: isNotNAT,
		value: func(o rules.Outcome) any { return [...]any{o.Dropped, o.Rejected} },
		sets: func(a rules.Action) bool {
			return a == rules.Action(rules.Drop) || isAction[rules.TProxyDrop](a) ||
				isAction[rules.Reject](a)
		},
	},
	{
		effect: "disables conntrack for it", byFirst: true, atBase: isRaw,
		sets:  isAction[rules.Notrack],
		value: func(o rules.Outcome) any { return o.Untracked },
	},
	{
		effect: "redirects it", isDestination: true, atBase: isNAT, sets: translates,
		value: func(o rules.Outcome) any { return [...]any{o.Redirect, o.RedirectLast, o.ToHost} },
	},
	{
		effect: "hands it to a transparent listener", isDestination: true, atBase: isNotNAT,
		sets:  isTProxy,
		value: func(o rules.Outcome) any { return [...]any{o.TProxy, o.TProxyAddr} },
	},
	{
		effect: "translates its destination", isDestination: true, atBase: isNAT, sets: translates,
		value: func(o rules.Outcome) any {
			return [...]any{o.DNATPort, o.DNATPortLast, o.DNATAddr, o.DNATAddrLast}
		},
	},
	{
		effect: "translates its source", sets: translatesSource,
		value:  func(o rules.Outcome) any { return [...]any{o.SNATAddr, o.SNAT} },
		atBase: func(b *rules.Base) bool { return isNAT(b) && b.Hook == rules.Postrouting },
	},
	{
		effect: "leads it back to this host", isDestination: true, atBase: isNotNAT, sets: setsMark,
		value: func(o rules.Outcome) any { return o.Rerouted },
	},
	{
		effect: "leads it away from lo", isDestination: true, atBase: isNotNAT, sets: setsMark,
		value: func(o rules.Outcome) any { return o.LeavesLoopback },
	},
	{
		effect: "chooses a zone", byFirst: true, atBase: isRaw, sets: isAction[rules.SetZone],
		value: func(o rules.Outcome) any { return o.Zone },
	},
	{
		effect: "assigns a helper of conntrack", byFirst: true, atBase: isRaw,
		sets:  isAction[rules.SetZone],
		value: func(o rules.Outcome) any { return o.Helper },
	},
	{
		effect: "marks its connection", atBase: atAnyHook, sets: savesMark,
		value: func(o rules.Outcome) any { return o.ConntrackMark },
	},
	{
		effect: "marks it", atBase: atAnyHook, sets: setsMark,
		value: func(o rules.Outcome) any { return o.Mark },
	},
}

// translates reports whether the action changes the destination of packets.
func translates(a rules.Action) bool {
	return isAction[rules.RedirectTo](a) || isAction[rules.DNATPort](a) || isAction[rules.DNATTo](a)
}

func translatesSource(a rules.Action) bool {
	u, ok := a.(rules.Unknown)
	return isAction[rules.SNATTo](a) || ok && u.Effect == rules.TranslatesSource
}

func setsMark(a rules.Action) bool {
	mix, ok := a.(rules.MixMark)
	return isAction[rules.SetMark](a) || isAction[rules.RestoreMark](a) ||
		isAction[rules.TProxyDrop](a) || ok && !mix.Conntrack
}

func isAction[A rules.Action](a rules.Action) bool {
	_, ok := a.(A)
	return ok
}

func isNAT(b *rules.Base) bool     { return b.Type == rules.NAT }
func isNotNAT(b *rules.Base) bool  { return b.Type != rules.NAT }
func isRaw(b *rules.Base) bool     { return b.Position() <= rules.ConntrackPriority }
func atAnyHook(b *rules.Base) bool { return b != nil }

// differingPart returns the first part in which two outcomes differ, or the first part of all if
// the outcomes are equal.
func differingPart(a, b rules.Outcome) outcomePart {
	i := slices.IndexFunc(outcomeParts, func(p outcomePart) bool { return p.differs(a, b) })
	return outcomeParts[max(i, 0)]
}

// sideOutcome returns the outcome with the cause of a part: the rule that set the part; a policy or
// a fact of the kernel; or the last rule that ended a chain in which a later rule could have set
// the part.
func sideOutcome(rs *rules.Ruleset, t rules.Trace, p outcomePart) SideOutcome {
	o := SideOutcome{Outcome: t.Outcome}
	var ending *rules.Step
	for _, pass := range t.Passes {
		for _, step := range pass.Steps {
			actions := step.Rule().Actions
			if step.Stopped != nil {
				actions = actions[:slices.IndexFunc(actions, func(a rules.Action) bool {
					return rules.SameAction(a, step.Stopped)
				})]
				if isTProxy(step.Stopped) && p.sets(step.Stopped) {
					o.Reason = fmt.Sprintf("no transparent socket listens: %s", step)
				}
			}
			if slices.ContainsFunc(actions, p.sets) && (o.Decided == nil || !p.byFirst) {
				o.Decided = &step
			}
			if p.atBase(step.Base) && slices.ContainsFunc(actions, endsChain) {
				ending = &step
			}
		}
	}
	switch {
	case o.Decided != nil:
		o.Reason = ""
	case o.Reason != "":
	case ending != nil && !t.Outcome.Dropped:
		o.Decided = ending
	default:
		if o.Reason = reasonWithoutRule(t, p); o.Reason != "" {
			break
		}
		if o.Decided = ending; ending == nil {
			o.Reason = policyReason(rs, t, p)
		}
	}
	if o.Decided == nil && !p.differs(t.Outcome, rules.Outcome{}) {
		// No rule set the part, because something else determined the destination.
		for _, q := range outcomeParts {
			if q.isDestination && q.differs(t.Outcome, rules.Outcome{}) {
				return sideOutcome(rs, t, q)
			}
		}
	}
	return o
}

func endsChain(a rules.Action) bool {
	return isAction[rules.Verdict](a) || translates(a) || translatesSource(a) ||
		isAction[rules.Reject](a)
}

// reasonWithoutRule returns the reason if a note of the trace, a failed redirection or an earlier
// drop determined the part, otherwise an empty string.
func reasonWithoutRule(t rules.Trace, p outcomePart) string {
	text := ""
	for _, pass := range t.Passes {
		for _, n := range pass.Notes {
			if p.atBase(n.Chain.Chain.Base) || n.Drops {
				text = n.String()
			}
		}
	}
	if n := len(t.Passes); text == "" && t.Outcome.Dropped && n > 0 {
		if steps := t.Passes[n-1].Steps; len(steps) > 0 &&
			slices.ContainsFunc(steps[len(steps)-1].Rule().Actions, translates) {
			text = string(RedirectWithoutAddressDrops) + ": " + steps[len(steps)-1].String()
		}
	}
	if isDrop := p.effect == outcomeParts[0].effect; text == "" && t.Outcome.Dropped && !isDrop {
		text = "the packet is dropped earlier"
	}
	return text
}

// policyReason returns a text that says that no rule determined the part, and that lists the chains
// that accepted the packet.
func policyReason(rs *rules.Ruleset, t rules.Trace, p outcomePart) string {
	var passed []string
	listed := map[*rules.Chain]bool{}
	for _, pass := range t.Passes {
		for _, c := range rs.BaseChains(pass.Packet.Hook) {
			if appliesTo(c.Table, pass.Packet.Family()) && p.atBase(c.Chain.Base) &&
				c.Chain.HasEffect() && !listed[c.Chain] {
				listed[c.Chain] = true
				passed = append(passed, chainName(c))
			}
		}
	}
	if len(passed) == 0 {
		return fmt.Sprintf("no chain %s at its hooks", p.effect)
	}
	return fmt.Sprintf("no rule %s; the policy is accept in %s", p.effect, joinList(passed))
}

func isTProxy(a rules.Action) bool {
	return isAction[rules.TProxy](a) || isAction[rules.TProxyDrop](a)
}

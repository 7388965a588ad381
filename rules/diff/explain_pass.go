package diff

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// pass returns the description of x.traversals[i].
func (x *explanation) pass(i int) rules.Pass {
	traversed := x.traversals[i]
	x.stepCount = 0
	p := rules.Pass{Packet: x.enteringPacket(i)}
	for _, b := range traversed.bases {
		x.addBase(&p, b)
	}
	if x.holds(traversed.droppedICMPRedirects) {
		x.addDroppedICMPRedirect(&p)
	}
	if f, ok := x.explainedFlow(traversed.ended); ok {
		p.Outcome = x.outcomeOf(f)
	} else if f, ok := x.explainedFlow(traversed.remaining); ok {
		p.Outcome = x.outcomeOf(f)
	}
	return p
}

// enteringPacket returns the packet that enters x.traversals[i].
func (x *explanation) enteringPacket(i int) rules.Packet {
	p := x.single.Packet
	if i == 0 {
		return p
	}
	previous := i - 1
	if x.traversals[i].leavesHost {
		previous = 0 // output; the traversals in between are of packets that are sent over lo
	}
	if f, ok := x.explainedFlow(x.traversals[previous].remaining); ok {
		outcome := x.outcomeOf(f)
		port := p.Destination.Port()
		if f.target.hasPort() {
			port = f.target.port
		}
		p.Mark, p.ConntrackMark = outcome.Mark, outcome.ConntrackMark
		a, isOriginal := x.addressOf(f.target)
		if isOriginal || !a.IsValid() {
			a = p.Destination.Addr()
		}
		p.Destination = netip.AddrPortFrom(a, port)
		if f.tracking == untracked {
			p.State, p.ConntrackMark = rules.Untracked, 0
		}
	}
	switch p.Hook = x.traversals[i].hook; {
	case x.traversals[i].leavesHost:
		return p
	case p.Hook == rules.Postrouting:
		p.OutInterface = loopback
		return p
	}
	p.InInterface, p.OutInterface, p.Owner, p.KernelSocket = loopback, "", nil, false
	return p
}

// addBase adds the steps and the notes of a base chain.
func (x *explanation) addBase(p *rules.Pass, b baseTraversal) {
	addNote := func(text string, drops bool) {
		p.Notes = append(p.Notes, rules.Note{
			Chain: b.position.chain, Before: len(p.Steps), Text: text, Drops: drops,
		})
	}
	for _, fact := range natSkipFacts {
		if cases, ok := b.skipped[fact]; ok && x.holds(cases) && b.position.chain.Chain.HasEffect() {
			addNote("is not run: "+string(fact), false)
		}
	}
	for _, c := range b.calls {
		if len(c.call.events) > 0 {
			x.addUncertain(c.packets)
		}
		if x.holds(c.packets) {
			x.addSteps(p, c.call, b.position.chain.Chain.Base)
		}
	}
	if x.holds(b.droppedByPolicy) {
		addNote("drops by its policy", true)
	}
}

// addDroppedICMPRedirect adds the note about an ICMP redirect that NAT drops (NATDropsRedirects).
func (x *explanation) addDroppedICMPRedirect(p *rules.Pass) {
	if c := natChain(x.rs, x.family); c.Chain != nil { // nil if only the other side has a NAT chain
		p.Notes = append(p.Notes, rules.Note{
			Chain: c, Before: len(p.Steps), Drops: true,
			Text: "is a reason to drop the packet: " + string(NATDropsRedirects),
		})
	}
}

// MaxSteps is the maximum number of steps of a pass in a trace. Each elementsPerStep elements of a
// rule's lists count as another step.
const MaxSteps = 10_000

const elementsPerStep = 64

// stepsOf returns the number of steps that a rule counts as.
func stepsOf(r *rules.Rule) int {
	values := 0
	for _, m := range r.Matches {
		switch m := m.(type) {
		case rules.MatchAddr:
			values += len(m.Ranges)
		case rules.MatchTuple:
			values += len(m.Alternatives)
		case rules.MatchInterface:
			values += len(m.Names)
		case rules.MatchPort:
			values += len(m.Ports)
		case rules.MatchOwner:
			values += len(m.IDs)
		case rules.MatchMarkRange:
			values += len(m.Values)
		}
	}
	return 1 + values/elementsPerStep
}

// addSteps adds the matching rules of a chain and of the chains that it calls.
func (x *explanation) addSteps(p *rules.Pass, s *summary, base *rules.Base) {
	for _, e := range s.events {
		x.meter.step()
		x.addUncertain(e.packets)
		switch {
		case !x.holds(e.packets):
		case x.stepCount >= MaxSteps:
			p.Truncated = true
			return
		case e.call != nil:
			x.addSteps(p, e.call, base)
		default:
			x.stepCount += stepsOf(&s.chain.Chain.Rules[e.index])
			p.Steps = append(p.Steps, rules.Step{
				ChainRef: s.chain, Index: e.index, Base: base, Stopped: e.stopped,
			})
		}
	}
}

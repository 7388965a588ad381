package diff

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// pass returns the traversal of a hook.
func (x *explanation) pass(i int) rules.Pass {
	traversed := x.passes[i]
	x.told = 0
	p := rules.Pass{Packet: x.enters(i)}
	for _, b := range traversed.bases {
		x.baseOf(&p, b)
	}
	if f, ok := x.taken(traversed.ended); ok {
		p.Outcome = x.outcomeOf(f)
	} else if f, ok := x.taken(traversed.leaving); ok {
		p.Outcome = x.outcomeOf(f)
	}
	return p
}

// enters returns the packet at the begin of a pass.
func (x *explanation) enters(i int) rules.Packet {
	p := x.one.Packet
	if i == 0 {
		return p
	}
	before := i - 1
	if x.passes[i].departing {
		before = 0 // output, even if the packet may also be sent over lo
	}
	if f, ok := x.taken(x.passes[before].leaving); ok {
		outcome := x.outcomeOf(f)
		port := p.Destination.Port()
		if f.target.hasPort() {
			port = f.target.port
		}
		p.Mark, p.ConntrackMark = outcome.Mark, outcome.ConntrackMark
		a, own := x.addressOf(f.target)
		if own || !a.IsValid() {
			a = p.Destination.Addr()
		}
		p.Destination = netip.AddrPortFrom(a, port)
		if f.tracking == untracked {
			p.State, p.ConntrackMark = rules.Untracked, 0
		}
	}
	switch p.Hook = x.passes[i].hook; {
	case x.passes[i].departing:
		return p
	case p.Hook == rules.Postrouting:
		p.OutInterface = loopback
		return p
	}
	p.InInterface, p.OutInterface, p.Owner, p.KernelSocket = loopback, "", nil, false
	return p
}

// baseOf adds the traversal of a base chain.
func (x *explanation) baseOf(p *rules.Pass, b passedBase) {
	note := func(text string) {
		p.Notes = append(p.Notes, rules.Note{
			Chain: b.place.chain, Before: len(p.Steps), Text: text,
		})
	}
	for _, fact := range skipsNAT {
		if ways, ok := b.skipped[fact]; ok && x.holds(ways) && !idle(b.place.chain.Chain) {
			note("is not run: " + fact.String())
		}
	}
	for _, c := range b.calls {
		if len(c.call.events) > 0 {
			x.addUncertain(c.packets)
		}
		if x.holds(c.packets) {
			x.steps(p, c.call, b.place.chain.Chain.Base)
		}
	}
	if x.holds(b.policy) {
		note("drops by its policy")
	}
}

// MostSteps is the maximum number of steps of a pass in a trace. A rule with a list counts as an
// additional step for every listPart of its elements.
const MostSteps = 10_000

const listPart = 64

// stepsOf returns the number of steps of a rule.
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
	return 1 + values/listPart
}

// steps adds the matching rules of a chain.
func (x *explanation) steps(p *rules.Pass, s *summary, base *rules.Base) {
	for _, e := range s.events {
		x.meter.step()
		x.addUncertain(e.packets)
		switch {
		case !x.holds(e.packets):
		case x.told >= MostSteps:
			p.MoreSteps = true
			return
		case e.call != nil:
			x.steps(p, e.call, base)
		default:
			x.told += stepsOf(&s.chain.Chain.Rules[e.index])
			p.Steps = append(p.Steps, rules.Step{
				Table: s.chain.Table, Chain: s.chain.Chain, Index: e.index, Base: base,
				Stopped: e.stopped,
			})
		}
	}
}

package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// compareStates sets stateCause if both sides drop a packet, but the packet changes the states of
// connections differently (ConntrackSeesDropped). The outcome of later packets may depend on these
// states.
func (d *decision) compareStates(s *space, left, right *walk) {
	lefts, rights := left.droppedFlows(), right.droppedFlows()
	if sameConntrackEffects(left, right, lefts, rights) ||
		!dependsOnStates(d.sides.Left, d.options.Families) &&
			!dependsOnStates(d.sides.Right, d.options.Families) {
		return
	}
	packets := none
	for _, l := range left.conntrackEffects(lefts) {
		for _, r := range right.conntrackEffects(rights) {
			s.meter.step()
			if l.seen != r.seen || l.zone != r.zone {
				packets = s.or(packets, s.and(l.packets, r.packets))
			}
		}
	}
	if packets == none {
		return
	}
	// ICMP errors do not change states, and conntrack ignores packets that carry a connection.
	ignored := s.or(s.carriesConnection(),
		s.or(s.resets, s.and(s.isICMP, s.stateIs(rules.Related))))
	if packets = s.minus(s.and(packets, s.connected), ignored); s.anyPossible(packets) {
		d.stateCause = &Undecided{
			Text: "the states of connections, which differ because conntrack sees this packet " +
				"on one side only or in another zone",
			Witness: s.witness(packets),
		}
	}
}

// sameConntrackEffects reports whether the dropped packets of two walks are the same and have the
// same effects on conntrack. It creates no sets.
func sameConntrackEffects(left, right *walk, lefts, rights []flow) bool {
	return left.droppedEarly == right.droppedEarly &&
		left.droppedConfirmed == right.droppedConfirmed && left.arriving == right.arriving &&
		slices.EqualFunc(lefts, rights, func(l, r flow) bool {
			return l.packets == r.packets && l.zone == r.zone && l.tracking == r.tracking
		})
}

// droppedFlows returns the packets that have been dropped so far.
func (w *walk) droppedFlows() []flow {
	var dropped []flow
	for i := range w.ended.list {
		if w.ended.list[i].dropped {
			dropped = append(dropped, w.ended.list[i])
		}
	}
	return dropped
}

// packetsOf returns the packets of flows.
func (s *space) packetsOf(list []flow) set {
	packets := none
	for i := range list {
		s.meter.step()
		packets = s.or(packets, list[i].packets)
	}
	return packets
}

// A conntrackEffect is the effect of dropped packets on conntrack.
type conntrackEffect struct {
	packets set
	// seen reports that conntrack sees the packets and keeps the effect: it creates or updates
	// their connection in the zone.
	seen bool
	zone uint16
}

// conntrackEffects returns the effects of dropped packets on conntrack.
func (w *walk) conntrackEffects(dropped []flow) []conntrackEffect {
	// Postrouting confirms the connections of packets that are sent over lo.
	unconfirmed := w.or(w.is(state, number(rules.New)), w.stateIs(rules.Related))
	unconfirmed = w.minus(unconfirmed, w.or(w.arriving, w.droppedConfirmed))
	unseen := w.or(w.droppedEarly, unconfirmed) // conntrack forgets dropped unconfirmed connections
	var effects []conntrackEffect
	for i := range dropped {
		f := &dropped[i]
		if f.tracking == untracked {
			effects = append(effects, conntrackEffect{packets: f.packets})
			continue
		}
		effects = append(effects, conntrackEffect{packets: w.and(f.packets, unseen)},
			conntrackEffect{w.minus(f.packets, unseen), true, f.zone})
	}
	return effects
}

// recordDropped records the packets that have been dropped so far, if the chain at the position
// runs before conntrack. It is called after the evaluation of the chain.
func (w *walk) recordDropped(p *chainPosition) {
	if !p.beforeConntrack || p.loopbackArrival || w.single != nil {
		return
	}
	w.droppedEarly = w.or(w.droppedEarly, w.packetsOf(w.droppedFlows()))
}

// forgetMarksOfDropped restores the connection marks of dropped packets that would have begun a
// connection: conntrack forgets the connection with the packet (ConntrackSeesDropped), so that
// nothing reads the mark. The reply to a rejected packet has the connection, and rules may read its
// mark.
func (w *walk) forgetMarksOfDropped() {
	forgotten := none
	for i := range w.ended.list {
		f := &w.ended.list[i]
		w.meter.step()
		if !f.dropped || f.rejected != "" || f.tracking.isTemplate() ||
			f.connectionMark == w.marks.connection {
			continue
		}
		if forgotten == none {
			forgotten = w.minus(w.is(state, number(rules.New)), w.or(w.arriving, w.droppedConfirmed))
		}
		packets := w.and(f.packets, forgotten)
		f.connectionMark = w.marks.merge(packets, w.marks.connection, w.minus(f.packets, packets),
			f.connectionMark)
	}
}

// recordDroppedConfirmed records which packets of confirmed connections have been dropped. It is
// called after the evaluation of a chain for these packets.
func (w *walk) recordDroppedConfirmed(confirmed []flow) {
	dropped := w.and(w.packetsOf(w.droppedFlows()), w.packetsOf(confirmed))
	w.droppedConfirmed = w.or(w.droppedConfirmed, dropped)
}

// dependsOnStates reports whether packets of the families may traverse, at the hooks that are
// evaluated, a NAT rule or a rule that depends on the state of a connection.
func dependsOnStates(rs *rules.Ruleset, families []rules.Family) bool {
	reads := inTuples(readsStates)
	for r := range evaluatedRules(rs, families) {
		if ruleHasMatch(r, reads) || slices.ContainsFunc(r.Actions, usesStates) {
			return true
		}
	}
	return false
}

// readsStates reports whether a match depends on the state of a connection.
func readsStates(m rules.Match) bool {
	if u, ok := m.(rules.Unknown); ok {
		return u.Ignores&rules.ConnectionInput == 0
	}
	return readsConntrack(m) || findsSocket(m)
}

// usesStates reports whether an action translates packets or depends on the state of a connection.
// Unsupported actions that depend on this state are found by readsStates, because
// [rules.Rule.AllMatches] contains them.
func usesStates(a rules.Action) bool {
	switch a := a.(type) {
	case rules.RedirectTo, rules.DNATPort, rules.DNATTo, rules.SNATTo:
		return true
	case rules.Unknown:
		return a.Effect == rules.TranslatesSource
	}
	return usesConnectionMark(a)
}

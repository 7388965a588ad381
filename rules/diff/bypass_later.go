package diff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// mayDivertLater reports whether the live ruleset may divert later packets of a connection that the
// desired ruleset redirects, although both rulesets treat the first packet alike. Only actions that
// the desired ruleset does not have are relevant.
func mayDivertLater(desired, live *rules.Ruleset) bool {
	if !desired.HasAction(func(a rules.Action) bool { _, ok := proxyPort(a); return ok }) {
		return false
	}
	// Before conntrack, the first packet represents the later packets, unless the desired ruleset
	// matches TCP flags to redirect only first packets.
	readsFlags := hasMatch(desired, func(m rules.Match) bool {
		_, ok := m.(rules.MatchTCPFlags)
		return ok
	})
	diverts := func(a rules.Action) bool {
		switch a := a.(type) {
		case rules.Unknown:
			return a.Effect == rules.AnyEffect
		case rules.TProxy, rules.TProxyDrop, rules.SetZone:
			return true
		case rules.Notrack:
			return readsFlags
		}
		return false
	}
	// text returns the text of the rule without actions that have no effect on packets. Whether a
	// rule has a counter depends on the backend.
	text := func(r *rules.Rule) string {
		effective := rules.Rule{Matches: r.Matches, Actions: rules.Effective(r.Actions)}
		return effective.String()
	}
	desiredTexts := map[string]bool{}
	for r := range evaluatedRules(desired, bothFamilies) {
		if slices.ContainsFunc(r.Actions, diverts) {
			desiredTexts[text(r)] = true
		}
	}
	for r := range evaluatedRules(live, bothFamilies) {
		if slices.ContainsFunc(r.Actions, diverts) && !desiredTexts[text(r)] {
			return true
		}
	}
	return false
}

// compareLater compares two walks for [Bypass], for the later packets of connections whose first
// packet the left side redirects. Both sides translate these packets like the first packet
// (NATMappingPersists), or deliver them to the socket that has received the first packet.
func (s *space) compareLater(left, right *walk) comparison {
	lefts, unknownLeft := left.outcomes()
	rights, unknownRight := right.outcomes()
	translated, assigned := s.laterPackets(lefts.list)
	later := s.or(translated, assigned)
	var c comparison
	if later == none {
		return c
	}
	for _, l := range lefts.list {
		l.packets = s.and(l.packets, translated)
		if l.dropped || l.packets == none {
			continue
		}
		for _, r := range rights.list {
			s.meter.step()
			if r.dropped || r.tproxy == l.tproxy &&
				(r.tracking == untracked) == (l.tracking == untracked) {
				continue
			}
			packets := s.and(l.packets, r.packets)
			s.addDifference(&c, &l, &r, packets, packets)
		}
	}
	unknown := s.and(s.minus(unknownRight, unknownLeft), later)
	unknown = s.or(unknown, right.inAnotherZone(rights.list, translated))
	s.divideByUnknowns(&c, unknown, left, right)
	return c
}

// inAnotherZone returns the later packets, among the given ones, to which the rules may assign
// another conntrack zone than to the first packet of their connection. Conntrack does not find the
// connection of such a packet. It is unknown whether the packet begins another connection, which
// NAT redirects again, or is invalid, and leaves the host: this depends on the sysctl
// nf_conntrack_tcp_loose.
func (w *walk) inAnotherZone(outcomes []flow, later set) set {
	first := w.minus(w.possible(), w.retranslated())
	ofFirst := map[uint16]set{} // by the zone of the first packet
	for _, f := range outcomes {
		w.meter.step()
		if f.isCaptured() {
			packets := w.project(w.and(f.packets, first), func(bit uint32) bool {
				return int(bit) < len(w.fieldOf) && !changesLater(w.fieldOf[bit])
			})
			ofFirst[f.zone] = w.or(ofFirst[f.zone], packets)
		}
	}
	zones, steps := slices.Sorted(maps.Keys(ofFirst)), w.stepsOfZones()
	unknown := none
	for _, f := range outcomes {
		for _, zone := range zones {
			w.meter.step()
			if f.dropped || f.tracking == untracked || zone == f.zone {
				continue
			}
			if packets := w.and(w.and(f.packets, later), ofFirst[zone]); packets != none {
				unknown = w.or(unknown, w.and(packets, w.variable(variable{
					key: fmt.Sprint("another zone ", f.zone), kind: unknownBit,
					text: fmt.Sprintf("whether packets in the conntrack zone %d belong to a connection "+
						"whose first packet is in the zone %d", f.zone, zone),
					step: cmp.Or(steps[f.zone], steps[zone]),
				})))
			}
		}
	}
	return unknown
}

// stepsOfZones returns the first rule that assigns each zone, except zone 0.
func (w *walk) stepsOfZones() map[uint16]*rules.Step {
	steps := map[uint16]*rules.Step{}
	for t, c := range w.rs.AllChains() {
		for i := range c.Rules {
			w.meter.step()
			for _, a := range c.Rules[i].Actions {
				set, ok := a.(rules.SetZone)
				if ok && set.Zone != 0 && steps[set.Zone] == nil {
					w.meter.alloc(entrySize)
					chain := rules.ChainRef{Table: t, Chain: c}
					steps[set.Zone] = &rules.Step{ChainRef: chain, Index: i}
				}
			}
		}
	}
	return steps
}

// laterPackets returns the later packets, in the original direction, of connections whose first
// packet has one of the outcomes: the packets of connections that NAT redirects, and the packets of
// connections whose first packet is assigned to a transparent listener.
func (s *space) laterPackets(outcomes []flow) (translated, assigned set) {
	translated, assigned = none, none
	first := s.minus(s.possible(), s.retranslated())
	for _, f := range outcomes {
		s.meter.step()
		if !f.isCaptured() {
			continue
		}
		packets := s.project(s.and(f.packets, first), func(bit uint32) bool {
			return int(bit) >= len(s.fieldOf) || !changesLater(s.fieldOf[bit])
		})
		if f.tproxy.assigned {
			assigned = s.or(assigned, packets)
			continue
		}
		if f.target.hasPort() && !f.target.isRange() {
			packets = s.and(packets, s.is(newPort, number(f.target.port)))
		}
		if a, _ := s.addressOf(f.target); a.IsValid() {
			packets = s.and(packets, s.is(newDestination, address(a)))
		}
		translated = s.or(translated, packets)
	}
	original := s.is(reply, value{})
	retranslated := s.and(s.retranslated(), original)
	untranslated := s.minus(s.and(s.connected, original),
		s.or(s.retranslated(), s.is(state, number(rules.New))))
	return s.and(translated, retranslated), s.and(assigned, untranslated)
}

// changesLater reports whether later packets of a connection may have another value of the field
// than its first packet.
func changesLater(f field) bool {
	switch f {
	case state, status, reply, flags, mark, connectionMark, newDestination, newPort:
		return true
	}
	return false
}

package diff

import (
	"github.com/sluice-mesh/sluice/rules"
)

// change evaluates an action that does not end the rule. It returns the packets for which the rule
// continues; for the others the next rule is evaluated.
func (v *visit) change(action rules.Action, packets []flow, at int, part rulePart) []flow {
	if a, ok := action.(rules.Require); ok {
		on, without := v.require(a.Match, packets, part)
		v.stopped(at, without, action)
		return on
	}
	var on flows
	for _, f := range packets {
		seen := v.view(&f.progress)
		switch a := action.(type) {
		case rules.TProxy: // NoListenerEndsRule, TProxyAssignsSocket, LastTProxyWins
			with, without := v.split(f, v.listens(a.Port))
			v.add(v.next, without)
			v.stopped(at, []flow{without}, action)
			f = with
			f.tproxy = tproxyTarget{true, a.Addr, a.Port}
		case rules.SetMark:
			f.mark = v.marks.set(f.mark, a.Value, a.Mask)
		case rules.SaveMark:
			f.connection = v.saved(f, seen, f.mark)
		case rules.RestoreMark:
			with, without := v.split(f, v.connection(&seen))
			v.add(v.next, without)
			if !seen.xtables {
				v.stopped(at, []flow{without}, action)
			}
			f = with
			f.mark = v.connectionMark(f)
		case rules.MixMark:
			if at >= 0 && a.ConntrackMark != 0 && !seen.xtables {
				// What follows in the rule needs the connection too.
				_, without := v.split(f, v.connection(&seen))
				v.stopped(at, []flow{without}, action)
			}
			f = v.mix(a, f, seen)
		case rules.SetZone:
			f = v.setZone(a, f, seen, &on)
		case rules.Notrack:
			if seen.hasTemplate() {
				break // the packet keeps its template (FirstTemplateStays)
			}
			var without flow // NotrackNeedsNoConnection
			f, without = v.split(f, v.connection(&seen))
			without.tracking = untracked
			v.add(&on, without)
		}
		v.add(&on, f)
	}
	return on.list
}

// saved returns the conntrack mark of a flow's connections after written was stored in it. A
// template does not store a mark.
func (v *visit) saved(f flow, seen view, written *markBits) *markBits {
	if seen.hasTemplate() {
		return f.connection
	}
	return v.written(f, &seen, written, f.connection)
}

// written returns the new mark for packets with a connection, and the old mark for others.
func (v *visit) written(f flow, seen *view, mark, old *markBits) *markBits {
	with, without := v.split(f, v.connection(seen))
	return v.marks.merge(with.packets, mark, without.packets, old)
}

func (v *visit) mix(a rules.MixMark, f flow, seen view) flow {
	mixed := v.marks.mix(f.mark, v.connectionMark(f), a.Mark, a.ConntrackMark, a.Xor)
	switch {
	case a.Conntrack:
		f.connection = v.saved(f, seen, mixed)
	case a.ConntrackMark == 0:
		f.mark = mixed
	default:
		f.mark = v.written(f, &seen, mixed, f.mark)
	}
	return f
}

// setZone attaches a template with the zone to packets that conntrack has not seen, unless they
// have one. The rule continues for all packets: setZone returns those that are unchanged, and adds
// those that get the zone to on.
func (v *visit) setZone(a rules.SetZone, f flow, seen view, on *flows) flow {
	if seen.hasTemplate() {
		return f
	}
	// It has no effect on packets with a connection (ZoneAfterConntrackHasNoEffect).
	connected, others := v.split(f, v.connection(&seen))
	attach := func(f flow) {
		f.zone, f.tracking = a.Zone, cpuTemplate
		if seen.xtables {
			f.tracking = template
		}
		newConnections, others := v.split(f, v.or(v.is(state, number(rules.New)), v.stateIs(rules.Related)))
		newConnections.helper = a.Helper
		v.add(on, newConnections, others)
	}
	switch {
	case others.packets == none:
		return connected
	case seen.before && f.tracking == untracked && seen.xtables:
		v.add(on, others) // xtables does not change untracked packets (NFTZoneOfUntracked)
		return connected
	case seen.before && !f.tracking.isTemplate() && (!seen.second || f.tracking != untracked):
		// It is unknown how conntrack treats a packet that entered untracked. Packets of neighbor
		// discovery on lo are an exception: xtables does not change them, and conntrack ignores
		// them whatever zone nftables assigns.
		notTracked := v.untrackedBefore()
		if seen.second && seen.xtables {
			notTracked = v.stateIs(rules.Untracked)
		}
		untrackedBefore, unseen := v.split(others, notTracked)
		attach(unseen)
		if others = untrackedBefore; seen.xtables {
			v.add(on, others)
			return connected
		}
	}
	if others.packets != none {
		// A packet that was sent untracked over lo starts a new connection when it arrives, with
		// its own NAT.
		v.undecided(a.String()+" for a packet that conntrack does not track", others)
	}
	return connected
}

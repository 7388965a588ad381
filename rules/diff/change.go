package diff

import (
	"github.com/sluice-mesh/sluice/rules"
)

// evaluateChange evaluates an action that does not end the rule for all packets. It returns the
// packets for which the rule continues; the others continue with the next rule.
func (e *evaluator) evaluateChange(
	action rules.Action, packets []flow, eventIndex int, part rulePart,
) []flow {
	if a, ok := action.(rules.Require); ok {
		continuing, without := e.require(a.Match, packets, part)
		e.recordStop(eventIndex, without, action)
		return continuing
	}
	var continuing flows
	for _, f := range packets {
		view := e.view(&f.progress)
		switch a := action.(type) {
		case rules.TProxy: // NoListenerEndsRule, TProxyAssignsSocket, LastTProxyWins
			with, without := e.split(f, e.hasListener(tproxyTargetOf(a), &view))
			e.add(e.next, without)
			e.recordStop(eventIndex, []flow{without}, action)
			var beforeNAT flow
			beforeNAT, f = e.assignListener(with, tproxyTargetOf(a), &view)
			e.add(&continuing, beforeNAT)
		case rules.SetMark:
			f.mark = e.marks.setBits(f.mark, a.Value, a.Mask)
		case rules.SaveMark:
			f.connectionMark = e.saveMark(f, view, f.mark)
		case rules.RestoreMark:
			with, without := e.split(f, e.hasConnection(&view))
			e.add(e.next, without)
			if !view.xtables { // with xtables the target is the end of the rule in any case
				e.recordStop(eventIndex, []flow{without}, action)
			}
			f = with
			f.mark = e.connectionMark(f)
		case rules.MixMark:
			if eventIndex >= 0 && a.ConntrackMark != 0 && !view.xtables {
				// For a packet without a connection the rule ends here.
				_, without := e.split(f, e.hasConnection(&view))
				e.recordStop(eventIndex, []flow{without}, action)
			}
			f = e.mixMark(a, f, view)
		case rules.SetZone:
			f = e.setZone(a, f, view, &continuing)
		case rules.Notrack:
			if view.hasTemplate() {
				break // the packet keeps its template (FirstTemplateStays)
			}
			var without flow // NotrackNeedsNoConnection
			f, without = e.split(f, e.hasConnection(&view))
			without.tracking = untracked
			e.add(&continuing, without)
		}
		e.add(&continuing, f)
	}
	return continuing.list
}

// saveMark returns the connection mark of a flow after a rule has saved a mark. If the packets have
// a template, the rule changes the mark of the template, which the model does not store (see
// connectionMark).
func (e *evaluator) saveMark(f flow, view view, saved *markBits) *markBits {
	if view.hasTemplate() {
		return f.connectionMark
	}
	return e.mergeByConnection(f, &view, saved, f.connectionMark)
}

// mergeByConnection returns the mark that is equal to changed for packets with a connection, and
// equal to unchanged for others.
func (e *evaluator) mergeByConnection(f flow, view *view, changed, unchanged *markBits) *markBits {
	with, without := e.split(f, e.hasConnection(view))
	return e.marks.merge(with.packets, changed, without.packets, unchanged)
}

// mixMark returns the flow with the mark, or the connection mark, that the action computes.
func (e *evaluator) mixMark(a rules.MixMark, f flow, view view) flow {
	mixed := e.marks.mix(f.mark, e.connectionMark(f), a.Mark, a.ConntrackMark, a.Xor)
	switch {
	case a.Conntrack:
		f.connectionMark = e.saveMark(f, view, mixed)
	case a.ConntrackMark == 0:
		f.mark = mixed
	default:
		f.mark = e.mergeByConnection(f, &view, mixed, f.mark)
	}
	return f
}

// setZone attaches a template with the zone to packets that conntrack has not seen and that have no
// template. The rule continues for the unchanged packets, which setZone returns, and for the
// packets that setZone adds to continuing. Packets for which the effect of the zone is unknown end
// as undecided.
func (e *evaluator) setZone(a rules.SetZone, f flow, view view, continuing *flows) flow {
	if view.hasTemplate() {
		return f
	}
	arrivesUntracked := view.loopbackArrival && f.tracking == untracked
	// The action has no effect on packets with a connection (ZoneAfterConntrackHasNoEffect).
	connected, others := e.split(f, e.hasConnection(&view))
	attach := func(f flow) {
		isNew := e.or(e.is(state, number(rules.New)), e.stateIs(rules.Related))
		attached := []flow{f}
		if view.loopbackArrival {
			invalid, others := e.split(f, e.dependsOnZone())
			invalid.assignZone(a.Zone)
			attached = []flow{invalid, others}
			if invalid.retracked && a.Helper != "" {
				isNew = e.or(isNew, e.and(e.dependsOnZone(),
					e.variable(retrackedVariable(a.Zone, "whether it begins a connection"))))
			}
		}
		for _, f := range attached {
			f.zone, f.tracking = a.Zone, cpuTemplate
			if view.xtables {
				f.tracking = template
			}
			newConnections, others := e.split(f, isNew)
			newConnections.helper = a.Helper
			e.add(continuing, newConnections, others)
		}
	}
	switch {
	case others.packets == none:
		return connected
	case view.beforeConntrack && f.tracking == untracked && view.xtables:
		e.add(continuing, others) // xtables does not change untracked packets (NFTZoneOfUntracked)
		return connected
	case view.beforeConntrack && !f.tracking.isTemplate() && !arrivesUntracked:
		// If a packet entered untracked, it is unknown how conntrack treats it after nftables has
		// assigned a zone. Packets of neighbor discovery on lo are an exception: xtables does not
		// change them, and conntrack ignores them regardless of the zone that nftables assigns.
		noTemplate := e.entersUntracked()
		if view.loopbackArrival && view.xtables {
			noTemplate = e.stateIs(rules.Untracked)
		}
		unattached, attached := e.split(others, noTemplate)
		attach(attached)
		others = unattached
		if view.xtables {
			e.add(continuing, others)
			return connected
		}
	}
	if others.packets != none {
		// A packet that was sent untracked over lo begins a new connection when it arrives, and NAT
		// is decided again.
		e.endUndecided(a.String()+" for a packet that conntrack does not track", others)
	}
	return connected
}

package diff

import (
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// evaluateActions evaluates the actions of a rule for the packets that it matched. eventIndex is
// the index of the rule's event, or -1 if events are not recorded.
func (e *evaluator) evaluateActions(actions []rules.Action, packets []flow, eventIndex int) {
	for i, action := range actions {
		if len(packets) == 0 {
			return
		}
		e.meter.step()
		switch a := action.(type) {
		case rules.Verdict:
			e.applyVerdict(a, packets)
			return
		case rules.Jump:
			if packets = e.evaluateJump(a, packets); a.Goto {
				e.add(&e.summary.returned, packets...)
			} else {
				e.add(e.next, packets...) // VerdictEndsRule
			}
			return
		case rules.RedirectTo:
			e.translate(packets, target{kind: redirectTarget, port: a.Port, lastPort: a.Last}, action)
			return
		case rules.DNATPort:
			e.translate(packets, target{kind: portTarget, port: a.Port, lastPort: a.Last}, action)
			return
		case rules.DNATTo:
			e.translate(packets, target{
				kind: addrTarget, addr: a.Addr, lastAddr: a.LastAddr, port: a.Port, lastPort: a.Last,
			}, action)
			return
		case rules.SNATTo:
			e.translateSource(packets, a.String(), a.Addr)
			return
		case rules.Reject:
			e.evaluateReject(a, packets)
			return
		case rules.TProxyDrop: // NoListenerDrops
			for _, f := range packets {
				view := e.view(&f.progress)
				with, without := e.split(f, e.hasListener(tproxyTargetOf(a), &view))
				e.recordStop(eventIndex, []flow{without}, action)
				e.applyVerdict(rules.Drop, []flow{without})
				with.mark = e.marks.setBits(f.mark, a.Value, a.Mask)
				beforeNAT, with := e.assignListener(with, tproxyTargetOf(a), &view)
				e.add(&e.summary.accepted, beforeNAT, with)
			}
			return
		case rules.Unknown:
			packets = e.evaluateUnknownAction(a, packets, eventIndex, actionPart(i))
			if packets == nil {
				return
			}
		default:
			packets = e.evaluateChange(a, packets, eventIndex, actionPart(i))
		}
	}
	e.add(e.next, packets...)
}

// recordStop records the action at which the rule ended for some packets: in the rule's event, or
// in an additional event if the rule continued for other packets.
func (e *evaluator) recordStop(eventIndex int, packets []flow, action rules.Action) {
	if eventIndex < 0 {
		return
	}
	for _, f := range packets {
		if f.packets == none {
			continue
		}
		ev := &e.summary.events[eventIndex]
		others := e.minus(ev.packets, f.packets)
		if others == none {
			ev.stopped = action
			continue
		}
		ev.packets = others
		e.addEvent(event{packets: f.packets, index: e.run.first, stopped: action})
	}
}

// evaluateJump evaluates the chain of a jump, and returns the packets that return from it.
func (e *evaluator) evaluateJump(a rules.Jump, packets []flow) []flow {
	chain := e.chainOf(e.chain.Table, a.Chain)
	if chain == nil {
		e.endUndecided(a.String(), packets...)
		return nil
	}
	var returned flows
	target := rules.ChainRef{Table: e.chain.Table, Chain: chain}
	for _, f := range packets {
		e.add(&returned, e.evaluateCall(target, f, a.String())...)
	}
	return returned.list
}

// applyVerdict adds the packets to the accepted, returned or ended packets of the chain.
func (e *evaluator) applyVerdict(v rules.Verdict, packets []flow) {
	switch v {
	case rules.Accept:
		e.add(&e.summary.accepted, packets...)
	case rules.Return:
		e.add(&e.summary.returned, packets...)
	case rules.Drop:
		for _, f := range packets {
			f.dropped = true
			e.add(&e.summary.ended, f)
		}
	}
}

// evaluateReject drops packets and answers them. A reset is sent only for TCP (ResetAnswersTCP),
// and the ICMP error depends on the family of the packet (RejectCodeDependsOnFamily).
func (e *evaluator) evaluateReject(a rules.Reject, packets []flow) {
	if a.With == "tcp reset" {
		var others []flow
		packets, others = e.divide(packets, e.tcp)
		e.applyVerdict(rules.Drop, others)
	}
	for _, f := range packets {
		unanswered, answered := e.split(f, e.hasNoAnswer(a, f))
		e.applyVerdict(rules.Drop, []flow{unanswered})
		answered.dropped, answered.rejected = true, a.For(e.family).String()
		e.add(&e.summary.ended, answered)
	}
}

// hasNoAnswer returns the packets that the kernel drops without an answer, because it has no route
// for the answer (RejectFromLoopbackNeedsLocalSource, ICMPErrorNeedsLocalSource,
// LinkLocalErrorUsesRouteInterface).
func (e *evaluator) hasNoAnswer(a rules.Reject, f flow) set {
	view := e.view(&f.progress)
	if e.family != rules.IPv4 {
		return e.hasNoLinkLocalAnswer(a, f, &view)
	}
	// Packets to a loopback address have no answer unless their source is a local address. Packets
	// that are routed to this host (onHost) have no ICMP error unless their destination is a local
	// address.
	toLoopback := e.minus(e.matchSet(addresses(rules.Destination, loopbackIPv4), &view),
		e.is(sourceType, number(rules.Local)))
	onHost := none
	switch {
	case a.With == "tcp reset":
		return toLoopback
	case e.position.loopbackArrival, f.toLoopback:
		onHost = all
	case e.currentHook() != rules.Output:
		return none // an ICMP error about an arriving packet has a source address of this host
	case !f.leavesLoopback:
		onHost = e.overLoopback
	}
	if e.currentHook() == rules.Output {
		// At output the kernel also answers packets of sockets that are bound to an interface.
		toLoopback = e.minus(toLoopback, e.bound())
	}
	if e.and(onHost, f.packets) == none {
		return toLoopback
	}
	local := e.addrTypeMatches(rules.MatchAddrType{
		Side: rules.Destination, Types: rules.AddrTypes(rules.Local),
	}, &view)
	local = e.or(local, e.matchSet(addresses(rules.Destination, unspecifiedIPv4), &view))
	return e.or(toLoopback, e.minus(onHost, local))
}

// hasNoLinkLocalAnswer returns the packets on lo, from link-local addresses, that the kernel does
// not answer. The kernel answers such a packet if its route names an interface other than lo, as
// the routes to addresses of this host do.
func (e *evaluator) hasNoLinkLocalAnswer(a rules.Reject, f flow, view *view) set {
	onLoopback := e.overLoopback
	switch {
	case a.With == "tcp reset", e.currentHook() != rules.Output && !e.position.loopbackArrival:
		return none
	case e.position.loopbackArrival || f.toLoopback:
		onLoopback = all
	case f.leavesLoopback:
		return none
	}
	packets := e.and(onLoopback, e.matchSet(addresses(rules.Source, linkLocalIPv6), view))
	if e.and(packets, f.packets) == none {
		return none
	}
	return e.and(packets, e.variable(variable{
		key: fmt.Sprint("link-local answer ", *view), kind: unknownBit,
		text: "whether the kernel answers a packet on lo that comes from a link-local address",
	}))
}

// translate accepts packets, and changes their destination if their NAT mapping is not determined
// yet. It ends the evaluation of packets whose translation the model does not represent, or that
// the kernel drops.
func (e *evaluator) translate(packets []flow, to target, action rules.Action) {
	for _, f := range packets {
		if f.mapped {
			e.add(&e.summary.accepted, f)
			continue
		}
		to := to
		to.hook = e.currentHook()
		if f.retracked && to.kind == redirectTarget {
			var others flow
			if f, others = e.split(f, e.redirectsToLoopback()); others.packets != none {
				e.endUndecided(action.String()+" of a packet on lo", others)
			}
			to.hook = rules.Output // the address of lo, as at output
		}
		resets, f := e.split(f, e.resets) // ResetHasConnection
		resets.mapped = true
		e.add(&e.summary.accepted, resets)
		if to.hasPort() {
			// For other protocols NAT changes a part of the packet that the model does not contain,
			// such as the id of ICMP.
			var others flow
			if f, others = e.split(f, e.withNATPorts); others.packets != none {
				e.endUndecided(action.String()+" for a protocol without ports", others)
			}
		}
		if to.kind == redirectTarget && to.hook == rules.Prerouting {
			var lost flow // RedirectWithoutAddressDrops
			if lost, f = e.split(f, e.lacksAddress); lost.packets != none {
				lost.dropped = true
				e.add(&e.summary.ended, lost)
			}
		}
		f.target, f.mapped = to, true
		e.add(&e.summary.accepted, f)
	}
}

// translateSource accepts packets and changes their source to the given address (FirstNATMapping).
// The address is invalid if the new source is unknown. action is the name of the action. The result
// is unknown in a chain that is not a NAT chain at postrouting.
func (e *evaluator) translateSource(packets []flow, action string, to netip.Addr) {
	base := e.position.chain.Chain.Base
	if base.Type != rules.NAT || base.Hook != rules.Postrouting {
		e.endUndecided(action, packets...)
		return
	}
	resets, packets := e.divide(packets, e.resets)
	e.add(&e.summary.accepted, resets...) // ResetHasConnection
	for _, f := range packets {
		f.snatAction, f.snat = action, to
		e.add(&e.summary.accepted, f)
	}
}

// require divides packets into the packets that meet a match, and others. It adds the others to
// next (MapMissEndsRule).
func (e *evaluator) require(
	m rules.Match, packets []flow, part rulePart,
) (matched, others []flow) {
	for _, f := range packets {
		with, without := e.split(f, e.evaluateMatch(m, f, f.packets, part))
		e.add(e.next, without)
		if with.packets != none {
			matched = append(matched, with)
		}
		others = append(others, without)
	}
	return matched, others
}

package diff

import (
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// act evaluates the actions of a rule for the packets that it matched; at is the index of its
// event, if events are recorded.
func (v *visit) act(actions []rules.Action, packets []flow, at int) {
	for i, action := range actions {
		if len(packets) == 0 {
			return
		}
		v.meter.step()
		switch a := action.(type) {
		case rules.Verdict:
			v.verdict(a, packets)
			return
		case rules.Jump:
			if packets = v.jump(a, packets); a.Goto {
				v.add(&v.summary.returned, packets...)
				return
			}
		case rules.RedirectTo:
			v.translate(packets,
				target{kind: redirectTarget, hook: v.hookHere(), port: a.Port, last: a.Last},
				action)
			return
		case rules.DNATPort:
			v.translate(packets,
				target{kind: portTarget, hook: v.hookHere(), port: a.Port, last: a.Last}, action)
			return
		case rules.DNATTo:
			v.translate(packets, target{
				kind: addrTarget, hook: v.hookHere(), addr: a.Addr, lastAddr: a.LastAddr,
				port: a.Port, last: a.Last,
			}, action)
			return
		case rules.SNATTo:
			v.translateSource(packets, a.String(), a.Addr)
			return
		case rules.Reject:
			v.reject(a, packets)
			return
		case rules.TProxyDrop: // NoListenerDrops
			with, without := v.divide(packets, v.listens(a.Port))
			v.stopped(at, without, action)
			v.verdict(rules.Drop, without)
			v.accept(with, func(f *flow) {
				f.tproxy = tproxyTarget{true, a.Addr, a.Port}
				f.mark = v.marks.set(f.mark, a.Value, a.Mask)
			})
			return
		case rules.Unknown:
			if packets = v.unknownAction(a, packets, at, actionPart(i)); packets == nil {
				return
			}
		default:
			packets = v.change(a, packets, at, actionPart(i))
		}
	}
	v.add(v.next, packets...)
}

// listens returns the packets for which a tproxy to the port has a transparent socket
// (TProxyNeedsTCPOrUDP, TProxyIgnoresState). The field NoListener of a packet does not describe a
// listener on its own port (TProxyPortZeroIsDestinationPort).
func (v *visit) listens(port uint16) set {
	if port != 0 || v.one == nil {
		return v.and(v.tcpOrUDP, v.not(v.bit(listener, 0)))
	}
	return v.and(v.tcpOrUDP, v.variable(variable{
		key: "listens on the packet's port", kind: unknownBit,
		text: "whether a transparent socket listens on the packet's own port", step: v.step(),
	}))
}

// stopped records the action at which the rule ended for some packets.
func (v *visit) stopped(at int, packets []flow, action rules.Action) {
	if at < 0 {
		return
	}
	for _, f := range packets {
		if f.packets == none {
			continue
		}
		e := &v.summary.events[at]
		rest := v.minus(e.packets, f.packets)
		if rest == none {
			e.stopped = action
			continue
		}
		e.packets = rest
		v.note(event{packets: f.packets, index: v.run.first, stopped: action})
	}
}

func (v *visit) jump(a rules.Jump, packets []flow) []flow {
	chain := v.chainOf(v.chain.Table, a.Chain)
	if chain == nil {
		v.undecided(a.String(), packets...)
		return nil
	}
	var back flows
	for _, f := range packets {
		v.add(&back, v.call(rules.ChainRef{Table: v.chain.Table, Chain: chain}, f, a.String())...)
	}
	return back.list
}

func (v *visit) verdict(verdict rules.Verdict, packets []flow) {
	switch verdict {
	case rules.Accept:
		v.add(&v.summary.accepted, packets...)
	case rules.Return:
		v.add(&v.summary.returned, packets...)
	case rules.Drop:
		for _, f := range packets {
			f.dropped = true
			v.add(&v.summary.ended, f)
		}
	}
}

// reject drops packets and replies to them. A reset is sent only for TCP (ResetAnswersTCP).
func (v *visit) reject(a rules.Reject, packets []flow) {
	if a.With == "tcp reset" {
		var others []flow
		packets, others = v.divide(packets, v.tcp)
		v.verdict(rules.Drop, others)
	}
	for _, f := range packets {
		answered, unanswered := v.split(f, v.not(v.unanswered(a, f)))
		v.verdict(rules.Drop, []flow{unanswered})
		answered.dropped, answered.rejected = true, a.String()
		v.add(&v.summary.ended, answered)
	}
}

// unanswered returns the packets for which the kernel has no route for a reply
// (RejectFromLoopbackNeedsLocalSource, ICMPErrorNeedsLocalSource,
// LinkLocalErrorUsesRouteInterface).
func (v *visit) unanswered(a rules.Reject, f flow) set {
	seen := v.view(&f.progress)
	if v.family != rules.IPv4 {
		return v.unansweredLinkLocal(a, f, &seen)
	}
	toLoopback := v.minus(v.matching(addresses(rules.Destination, loopbackIPv4), &seen),
		v.is(sourceType, number(rules.Local)))
	onHost := none
	switch {
	case a.With == "tcp reset":
		return toLoopback
	case v.place.loopbackArrival, f.toLoopback:
		onHost = all
	case v.hookHere() != rules.Output:
		return none // an error about a packet that arrives comes from another address
	case !f.leavesLoopback:
		onHost = v.overLoopback
	}
	if v.hookHere() == rules.Output {
		// The kernel also replies to a packet that leaves the host.
		toLoopback = v.minus(toLoopback, v.bound())
	}
	if v.and(onHost, f.packets) == none {
		return toLoopback
	}
	local := v.addrTypeIs(rules.MatchAddrType{
		Side: rules.Destination, Types: rules.AddrTypes(rules.Local),
	}, &seen)
	local = v.or(local, v.matching(addresses(rules.Destination, unspecifiedIPv4), &seen))
	return v.or(toLoopback, v.minus(onHost, local))
}

// unansweredLinkLocal returns the packets from link-local addresses on lo without a reply. There is
// a reply if the route names another interface, as routes to addresses of this host do.
func (v *visit) unansweredLinkLocal(a rules.Reject, f flow, seen *view) set {
	onLoopback := v.overLoopback
	switch {
	case a.With == "tcp reset", v.hookHere() != rules.Output && !v.place.loopbackArrival:
		return none
	case v.place.loopbackArrival || f.toLoopback:
		onLoopback = all
	case f.leavesLoopback:
		return none
	}
	packets := v.and(onLoopback, v.matching(addresses(rules.Source, linkLocalIPv6), seen))
	if v.and(packets, f.packets) == none {
		return none
	}
	return v.and(packets, v.variable(variable{
		key: fmt.Sprint("link-local answer ", *seen), kind: unknownBit,
		text: "whether the kernel answers a packet on lo that comes from a link-local address",
	}))
}

func (v *visit) accept(packets []flow, change func(*flow)) {
	for _, f := range packets {
		change(&f)
		v.add(&v.summary.accepted, f)
	}
}

// translate accepts packets, and changes their destination if NAT is not determined yet.
func (v *visit) translate(packets []flow, to target, action rules.Action) {
	for _, f := range packets {
		if f.mapped {
			v.add(&v.summary.accepted, f)
			continue
		}
		resets, f := v.split(f, v.resets) // ResetHasConnection
		resets.mapped = true
		v.add(&v.summary.accepted, resets)
		if to.hasPort() {
			// For other protocols the port is something that the model does not contain, such as
			// the id of ICMP.
			var others flow
			if f, others = v.split(f, v.withNATPorts); others.packets != none {
				v.undecided(action.String()+" for a protocol without ports", others)
			}
		}
		if to.kind == redirectTarget && to.hook == rules.Prerouting {
			var lost flow
			if lost, f = v.split(f, v.withoutAddress); lost.packets != none {
				lost.dropped = true
				v.add(&v.summary.ended, lost)
			}
		}
		f.target, f.mapped = to, true
		v.add(&v.summary.accepted, f)
	}
}

// translateSource accepts packets and changes their source, to an unknown address if it is invalid
// (FirstNATMapping). Elsewhere than at postrouting the result is unknown.
func (v *visit) translateSource(packets []flow, by string, to netip.Addr) {
	if base := v.place.chain.Chain.Base; base.Type != rules.NAT || base.Hook != rules.Postrouting {
		v.undecided(by, packets...)
		return
	}
	resets, packets := v.divide(packets, v.resets)
	v.add(&v.summary.accepted, resets...) // ResetHasConnection
	v.accept(packets, func(f *flow) { f.source, f.snat = by, to })
}

// require returns the packets that meet a match; for the others the next rule is evaluated
// (MapMissEndsRule).
func (v *visit) require(
	m rules.Match, packets []flow, part rulePart,
) (on, others []flow) {
	for _, f := range packets {
		with, without := v.split(f, v.evaluateMatch(m, f, f.packets, part))
		v.add(v.next, without)
		if with.packets != none {
			on = append(on, with)
		}
		others = append(others, without)
	}
	return on, others
}

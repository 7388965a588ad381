package diff

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// reroute determines, at the end of a chain of type route, which packets with a changed mark are
// routed to lo (MarkChangeReroutes). before is the mark at the start of the chain. reroute adds the
// packets to out, except packets that the host has no route for.
func (w *walk) reroute(f flow, before *markBits, out *flows) {
	changed, unchanged := w.split(f, w.marks.differs(f.mark, before))
	lost, changed := w.split(changed, w.lostOnLoopback(changed))
	lost.dropped = true
	w.add(&w.ended, lost)
	bound, changed := w.split(changed, w.bound())
	w.add(out, bound)
	linkLocal, changed := w.split(changed, w.staysOnLink())
	if linkLocal.packets != none {
		// The kernel looks for a route through this interface only, and drops the packet if there
		// is none. If both sides change the mark, the result is the same on both sides. Therefore
		// only Explain distinguishes the two cases.
		if w.single != nil {
			linkLocal, lost = w.split(linkLocal, w.variable(variable{
				key: "route on the link", kind: unknownBit,
				text: "whether the host has a route to the destination through the interface",
			}))
			lost.dropped = true
			w.add(&w.ended, lost)
		}
		w.add(out, linkLocal)
	}
	local, remote := w.split(changed,
		w.or(w.localMark(changed.mark), w.selectedInsteadOfLoopback()))
	local.toLoopback, remote.toLoopback = true, false
	local.leavesLoopback, remote.leavesLoopback = false, true
	w.add(out, local, remote, unchanged)
}

// lostOnLoopback returns the packets of sockets bound to lo that have no route: packets to the
// unspecified address, which raw sockets can send, unless the mark routes them to lo
// (UnspecifiedAddressIsReplaced).
func (w *walk) lostOnLoopback(f flow) set {
	return w.minus(w.and(w.and(w.bound(), w.overLoopback), w.toUnspecified()), w.localMark(f.mark))
}

// toUnspecified returns the packets to the IPv6 address ::. Only raw sockets send them: other
// sockets, and IPv4, send to the loopback address instead (UnspecifiedAddressIsReplaced).
func (w *walk) toUnspecified() set {
	if w.family != rules.IPv6 {
		return none
	}
	return w.matchSet(addresses(rules.Destination, unspecifiedIPv6), &view{})
}

// mayBeLost returns the packets that were translated from the unspecified address to an address
// outside of loopback. The flow must be from sockets bound to lo. The kernel drops such a packet if
// there is no route to the new address (UnspecifiedAddressIsReplaced), which is unknown.
func (w *walk) mayBeLost(f flow) set {
	if a, _ := w.addressOf(f.target); a.IsLoopback() {
		return none
	}
	translated := w.and(w.toUnspecified(), w.toOtherAddress(f.target))
	if translated == none {
		return none
	}
	return w.and(translated, w.variable(variable{
		key: "route of a packet translated from the unspecified address", kind: unknownBit,
		text: "whether the host has a route to the address to which a packet to the unspecified " +
			"address was translated",
	}))
}

// routeTranslated determines which of the packets that were translated to another address are
// routed to lo because of their current mark (DNATAtOutputReroutes). The method route handles
// packets that are routed to lo because of their address.
func (w *walk) routeTranslated(in []flow) []flow {
	if len(policyRuleMarks(w.rs.Routing, w.family)) == 0 {
		return in
	}
	var out flows
	for _, f := range in {
		toOther := w.toOtherAddress(f.target)
		if !f.mapped && f.tracking != untracked {
			// The packets may use an earlier mapping of their connection to another address.
			withLocalMark := w.and(w.retranslated(), w.localMark(f.mark))
			if w.and(withLocalMark, f.packets) != none {
				toOther = w.and(withLocalMark, w.variable(variable{
					key:  "translated to another address",
					text: "whether earlier packets of the connection were sent to another address",
				}))
			}
		}
		changed, unchanged := w.split(f, w.minus(toOther, w.bound()))
		local, remote := w.split(changed, w.localMark(changed.mark))
		local.toLoopback, remote.toLoopback = true, false
		w.add(&out, local, remote, unchanged)
	}
	return out.list
}

// localMark returns the packets whose mark selects a policy route to this host.
func (w *walk) localMark(mark *markBits) set {
	local := none
	for _, m := range policyRuleMarks(w.rs.Routing, w.family) {
		local = w.or(local, w.marks.equals(mark, m))
	}
	return local
}

// bound returns the packets of sockets that are bound to the output interface. Rerouting keeps this
// interface (BoundSocketKeepsInterface). A closed socket remains bound.
func (w *walk) bound() set {
	return w.and(w.or(w.hasUserSocket, w.mayHaveClosedSocket()), w.variable(variable{
		key: boundKey, text: "whether the socket is bound to the interface",
	}))
}

// selected returns the packets whose sender has selected the interface for this packet. Rerouting
// does not keep this interface (SelectedInterfaceIsNotKept).
func (s *space) selected() set {
	return s.and(s.or(s.hasUserSocket, s.hasKernelSocket), s.variable(variable{
		key: selectsKey, text: "whether the sender has selected the interface for this packet only",
	}))
}

// selectedInsteadOfLoopback returns the packets that are on another interface than lo only because
// the sender has selected it.
func (w *walk) selectedInsteadOfLoopback() set {
	selected := w.minus(w.selected(), w.overLoopback)
	if selected == none {
		return none
	}
	return w.and(selected, w.or(w.is(destinationType, number(rules.Local)), w.routedByLoopback()))
}

// keepsLoopback returns the packets on lo that stay on lo when they are routed again because their
// mark has changed (MarkChangeReroutesLoopback). A packet whose first mark does not route it to lo
// is on lo because of its destination, unless the sender has selected lo.
func (w *walk) keepsLoopback() set {
	byDestination := w.or(w.is(destinationType, number(rules.Local)),
		w.not(w.or(w.localMark(w.marks.packet), w.selected())))
	if byDestination == all {
		return all
	}
	return w.or(byDestination, w.routedByLoopback())
}

// routedByLoopback returns the packets whose destination the host routes to lo, whatever the mark.
func (w *walk) routedByLoopback() set {
	return w.variable(variable{
		key:  routeByLoopbackKey,
		text: "whether the host routes the destination to lo, whatever the mark",
	})
}

// staysOnLink returns the IPv6 packets that keep their interface when they are routed again
// (ip6_route_me_harder in net/ipv6/netfilter.c), and therefore are not routed to lo
// (LinkLocalKeepsInterface).
func (w *walk) staysOnLink() set {
	if w.family != rules.IPv6 {
		return none
	}
	linkLocal := w.matchSet(addresses(rules.Destination, linkLocalIPv6), &view{})
	return w.or(linkLocal, w.matchSet(addresses(rules.Destination, multicastIPv6), &view{}))
}

// route divides the packets after the output hook into packets that arrive on lo and packets that
// leave the host.
func (w *walk) route(in []flow) (arriving, leaving []flow) {
	r := router{walk: w}
	for _, f := range in {
		bound, others := w.split(f, w.bound())
		r.routeBound(bound)
		toOther, toOriginal := w.split(others, w.toOtherAddress(others.target))
		r.routeToOtherAddress(toOther)
		r.routeToOriginalAddress(toOriginal)
	}
	return r.arriving.list, r.leaving.list
}

// A router collects the results of route.
type router struct {
	*walk
	arriving, leaving flows
}

// arrive adds packets that arrive on lo. rerouted reports that their mark routed them to lo.
func (r *router) arrive(f flow, rerouted bool) {
	// A packet on lo keeps its conntrack entry, whose mapping does not change
	// (LoopbackKeepsConnection).
	f.mapped, f.toLoopback, f.leavesLoopback, f.rerouted = true, false, false, rerouted
	if f.tracking.isTemplate() {
		f.tracking = tracked // conntrack has replaced it
	}
	r.add(&r.arriving, f)
}

// arriveIfMarked adds packets that arrive on lo if their mark routes them to lo, and that leave the
// host otherwise.
func (r *router) arriveIfMarked(f flow) {
	if f.toLoopback {
		r.arrive(f, true)
	} else {
		r.add(&r.leaving, f)
	}
}

// routeBound routes packets of sockets bound to their interface.
func (r *router) routeBound(f flow) {
	onLoopback, elsewhere := r.split(f, r.overLoopback)
	lost, onLoopback := r.split(onLoopback, r.mayBeLost(onLoopback))
	lost.dropped = true
	r.add(&r.ended, lost)
	r.arrive(onLoopback, false)
	if elsewhere.packets != none && elsewhere.target.kind == addrTarget {
		// The interface's own address is routed to lo too. A loopback address is not an address of
		// this interface.
		var toOther flow
		toOther, elsewhere = r.split(elsewhere, r.toOtherAddress(elsewhere.target))
		ownAddress := none
		if a, _ := r.addressOf(toOther.target); !a.IsLoopback() {
			ownAddress = r.isLocal(toOther.target)
		}
		local, remote := r.split(toOther, ownAddress)
		r.arrive(local, false)
		r.add(&r.leaving, remote)
	}
	r.add(&r.leaving, elsewhere)
}

// routeToOtherAddress routes packets that a rule translated to another address: the kernel routes
// them again, and an address of this host is routed to lo (DNATAtOutputReroutes).
func (r *router) routeToOtherAddress(f flow) {
	if f.packets == none {
		return
	}
	local, remote := r.split(f, r.isLocal(f.target))
	r.arrive(local, false)
	r.arriveIfMarked(remote)
}

// routeToOriginalAddress routes packets that no rule translated to another address.
func (r *router) routeToOriginalAddress(f flow) {
	onLoopback, leavingLoopback := r.overLoopback, none
	if f.leavesLoopback {
		leavingLoopback = r.minus(onLoopback, r.keepsLoopback())
		onLoopback = r.minus(onLoopback, leavingLoopback)
	}
	retranslated := r.retranslatedIn(f)
	local, remote := r.split(f,
		r.or(r.minus(onLoopback, retranslated), r.sentToHost(retranslated)))
	r.arrive(local, false)
	leaving, remote := r.split(remote, r.minus(leavingLoopback, retranslated))
	leaving.leftLoopback = true
	r.add(&r.leaving, leaving)
	r.arriveIfMarked(remote)
}

// retranslatedIn returns the packets of a flow whose connection was translated earlier
// (NATMappingPersists).
func (w *walk) retranslatedIn(f flow) set {
	if f.tracking == untracked || f.mapped {
		return none
	}
	return w.retranslated()
}

// sentToHost returns the retranslated packets that are sent to this host, whatever their output
// interface was. The others leave the host, even if they were routed to lo (DNATAtOutputReroutes).
func (w *walk) sentToHost(retranslated set) set {
	if retranslated == none {
		return none
	}
	return w.and(retranslated, w.variable(variable{
		key:  toHostKey,
		text: "whether earlier packets of the connection were sent to this host",
	}))
}

// isLocal returns the packets whose new destination is an address of this host.
func (w *walk) isLocal(t target) set {
	a, _ := w.addressOf(t)
	if a.IsValid() && a.IsLoopback() {
		return all
	}
	return w.variable(variable{
		key: fmt.Sprint("local ", t.addr, t.lastAddr), kind: w.randomForSinglePacket(hostFact),
		text: fmt.Sprintf("whether %s, to which the packet is sent, is an address of this host",
			t.addr),
	})
}

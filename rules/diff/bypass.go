package diff

import "github.com/sluice-mesh/sluice/rules"

// Bypass returns the packets that bypass the proxy because of the live ruleset:
//
//   - Packets that the desired ruleset redirects to a proxy, and that the live ruleset neither
//     drops nor delivers to the same port of this host by the same method (REDIRECT or TPROXY).
//   - Later packets of connections whose first packet the desired ruleset redirects, if the live
//     ruleset does not drop them, and assigns them to another listener or does not track them.
//   - Packets that the desired ruleset does not redirect, if the live ruleset translates them to a
//     destination whose packets the desired ruleset redirects.
//
// The result is not valid for some rare packets, such as packets of sockets that are bound to an
// interface. Nor is it valid for packets that a tc filter or an eBPF program has marked, if they
// come from other hosts or begin a connection.
//
// Result.Classes contains the packets that bypass the proxy: Left is the outcome of the desired
// ruleset, Right is the outcome of the live ruleset. Result.Undecided lists the reasons why it is
// unknown whether redirected packets bypass the proxy. Bypass assumes that the routing of both
// rulesets is complete. It does not set the fields of Result about routing and chains.
//
// Bypass is safe for concurrent use.
func Bypass(desired, live rules.Ruleset, o Options) Result {
	d := newDecision(Side{Ruleset: desired, RoutingKnown: true},
		Side{Ruleset: live, RoutingKnown: true}, o)
	d.findBypasses()
	d.describeClasses()
	return d.result
}

// findBypasses compares the packets for [Bypass], and stores the spaces with packets that bypass
// the proxy and the reasons why packets are undecided.
func (d *decision) findBypasses() {
	var first scopeResult
	d.result.Exhausted = runLimited(func() {
		d.compare = (*space).compareBypass
		first = d.decideScope(packetScope{unmarked: true, missingListeners: true},
			rules.Output, rules.Prerouting)
		if len(first.spaces) == 0 && mayDivertLater(d.sides.Left, d.sides.Right) {
			d.compare = (*space).compareLater
			// A process can bind a socket to an interface after the first packet.
			d.decideScope(packetScope{
				unmarked: true, translations: true, redirected: true, boundSockets: true,
				missingListeners: true,
			}, rules.Output, rules.Prerouting)
		}
	})
	// The budget may have ended in the second comparison, after the first had found reasons.
	for _, u := range d.undecided {
		if first.canAdd(u) {
			first.undecided = append(first.undecided, u)
		}
	}
	d.result.Undecided = first.undecided
	d.result.MoreUndecided = first.moreUndecided || d.moreUndecided
}

// compareBypass compares two walks for [Bypass].
func (s *space) compareBypass(left, right *walk) comparison {
	lefts, unknownLeft := left.outcomes()
	rights, unknownRight := right.outcomes()
	var c comparison
	var captured []set
	for _, l := range lefts.list {
		if !l.isCaptured() {
			continue
		}
		captured = append(captured, l.packets)
		for _, r := range rights.list {
			s.meter.step()
			if !r.dropped {
				packets := s.minus(s.and(l.packets, r.packets), s.sameCapture(&l, &r))
				s.addDifference(&c, &l, &r, packets, packets)
			}
		}
	}
	toProxy, proxyPorts := s.unite(captured), portsOfProxy(left.rs)
	for i := range rights.list {
		r := &rights.list[i]
		readdressed := s.and(r.packets, s.translatedToCaptured(r, toProxy, proxyPorts))
		if readdressed == none {
			continue
		}
		for _, l := range lefts.list {
			s.meter.step()
			if !l.dropped && !l.isCaptured() {
				packets := s.and(readdressed, l.packets)
				s.addDifference(&c, &l, r, packets, packets)
			}
		}
	}
	unknown := s.or(unknownLeft, s.and(unknownRight, toProxy))
	if rest := s.minus(unknownRight, unknown); rest != none {
		unknown = s.or(unknown, s.and(rest, s.captureOfOtherDestination(toProxy)))
	}
	s.divideByUnknowns(&c, unknown, left, right)
	return c
}

// isCaptured reports whether a proxy receives the packets.
func (p *progress) isCaptured() bool {
	return !p.dropped && (p.tproxy.assigned || p.target.kind == redirectTarget)
}

// sameCapture returns the packets that two outcomes deliver to the same port of this host by the
// same method (REDIRECT or TPROXY). DNAT to an address of this host is the same method as REDIRECT.
func (s *space) sameCapture(l, r *flow) set {
	switch {
	case !r.isCaptured() && !s.isOwnAddress(r.target) || l.tproxy.assigned != r.tproxy.assigned:
		return none
	case l.tproxy.assigned:
		return s.samePort(target{port: l.tproxy.port}, target{port: r.tproxy.port})
	}
	return s.samePort(l.target, r.target)
}

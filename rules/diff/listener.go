package diff

import "github.com/sluice-mesh/sluice/rules"

// listenersOf returns the listeners of the tproxy rules of all sides, in the order of the rules.
// The listeners are independent: each may exist without the others.
func listenersOf(sides ...*rules.Ruleset) []tproxyTarget {
	var found []tproxyTarget
	known := map[tproxyTarget]bool{}
	for _, rs := range sides {
		for _, r := range rs.AllRules() {
			for _, a := range r.Actions {
				if t := tproxyTargetOf(a); t.assigned && !known[t] {
					known[t] = true
					found = append(found, t)
				}
			}
		}
	}
	return found
}

// tproxyTargetOf returns the listener of a tproxy action, or the zero value for another action.
func tproxyTargetOf(a rules.Action) tproxyTarget {
	switch a := a.(type) {
	case rules.TProxy:
		return tproxyTarget{true, a.Addr, a.Port}
	case rules.TProxyDrop:
		return tproxyTarget{true, a.Addr, a.Port}
	}
	return tproxyTarget{}
}

// missingListener returns the variable that is true if a listener is missing although the field
// noListener means that listeners exist. Variables are needed only if rules have several listeners,
// or for a single packet.
func missingListener(t tproxyTarget) variable {
	name := rules.ListenerName(t.addr, t.port)
	on := name
	if !t.addr.IsValid() {
		on = "port " + name
	}
	return variable{
		key: listenerKey + name, text: "whether the listener of tproxy on " + on + " is missing",
	}
}

// hasListener returns the packets for which a tproxy action finds a transparent socket
// (TProxyNeedsTCPOrUDP, TProxyIgnoresState, ListenersAreIndependent). Port 0 is the destination
// port of the packet (TProxyPortZeroIsDestinationPort): for a single packet,
// rules.Packet.NoListener does not say whether there is a listener on this port.
func (e *evaluator) hasListener(t tproxyTarget, view *view) set {
	if t.port == 0 && e.single != nil {
		return e.and(e.tcpOrUDP, e.variable(variable{
			key: "listens on the packet's port", kind: unknownBit,
			text: "whether a transparent socket listens on the packet's own port", step: e.step(),
		}))
	}
	found := e.minus(e.tcpOrUDP, e.bit(noListener, 0))
	if len(e.shared.listeners) < 2 && e.single == nil {
		return found
	}
	missing := e.variable(missingListener(t))
	for _, other := range e.shared.listeners {
		if t.port == 0 && other.port != 0 && other.addr == t.addr {
			toOther := e.matchSet(rules.MatchPort{
				Side: rules.Destination, Ports: rules.Singles(other.port),
			}, view)
			missing = e.ifElse(toOther, e.variable(missingListener(other)), missing)
		}
	}
	return e.minus(found, missing)
}

// assignListener assigns a listener to the packets. beforeNAT contains the packets of a translated
// connection whose destination NAT has not translated yet.
func (e *evaluator) assignListener(f flow, t tproxyTarget, v *view) (beforeNAT, others flow) {
	f.tproxy, f.precedesNAT = t, false
	if v.translated {
		return flow{}, f
	}
	beforeNAT, others = e.split(f, e.retranslated())
	beforeNAT.precedesNAT = true
	return beforeNAT, others
}

// sameSocket returns the packets to which tproxy assigns the same socket on both sides
// (TProxyPrefersEstablished), if both sides assign the same listener to their first packet.
func (s *space) sameSocket(l, r *progress) set {
	if l.precedesNAT == r.precedesNAT {
		return all
	}
	return s.variable(variable{
		key: "socket of tproxy before NAT", kind: unknownBit,
		text: "whether tproxy assigns the same socket before and after the translation of the " +
			"packet's destination",
	})
}

package diff

import (
	"cmp"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// translatedToCaptured returns the packets that the outcome r sends to a destination to which the
// left side would redirect them: outbound packets to another host, and inbound packets to another
// port or address of this host. toProxy contains the packets that the left side redirects, and
// proxyPorts the ports to which it redirects. The result is empty if r delivers packets to one of
// these ports.
func (s *space) translatedToCaptured(r *flow, toProxy set, proxyPorts map[uint16]bool) set {
	if r.dropped || toProxy == none {
		return none
	}
	t := r.target
	if (r.isCaptured() || s.isOwnAddress(t)) && !t.isRange() &&
		(proxyPorts[t.port] || proxyPorts[r.tproxy.port]) {
		return none
	}
	switch {
	case r.tproxy.assigned && s.hook == rules.Prerouting:
		t = target{kind: portTarget, port: r.tproxy.port}
	case t.kind == noTarget, t.kind == redirectTarget && t.hook == rules.Output:
		return none
	case t.kind == addrTarget && s.isKnownLocal(t) == (s.hook == rules.Output):
		return none
	}
	destinations := toProxy
	changed := map[field]bool{}
	if t.hasPort() {
		changed[destinationPort] = true
		destinations = s.and(destinations, s.within(destinationPort,
			[]span{{number(t.port), number(max(t.port, t.lastPort))}}))
	}
	if t.kind == addrTarget || t.kind == redirectTarget {
		changed[destination], changed[destinationType] = true, true
	}
	if t.kind == addrTarget {
		destinations = s.and(destinations, s.within(destination,
			[]span{{address(t.addr), address(cmp.Or(t.lastAddr, t.addr))}}))
		if s.hook == rules.Output {
			changed[iface] = true
			destinations = s.minus(destinations, s.overLoopback)
		}
	}
	return s.and(s.addressable(), s.withoutFields(destinations, changed))
}

// portsOfProxy returns the ports to which the rules redirect.
func portsOfProxy(rs *rules.Ruleset) map[uint16]bool {
	ports := map[uint16]bool{}
	for _, r := range rs.AllRules() {
		for _, a := range r.Actions {
			if port, ok := proxyPort(a); ok && port != 0 { // 0 is the port of the packet
				ports[port] = true
			}
		}
	}
	return ports
}

// proxyPort returns the port of this host to which the action redirects packets. ok is false for
// another action.
func proxyPort(a rules.Action) (port uint16, ok bool) {
	if r, isRedirect := a.(rules.RedirectTo); isRedirect {
		return r.Port, true
	}
	t := tproxyTargetOf(a)
	return t.port, t.assigned
}

// captureOfOtherDestination returns the packets that the left side would redirect if they had
// another destination. They include packets to other hosts by the interface lo, which sockets that
// are bound to lo send.
func (s *space) captureOfOtherDestination(toProxy set) set {
	changed := map[field]bool{destination: true, destinationType: true, destinationPort: true}
	if s.hook == rules.Output {
		changed[iface] = true
		toProxy = s.minus(toProxy, s.overLoopback)
	}
	return s.withoutFields(toProxy, changed)
}

// withoutFields returns the packets that are in the set for some values of the fields.
func (s *space) withoutFields(packets set, fields map[field]bool) set {
	return s.project(packets, func(bit uint32) bool {
		return int(bit) >= len(s.fieldOf) || !fields[s.fieldOf[bit]]
	})
}

// isOwnAddress reports whether the target is an address of this host that the rule may translate
// to. Routing after prerouting drops packets to a loopback address.
func (s *space) isOwnAddress(t target) bool {
	switch {
	case t.kind != addrTarget || t.isAddrRange():
		return false
	case t.addr.IsLoopback():
		return t.hook == rules.Output && t.addr == s.loopbackAddress()
	}
	return slices.Contains(s.hostAddresses, t.addr)
}

// isKnownLocal reports whether the target is a known address of this host. Without known addresses
// it returns the value for which translatedToCaptured does not ignore the target.
func (s *space) isKnownLocal(t target) bool {
	switch {
	case t.addr.IsLoopback():
		return true
	case s.hostAddresses == nil || t.isAddrRange():
		return s.hook == rules.Prerouting
	}
	return slices.Contains(s.hostAddresses, t.addr)
}

// addressable returns the packets that may be sent by another interface if a rule translates their
// destination. If the addresses of the host are known, the result excludes packets that are sent
// over lo to other addresses: their sockets are bound to lo, and so they remain there.
func (s *space) addressable() set {
	if s.hook != rules.Output || s.hostAddresses == nil {
		return all
	}
	var ranges []netipx.IPRange
	for _, a := range s.hostAddresses {
		if rules.FamilyOf(a) == s.family {
			ranges = append(ranges, netipx.IPRangeFrom(a, a))
		}
	}
	ranges = append(ranges, addresses(rules.Destination, s.loopbackPrefix()).Ranges...)
	return s.implies(s.overLoopback, s.addressIn(destination, rules.NormalizeAddrs(ranges)))
}

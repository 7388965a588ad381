package diff

import (
	"cmp"
	"fmt"
	"net/netip"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// hasPort reports whether the target changes the port.
func (t target) hasPort() bool { return t.port != 0 || t.lastPort != 0 }

// isRange reports whether the kernel selects one of several ports.
func (t target) isRange() bool { return t.lastPort != 0 && t.lastPort != t.port }

// isAddrRange reports whether the kernel selects one of several addresses.
func (t target) isAddrRange() bool { return t.lastAddr.IsValid() && t.lastAddr != t.addr }

// loopbackAddress is the destination of a redirection at output (RedirectAtOutputIsLoopback).
func (s *space) loopbackAddress() netip.Addr {
	return rules.ByFamily(s.family, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
}

// addressOf returns the address of the target. It is invalid if the target keeps the original
// address (then isOriginal is true), uses the address of the interface, or is a range of addresses.
func (s *space) addressOf(t target) (a netip.Addr, isOriginal bool) {
	switch {
	case t.kind == noTarget || t.kind == portTarget:
		return a, true
	case t.kind == redirectTarget && t.hook == rules.Output:
		return s.loopbackAddress(), false
	case t.kind == addrTarget && !t.isAddrRange():
		return t.addr, false
	}
	return a, false
}

// sameDestination returns the packets that both targets send to the same address and port.
func (s *space) sameDestination(t, u target) set {
	if t == u && !t.isRange() && !t.isAddrRange() {
		return all
	}
	return s.and(s.samePort(t, u), s.sameAddress(t, u))
}

// samePort returns the packets that both targets send to the same port (PortInRangeIsKept).
func (s *space) samePort(t, u target) set {
	switch {
	case t.isRange() && u.isRange() && t.port == u.port && t.lastPort == u.lastPort:
		return all
	case t.isRange() || u.isRange():
		same := none
		for _, p := range s.preferredPorts(t) {
			for _, q := range s.preferredPorts(u) {
				same = s.or(same,
					s.and(s.and(p.packets, q.packets), s.samePort(p.target, q.target)))
			}
		}
		text := "whether the port that the kernel tries first is in use"
		return s.ifElse(s.variable(variable{key: text, text: text}),
			s.kernelSelects(fmt.Sprint("ports of ", t, u)), same)
	case t.hasPort() && u.hasPort():
		return allIf(t.port == u.port)
	case !t.hasPort() && !u.hasPort():
		return all
	}
	return s.is(destinationPort, number(max(t.port, u.port)))
}

// A portCase contains the packets that a target sends to one port: target.port, or the original
// port if target.port is 0.
type portCase struct {
	packets set
	target  target
}

// preferredPorts returns the ports to which the target sends packets while no other connection uses
// these ports.
func (s *space) preferredPorts(t target) []portCase {
	if !t.isRange() {
		return []portCase{{all, target{port: t.port}}}
	}
	kept := s.within(destinationPort, []span{{number(t.port), number(t.lastPort)}})
	return []portCase{{kept, target{}}, {s.not(kept), target{port: t.port}}}
}

// kernelSelects returns the packets for which the kernel's selection meets a condition.
func (s *space) kernelSelects(condition string) set {
	return s.variable(variable{
		key: "taken " + condition, kind: unknownBit,
		text: "which address or port of a range the kernel selects",
	})
}

// sameAddress returns the packets that both targets send to the same address.
func (s *space) sameAddress(t, u target) set {
	a, originalA := s.addressOf(t)
	b, originalB := s.addressOf(u)
	switch {
	case originalA && originalB:
		return all
	case t.isAddrRange() && u.isAddrRange():
		if t.addr == u.addr && t.lastAddr == u.lastAddr {
			return all // a hash of the connection's addresses decides
		}
		return s.minus(s.kernelSelects(fmt.Sprint("addresses of ", t, u)),
			allIf(t.lastAddr.Less(u.addr) || u.lastAddr.Less(t.addr)))
	case u.isAddrRange():
		return s.sameAddress(u, t)
	case t.isAddrRange():
		var possible set
		switch r := (span{address(t.addr), address(t.lastAddr)}); {
		case originalB:
			possible = s.within(destination, []span{r})
		case b.IsValid():
			possible = allIf(r.contains(span{address(b), address(b)}))
		default:
			possible = s.within(inAddress, []span{r})
		}
		return s.and(possible, s.kernelSelects(fmt.Sprint("addresses of ", t, u)))
	case a.IsValid() && b.IsValid():
		return allIf(a == b)
	case originalA && b.IsValid():
		return s.is(destination, address(b))
	case originalB && a.IsValid():
		return s.is(destination, address(a))
	case originalA || originalB:
		// One of the addresses is the address of the interface. Comparing two fields bit by bit
		// would take a diagram with 2^32 nodes.
		return s.variable(variable{
			key: toItselfKey, kind: hostFact,
			text: "whether the packet is sent to the address to which a redirection translates it",
		})
	case !a.IsValid() && !b.IsValid():
		return all // both are the address of the interface
	}
	return s.is(inAddress, address(cmp.Or(a, b)))
}

// destinationIn returns the packets whose destination is in one of the ranges. After a redirection
// at prerouting, the destination is the address of the interface (RedirectTakesFirstAddress,
// RedirectMatchesScope).
func (s *space) destinationIn(v *view, ranges []netipx.IPRange) set {
	t := v.target
	switch a, isOriginal := s.addressOf(t); {
	case isOriginal && s.seesRetranslated(v):
		return s.ifElse(s.retranslated(), s.addressIn(newDestination, ranges),
			s.addressIn(destination, ranges))
	case isOriginal:
		return s.addressIn(destination, ranges)
	case a.IsValid():
		return allIf(isIn(a, ranges))
	case t.kind == redirectTarget:
		return s.addressIn(inAddress, ranges)
	default:
		return s.selectedIn(span{address(t.addr), address(t.lastAddr)}, s.addressSpans(ranges),
			fmt.Sprint("which of ", t.addr, " to ", t.lastAddr, " the kernel selects"))
	}
}

// portIn returns the packets whose protocol has ports and whose destination port is in one of the
// spans.
func (s *space) portIn(v *view, spans []span) set {
	t := v.target
	var packets set
	switch {
	case !t.hasPort() && s.seesRetranslated(v):
		packets = s.ifElse(s.retranslated(), s.within(newPort, spans),
			s.within(destinationPort, spans))
	case !t.hasPort():
		packets = s.within(destinationPort, spans)
	case t.isRange():
		packets = s.selectedIn(span{number(t.port), number(t.lastPort)}, spans,
			fmt.Sprint("which of the ports ", t.port, " to ", t.lastPort, " the kernel selects"))
	default:
		packets = s.selectedIn(span{number(t.port), number(t.port)}, spans, "")
	}
	return s.and(s.withPorts, packets)
}

// selectedIn returns the packets for which the value that the kernel selects from a range is in one
// of the spans. The result is a variable if it depends on the selection.
func (s *space) selectedIn(r span, spans []span, text string) set {
	s.meter.charge(len(spans))
	for _, other := range spans {
		switch {
		case !r.intersects(other):
		case other.contains(r):
			return all
		default:
			s.meter.charge(textSteps * len(spans))
			return s.variable(variable{key: fmt.Sprint(text, spans), kind: unknownBit, text: text})
		}
	}
	return none
}

// seesRetranslated reports whether rules read the new destination of packets whose connection was
// translated earlier (NATMappingPersists).
func (s *space) seesRetranslated(v *view) bool {
	return v.translated && v.tracking != untracked && s.retranslated() != none
}

// retranslated returns the packets whose destination is translated as for earlier packets of the
// connection (NATMappingPersists).
func (s *space) retranslated() set {
	return s.translatedBefore(rules.StatusDNAT, rules.StatusSNAT)
}

// sourceRetranslated returns the packets whose source has been translated as for earlier packets of
// the connection (NATMappingPersists).
func (s *space) sourceRetranslated(v *view) set {
	if !v.sourceTranslated || v.tracking == untracked {
		return none
	}
	return s.translatedBefore(rules.StatusSNAT, rules.StatusDNAT)
}

// translatedBefore returns the packets of connections with a status bit, except the first packet of
// a connection. The bit is original for packets in the original direction, and replied for packets
// in the reply direction. If there is no NAT chain, there are no such packets
// (TranslationNeedsNATChain).
func (s *space) translatedBefore(original, replied rules.Status) set {
	if !s.translations || !s.shared.hasNAT[s.family] {
		return none
	}
	bit := func(b rules.Status) set { return s.maskedEquals(status, uint32(b), uint32(b)) }
	later := s.minus(s.connected, s.is(state, number(rules.New)))
	return s.and(later, s.ifElse(s.bit(reply, 0), bit(replied), bit(original)))
}

// toOtherAddress returns the packets that the target sends to an address other than their original
// destination.
func (w *walk) toOtherAddress(t target) set {
	switch a, isOriginal := w.addressOf(t); {
	case isOriginal:
		return none
	case a.IsValid():
		return w.not(w.is(destination, address(a)))
	}
	return all // the kernel selects one of several addresses
}

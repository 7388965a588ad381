package istio

import (
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

const (
	// defaultMark is the default of --istio-inbound-tproxy-mark.
	defaultMark = 1337
	// outboundMark marks connections from the proxy to its own pod (OutboundMark in Istio's
	// tools/istio-iptables/pkg/constants).
	outboundMark = 1338

	allBits = ^uint32(0)
)

// addMarks adds the rules of TPROXY mode that match, set, save or restore marks. Their shapes are
// unambiguous.
func (f *finder) addMarks() {
	mark := f.inboundMark()
	packetMark := rules.MatchMark{Value: mark, Mask: allBits}
	connMark := rules.MatchMark{Conntrack: true, Value: mark, Mask: allBits}
	setOutboundMark := rules.SetMark{Value: outboundMark, Mask: allBits}
	f.addMatching(prerouting, func(r *rules.Rule) bool {
		return hasShape(r, rules.SaveMark{}, isTCP, isMark(packetMark))
	})
	f.addMatching(output, func(r *rules.Rule) bool {
		return hasShape(r, rules.Return, isOverLoopback, isTCP, isMark(packetMark)) ||
			hasShape(r, setOutboundMark, isOverLoopback, isNotToLoopback, isTCP, isSingleOwner) ||
			hasShape(r, rules.RestoreMark{}, isTCP, isMark(connMark))
	})
}

// inboundMark returns the mark in the first rule of Istio's inbound chain if the rule has the form
// "-p tcp -m mark --mark MARK -j RETURN". Otherwise it returns the default mark.
func (f *finder) inboundMark() uint32 {
	c := f.table.Chain(chainInbound)
	if c == nil || len(c.Rules) == 0 || len(c.Rules[0].Matches) != 2 {
		return defaultMark
	}
	m, ok := c.Rules[0].Matches[1].(rules.MatchMark)
	if !ok || !hasShape(&c.Rules[0], rules.Return, isTCP, isMark(rules.MatchMark{
		Value: m.Value, Mask: allBits,
	})) {
		return defaultMark
	}
	return m.Value
}

// addMatching adds the rules of a built-in chain for which matches returns true.
func (f *finder) addMatching(chain string, matches func(*rules.Rule) bool) {
	i := f.base(chain)
	if i < 0 {
		return
	}
	for j := range f.table.Chains[i].Rules {
		if matches(&f.table.Chains[i].Rules[j]) {
			f.add(i, j)
		}
	}
}

// hasShape reports whether a rule consists of exactly these matches, the counter of iptables and
// the action, like the rules of istio-iptables.
func hasShape(r *rules.Rule, action rules.Action, matches ...func(rules.Match) bool) bool {
	if r.Comment != "" || len(r.Matches) != len(matches) ||
		!slices.Equal(r.Actions, []rules.Action{rules.Count{}, action}) {
		return false
	}
	for i, m := range r.Matches {
		if !matches[i](m) {
			return false
		}
	}
	return true
}

// isMark returns a function that reports whether a match is the given match of a mark.
func isMark(want rules.MatchMark) func(rules.Match) bool {
	return func(m rules.Match) bool {
		mark, ok := m.(rules.MatchMark)
		return ok && mark == want
	}
}

// isTCP reports whether a match is "-p tcp".
func isTCP(m rules.Match) bool {
	p, ok := m.(rules.MatchProtocol)
	return ok && !p.Not && slices.Equal(p.Protocols, []rules.Protocol{rules.TCP})
}

// isOverLoopback reports whether a match is "-o lo".
func isOverLoopback(m rules.Match) bool {
	name, ok := matchedInterface(m, true)
	return ok && name == rules.InterfaceName{Name: "lo"}
}

// matchedInterface returns the interface of a match "-o" if out is true, otherwise "-i". It returns
// false for other matches.
func matchedInterface(m rules.Match, out bool) (rules.InterfaceName, bool) {
	i, ok := m.(rules.MatchInterface)
	if !ok || i.Out != out || i.Not || len(i.Names) != 1 {
		return rules.InterfaceName{}, false
	}
	return i.Names[0], true
}

// isNotToLoopback reports whether a match is "! -d" with an address or prefix within 127.0.0.0/8
// (ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR) or with ::1.
func isNotToLoopback(m rules.Match) bool {
	a, ok := m.(rules.MatchAddr)
	if !ok || a.Side != rules.Destination || !a.Not || len(a.Ranges) != 1 {
		return false
	}
	first, last := a.Ranges[0].From(), a.Ranges[0].To()
	loopback4 := netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
	return loopback4.Contains(first) && loopback4.Contains(last) ||
		first == netip.IPv6Loopback() && last == first
}

// isSingleOwner reports whether a match is "-m owner" with one user or one group.
func isSingleOwner(m rules.Match) bool {
	o, ok := m.(rules.MatchOwner)
	return ok && !o.Not && len(o.IDs) == 1 && o.IDs[0].First == o.IDs[0].Last
}

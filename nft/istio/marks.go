package istio

import (
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

const (
	// defaultMark is that of --istio-inbound-tproxy-mark.
	defaultMark = 1337
	// outboundMark is OutboundMark in Istio's tools/istio-iptables/pkg/constants: of connections
	// from the proxy to its own pod.
	outboundMark = 1338

	allBits = ^uint32(0)
)

// marks takes the rules of TPROXY mode that keep marks, which have shapes of their own.
func (f *finder) marks() {
	mark := f.inboundMark()
	marked := rules.MatchMark{Value: mark, Mask: allBits}
	markedConnection := rules.MatchMark{Conntrack: true, Value: mark, Mask: allBits}
	f.shapes(prerouting, func(r *rules.Rule) bool { return shape(r, rules.SaveMark{}, tcp, is(marked)) })
	f.shapes(output, func(r *rules.Rule) bool {
		return shape(r, rules.Return, overLoopback, tcp, is(marked)) ||
			shape(r, rules.SetMark{Value: outboundMark, Mask: allBits}, overLoopback, notToLoopback, tcp, oneOwner) ||
			shape(r, rules.RestoreMark{}, tcp, is(markedConnection))
	})
}

// inboundMark is the mark for which Istio's inbound chain returns in its first rule, whatever else
// it holds.
func (f *finder) inboundMark() uint32 {
	c := f.table.Chain(chainInbound)
	if c == nil || len(c.Rules) == 0 || len(c.Rules[0].Matches) != 2 {
		return defaultMark
	}
	m, ok := c.Rules[0].Matches[1].(rules.MatchMark)
	if !ok || !shape(&c.Rules[0], rules.Return, tcp, is(rules.MatchMark{Value: m.Value, Mask: allBits})) {
		return defaultMark
	}
	return m.Value
}

// shapes takes the rules of a built-in chain that have the shape.
func (f *finder) shapes(chain string, has func(*rules.Rule) bool) {
	i := f.base(chain)
	if i < 0 {
		return
	}
	for j := range f.table.Chains[i].Rules {
		if has(&f.table.Chains[i].Rules[j]) {
			f.add(i, j)
		}
	}
}

// shape reports whether a rule is just what istio-iptables writes: these matches, iptables'
// counter, this action, and nothing else.
func shape(r *rules.Rule, action rules.Action, matches ...func(rules.Match) bool) bool {
	if r.Comment != "" || len(r.Matches) != len(matches) || !slices.Equal(r.Actions, []rules.Action{rules.Count{}, action}) {
		return false
	}
	for i, m := range r.Matches {
		if !matches[i](m) {
			return false
		}
	}
	return true
}

// is matches exactly this mark.
func is(want rules.MatchMark) func(rules.Match) bool {
	return func(m rules.Match) bool {
		got, ok := m.(rules.MatchMark)
		return ok && got == want
	}
}

// tcp matches "-p tcp".
func tcp(m rules.Match) bool {
	p, ok := m.(rules.MatchProtocol)
	return ok && !p.Not && slices.Equal(p.Protocols, []rules.Protocol{rules.TCP})
}

// overLoopback matches "-o lo".
func overLoopback(m rules.Match) bool {
	name, ok := oneInterface(m, true)
	return ok && name == rules.InterfaceName{Name: "lo"}
}

// oneInterface returns the interface of "-i" or "-o".
func oneInterface(m rules.Match, out bool) (rules.InterfaceName, bool) {
	i, ok := m.(rules.MatchInterface)
	if !ok || i.Out != out || i.Not || len(i.Names) != 1 {
		return rules.InterfaceName{}, false
	}
	return i.Names[0], true
}

// notToLoopback matches "! -d" with an address or prefix within 127.0.0.0/8
// (ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR), or with ::1.
func notToLoopback(m rules.Match) bool {
	a, ok := m.(rules.MatchAddr)
	if !ok || a.Side != rules.Destination || !a.Not || len(a.Ranges) != 1 {
		return false
	}
	first, last := a.Ranges[0].From(), a.Ranges[0].To()
	loopback4 := netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
	return loopback4.Contains(first) && loopback4.Contains(last) || first == netip.IPv6Loopback() && last == first
}

// oneOwner matches "-m owner" with one user or one group.
func oneOwner(m rules.Match) bool {
	o, ok := m.(rules.MatchOwner)
	return ok && !o.Not && len(o.IDs) == 1 && o.IDs[0].First == o.IDs[0].Last
}

package diff

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// A view is what the rules of a chain see of packets instead of what they entered with.
type view struct {
	// before reports that conntrack has not seen the packets yet.
	before bool
	// second reports that the packets have left by lo and arrive.
	second bool
	// leaving reports that the packets leave by lo, and are at postrouting.
	leaving bool
	// translated reports that the kernel has translated packets of connections for which that was
	// decided before.
	translated bool
	// xtables reports that the rules are of iptables.
	xtables  bool
	tracking tracking
	target   target
	tproxy   tproxyTarget
	source   string
}

// view returns what rules see of the packets of a flow.
func (v *visit) view(p *progress) view {
	return view{
		translated: v.place.translated, before: v.place.before, second: v.place.second, leaving: v.place.leaving,
		xtables: v.place.chain.Table.XTables, tracking: p.tracking, target: p.target, tproxy: p.tproxy, source: p.source,
	}
}

// hasTemplate reports whether the packets have a template for a connection.
func (v *view) hasTemplate() bool { return v.before && v.tracking.isTemplate() }

// connection returns the packets for which conntrack has an entry, which may be a template
// (NoConnectionBeforeConntrack, TemplateIsForXTables).
func (s *space) connection(v *view) set {
	switch {
	case v.hasTemplate():
		// nftables reads nothing of a template but its state.
		return constant(v.xtables)
	case v.before && !v.second, v.tracking == untracked:
		return none
	}
	return s.connected
}

// stateAs returns the packets that have one of the states as the rules see it (TemplateIsNew,
// UntrackedFromElsewhere).
func (s *space) stateAs(v *view, in func(rules.State) bool) set {
	switch {
	case v.tracking == untracked:
		return constant(in(rules.Untracked))
	case v.hasTemplate():
		return constant(in(rules.New))
	case v.before && !v.second:
		// What conntrack is to leave alone is not marked so before it was seen, unless that was
		// done elsewhere.
		return s.ifElse(s.untrackedBefore(), constant(in(rules.Untracked)), constant(in(rules.Invalid)))
	}
	return s.states(in)
}

// statusAs returns the packets of connections that have any of the bits (StatusNeedsConnection,
// LoopbackConfirms).
func (s *space) statusAs(v *view, bits rules.Status) set {
	if v.hasTemplate() {
		return constant(v.xtables && bits&rules.StatusConfirmed != 0)
	}
	packets := constant(v.second && bits&rules.StatusConfirmed != 0)
	for i := range fieldWidth[status] {
		if bits>>i&1 == 1 {
			packets = s.or(packets, s.bit(status, i))
		}
	}
	if bits&rules.StatusDNAT != 0 {
		packets = s.or(packets, s.translated(v.target))
	}
	if bits&rules.StatusSNAT != 0 && v.source != "" {
		packets = s.or(packets, s.ofSource("translates", v))
	}
	return s.and(packets, s.connection(v))
}

// ofSource returns the packets whose unknown source fulfils a condition.
func (s *space) ofSource(condition string, v *view) set {
	return s.variable(variable{
		key: "source after " + v.source + "\x01" + condition, kind: unknownBit, text: "the source of the packet after " + v.source,
	})
}

// translated returns the packets whose target is not their own destination.
func (s *space) translated(t target) set {
	if t.kind == noTarget {
		return none
	}
	return s.not(s.sameDestination(t, target{}))
}

// untrackedBefore returns the packets that enter as ones that conntrack is to leave alone.
func (s *space) untrackedBefore() set {
	return s.minus(s.stateIs(rules.Untracked), s.neighbourDiscovery())
}

// neighbourDiscovery returns the packets that conntrack leaves untracked by itself
// (NeighbourDiscoveryUntracked).
func (s *space) neighbourDiscovery() set {
	if s.family != rules.IPv6 {
		return none
	}
	const group, advertisement, report = 130, 136, 143 // types; between the first two are others of both
	spans := []span{{number[uint32](group << 8), number[uint32](advertisement<<8 | 0xff)}, {number[uint32](report << 8), number[uint32](report<<8 | 0xff)}}
	return s.and(s.isICMP, s.within(icmp, spans))
}

// socketFound returns the packets for which the host has a transparent socket.
func (s *space) socketFound(m rules.MatchSocket, v *view) set {
	found := variable{key: socketKey + m.Kind, text: "whether the host has a transparent socket for the packet"}
	if v.target != (target{}) || v.tproxy.taken || v.source != "" {
		found.key, found.kind = fmt.Sprint("socket ", m.Kind, *v), unknownBit
	}
	return s.variable(found)
}

package diff

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/sluice-mesh/sluice/rules"
)

// A matchKey identifies a match by its position in a rule, under a view.
type matchKey struct {
	match *rules.Match
	view  view
}

// A matcher converts the matches of rules to sets and caches them.
type matcher struct {
	*space
	known  map[matchKey]set
	tuples map[seenTuple]set
	// staticTuples caches which lists of alternatives are static.
	staticTuples map[alternatives]bool
}

// static returns the packets that meet a match that does not depend on marks.
func (m *matcher) static(match *rules.Match, v *view) set {
	if tuple, ok := (*match).(rules.MatchTuple); ok {
		return m.sharedTuple(tuple, v)
	}
	if m.single != nil {
		return m.matching(*match, v)
	}
	key := matchKey{match, relevant(*match, *v)}
	packets, ok := m.known[key]
	if !ok {
		packets = m.matching(*match, v)
		m.meter.alloc(guardSize)
		lazySet(&m.known, key, packets)
	}
	return packets
}

// A seenTuple identifies a list of alternatives, which several rules may share, under a view.
type seenTuple struct {
	alternatives
	not  bool
	view view
}

// alternatives identifies the alternatives of a tuple by their memory.
type alternatives struct {
	first *[]rules.Match
	count int
}

func alternativesOf(tuple rules.MatchTuple) alternatives {
	return alternatives{unsafe.SliceData(tuple.Alternatives), len(tuple.Alternatives)}
}

// sharedTuple is static for a tuple. Several rules may share its alternatives, so the result is
// cached by their memory instead of the position of the match.
func (m *matcher) sharedTuple(tuple rules.MatchTuple, v *view) set {
	key := seenTuple{alternativesOf(tuple), tuple.Not, *v}
	packets, ok := m.tuples[key]
	if !ok {
		packets = m.matching(tuple, v)
		m.meter.alloc(guardSize)
		lazySet(&m.tuples, key, packets)
	}
	return packets
}

// relevant returns the part of a view on which the set of a match depends.
func relevant(match rules.Match, v view) view {
	switch m := match.(type) {
	case rules.MatchFamily, rules.MatchProtocol, rules.MatchTCPFlags, rules.MatchICMP:
		return view{}
	case rules.MatchAddr:
		if m.Side == rules.Source {
			return view{
				source: v.source, snat: v.snat, sourceTranslated: v.sourceTranslated,
				tracking: v.tracking,
			}
		}
	case rules.MatchPort:
		if m.Side == rules.Source {
			return view{
				source: v.source, sourceTranslated: v.sourceTranslated, tracking: v.tracking,
			}
		}
	case rules.MatchInterface:
		return view{
			loopbackArrival: v.loopbackArrival, atPostrouting: v.atPostrouting,
			leavesHost: v.leavesHost, leavesLoopback: v.leavesLoopback, target: v.target,
		}
	case rules.MatchOwner, rules.MatchCgroup:
		return view{loopbackArrival: v.loopbackArrival, tproxy: v.tproxy, xtables: v.xtables}
	}
	return v
}

// isStatic reports whether the match depends only on the packet and the view.
func (m *matcher) isStatic(match rules.Match) bool {
	switch match := match.(type) {
	case rules.MatchMark, rules.MatchMarkRange, rules.MatchListed, rules.Unknown:
		return false
	case rules.MatchReversePath:
		return !strings.Contains(match.Kind, "mark")
	case rules.MatchTuple:
		key := alternativesOf(match)
		static, known := m.staticTuples[key]
		if !known {
			static = m.onlyStatic(match.Alternatives)
			lazySet(&m.staticTuples, key, static)
		}
		return static
	}
	return true
}

// onlyStatic reports whether all of the matches are static.
func (m *matcher) onlyStatic(alternatives [][]rules.Match) bool {
	for _, matches := range alternatives {
		m.meter.step()
		for _, match := range matches {
			if !m.isStatic(match) {
				return false
			}
		}
	}
	return true
}

// negateIf returns the set, or its complement if negated.
func (s *space) negateIf(negated bool, packets set) set {
	if negated {
		return s.not(packets)
	}
	return packets
}

// constant returns all packets if a condition is true, otherwise no packets.
func constant(condition bool) set {
	if condition {
		return all
	}
	return none
}

// matching returns the packets that meet a static match.
func (s *space) matching(match rules.Match, v *view) set {
	switch m := match.(type) {
	case rules.MatchFamily: // OtherFamilyFailsMatch
		return constant(m.Family == rules.Inet || m.Family == s.family)
	case rules.MatchInterface:
		return s.interfaceMatches(m, v)
	case rules.MatchAddr:
		return s.addressMatches(m, v)
	case rules.MatchProtocol:
		return s.protocolMatches(m, v)
	case rules.MatchPort:
		return s.portMatches(m, v)
	case rules.MatchTCPFlags:
		return s.and(s.tcp,
			s.negateIf(m.Not, s.maskedEquals(flags, uint32(m.Value), uint32(m.Mask))))
	case rules.MatchICMP:
		if m.V6 != (s.family == rules.IPv6) {
			return none
		}
		return s.and(s.isICMP, s.negateIf(m.Not, s.within(icmp, spansOf(m.Values, 0))))
	case rules.MatchOwner:
		return s.ownerMatches(m, v)
	case rules.MatchCgroup:
		return s.cgroupMatches(m, v)
	case rules.MatchState:
		return s.stateMatches(m, v)
	case rules.MatchStatus:
		return s.and(s.connection(v), s.negateIf(m.Not, s.statusAs(v, m.Status)))
	case rules.MatchDirection:
		isReply := s.bit(reply, 0)
		if v.hasTemplate() {
			isReply = none
		}
		return s.and(s.connection(v), s.negateIf(!m.Reply, isReply))
	case rules.MatchAddrType:
		return s.negateIf(m.Not, s.addrTypeIs(m, v))
	case rules.MatchReversePath:
		path := variable{
			key:  reversePathKey + m.Kind,
			text: "whether the source is reached by the interface that the packet came in by",
		}
		switch {
		case v.tproxy.assigned && !v.xtables:
			// Older kernels differ (SocketChangesReversePath).
			path.key, path.kind = fmt.Sprint("path of socket ", m.Kind, *v), unknownBit
		case v.loopbackArrival:
			return constant(!m.Not) // every source on lo is reached by lo
		}
		return s.negateIf(m.Not, s.variable(path))
	case rules.MatchSocket:
		return s.negateIf(m.Not, s.socketFound(m, v))
	case rules.MatchTuple:
		return s.tuple(m, func(part rules.Match) set { return s.matching(part, v) })
	}
	panic(fmt.Sprintf("no set of packets for a match of type %T", match))
}

func (s *space) addressMatches(m rules.MatchAddr, v *view) set {
	if m.Family() != s.family {
		return none
	}
	if m.Side == rules.Destination {
		return s.negateIf(m.Not, s.destinationIn(v, m.Ranges))
	}
	switch {
	case v.snat.IsValid():
		return constant(isIn(v.snat, m.Ranges) != m.Not)
	case v.source != "":
		s.meter.charge(textSteps * len(m.Ranges))
		return s.ofSource(m.String(), v)
	}
	own := s.addressIn(source, m.Ranges)
	if v.sourceTranslated {
		own = s.sourceOr(source, s.addressSpans(m.Ranges), v, own)
	}
	return s.negateIf(m.Not, own)
}

func (s *space) portMatches(m rules.MatchPort, v *view) set {
	s.meter.charge(len(m.Ports))
	var packets set
	switch {
	case m.Side == rules.Destination:
		packets = s.portIn(v, spansOf(m.Ports, 0))
	case v.source != "":
		s.meter.charge(textSteps * len(m.Ports))
		return s.and(s.withPorts, s.ofSource(m.String(), v))
	default:
		spans := spansOf(m.Ports, 0)
		packets = s.sourceOr(sourcePort, spans, v, s.within(sourcePort, spans))
	}
	return s.and(s.withPorts, s.negateIf(m.Not, packets))
}

// spansOf converts ranges of numbers and adds the base to each bound.
func spansOf[T uint16 | uint32](ranges []rules.Range[T], base uint64) []span {
	spans := make([]span, len(ranges))
	for i, r := range ranges {
		spans[i] = span{number(base + uint64(r.First)), number(base + uint64(r.Last))}
	}
	return spans
}

func (s *space) stateMatches(m rules.MatchState, v *view) set {
	packets := s.stateAs(v, func(state rules.State) bool { return m.States.Has(state) })
	if m.States.Has(rules.SNAT) {
		packets = s.or(packets, s.statusAs(v, rules.StatusSNAT))
	}
	if m.States.Has(rules.DNAT) {
		packets = s.or(packets, s.statusAs(v, rules.StatusDNAT))
	}
	return s.negateIf(m.Not, packets)
}

func (s *space) addrTypeIs(m rules.MatchAddrType, v *view) set {
	f := sourceType
	if m.Side == rules.Destination {
		f = destinationType
		switch a, own := s.addressOf(v.target); {
		case own && s.seesRetranslated(v):
			return s.ifElse(s.retranslated(), s.variable(variable{
				key:  fmt.Sprint("type of the destination translated before ", m.Types),
				kind: unknownBit,
				text: "the type of the address to which earlier packets of the connection " +
					"were sent",
			}), s.typeIn(f, m.Types))
		case own:
		case !a.IsValid() && v.target.kind == redirectTarget:
			return constant(m.Types.Has(rules.Local))
		case a.IsValid() && addrTypeOf(a) != rules.AddrTypeUnknown:
			return constant(m.Types.Has(addrTypeOf(a)))
		default:
			return s.variable(variable{
				key:  fmt.Sprint("type of ", v.target.addr, v.target.lastAddr, m.Types),
				kind: unknownBit,
				text: fmt.Sprintf("the type of the address %s, to which the packet is sent",
					v.target.addr),
			})
		}
	}
	if m.Side == rules.Source && v.source != "" {
		return s.ofSource(m.String(), v)
	}
	if m.Side == rules.Source {
		return s.sourceOr(f, typeSpans(m.Types), v, s.typeIn(f, m.Types))
	}
	return s.typeIn(f, m.Types)
}

// typeIn returns the packets whose type of an address is in a set.
func (s *space) typeIn(f field, types rules.AddrTypeSet) set {
	return s.within(f, typeSpans(types))
}

// typeSpans converts types of addresses.
func typeSpans(types rules.AddrTypeSet) []span {
	var spans []span
	for t := range rules.ResolvedType + 1 {
		if types.Has(t) {
			spans = append(spans, span{number(t), number(t)})
		}
	}
	return spans
}

// tuple returns the packets that meet an alternative; with Not, the packets that have all compared
// fields and meet no alternative. The function returns the packets that meet a part.
func (s *space) tuple(m rules.MatchTuple, meeting func(rules.Match) set) set {
	sets := make([]set, len(m.Alternatives))
	for i, matches := range m.Alternatives {
		s.meter.step()
		sets[i] = all
		for _, part := range matches {
			sets[i] = s.and(sets[i], meeting(part))
		}
	}
	packets := s.unite(sets)
	if !m.Not || len(m.Alternatives) == 0 {
		return packets
	}
	compared := all
	for _, part := range m.Alternatives[0] {
		compared = s.and(compared, s.or(meeting(part), meeting(negated(part))))
	}
	return s.minus(compared, packets)
}

// negated returns the match for packets with the compared field and another value.
func negated(match rules.Match) rules.Match {
	switch m := match.(type) {
	case rules.MatchInterface:
		m.Not = !m.Not
		return m
	case rules.MatchAddr:
		m.Not = !m.Not
		return m
	case rules.MatchProtocol:
		m.Not = !m.Not
		return m
	case rules.MatchPort:
		m.Not = !m.Not
		return m
	case rules.MatchICMP:
		m.Not = !m.Not
		return m
	case rules.MatchOwner:
		m.Not = !m.Not
		return m
	case rules.MatchMark:
		m.Not = !m.Not
		return m
	case rules.MatchMarkRange:
		m.Not = !m.Not
		return m
	case rules.MatchState:
		m.Not = !m.Not
		return m
	case rules.MatchStatus:
		m.Not = !m.Not
		return m
	case rules.MatchDirection:
		m.Reply = !m.Reply
		return m
	case rules.MatchAddrType:
		m.Not = !m.Not
		return m
	case rules.MatchTCPFlags:
		m.Not = !m.Not
		return m
	case rules.MatchSocket:
		m.Not = !m.Not
		return m
	case rules.MatchListed:
		m.Not = !m.Not
		return m
	case rules.MatchReversePath:
		m.Not = !m.Not
		return m
	}
	return match // a MatchFamily: every packet has a family
}

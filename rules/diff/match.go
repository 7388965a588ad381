package diff

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A matchKey identifies a match, by its address in memory, and the view of its packets.
type matchKey struct {
	match *rules.Match
	view  view
}

// A matcher converts the matches of rules to sets, and caches these sets.
type matcher struct {
	*space
	staticSets map[matchKey]set
	tuples     map[tupleKey]set
	// staticTuples caches the results of allStatic.
	staticTuples map[listKey[[]rules.Match]]bool
}

// staticMatchSet returns the packets that meet a static match, and caches the result.
func (m *matcher) staticMatchSet(match *rules.Match, v *view) set {
	if tuple, ok := (*match).(rules.MatchTuple); ok {
		return m.tupleSet(tuple, v)
	}
	if m.single != nil {
		return m.matchSet(*match, v)
	}
	return cached(&m.staticSets, matchKey{match, relevantView(*match, *v)}, func() set {
		m.meter.alloc(cachedSetSize)
		return m.matchSet(*match, v)
	})
}

// relevantView returns the part of a view on which the set of a match depends.
func relevantView(match rules.Match, v view) view {
	switch m := match.(type) {
	case rules.MatchFamily, rules.MatchProtocol, rules.MatchTCPFlags, rules.MatchICMP:
		return view{}
	case rules.MatchAddr:
		if m.Side == rules.Source {
			return view{
				stage: stage{sourceTranslated: v.sourceTranslated},
				visibleProgress: visibleProgress{
					snatAction: v.snatAction, snat: v.snat, tracking: v.tracking,
				},
			}
		}
	case rules.MatchPort:
		if m.Side == rules.Source {
			return view{
				stage:           stage{sourceTranslated: v.sourceTranslated},
				visibleProgress: visibleProgress{snatAction: v.snatAction, tracking: v.tracking},
			}
		}
	case rules.MatchInterface:
		return view{
			stage: stage{
				loopbackArrival: v.loopbackArrival, atPostrouting: v.atPostrouting,
				leavesHost: v.leavesHost, translated: v.translated,
			},
			visibleProgress: visibleProgress{
				leavesLoopback: v.leavesLoopback, target: v.target, tracking: v.tracking,
			},
		}
	case rules.MatchOwner:
		return socketView(v)
	case rules.MatchCgroup:
		if v.xtables {
			return socketView(v)
		}
	}
	return v
}

// socketView returns the part of a view that selects the socket of a packet.
func socketView(v view) view {
	return view{
		stage:           stage{loopbackArrival: v.loopbackArrival},
		visibleProgress: visibleProgress{tproxy: v.tproxy},
		xtables:         v.xtables,
	}
}

// isStatic reports whether the match depends only on the packet and the view.
func (m *matcher) isStatic(match rules.Match) bool {
	switch match := match.(type) {
	case rules.MatchMark, rules.MatchMarkRange, rules.MatchListed, rules.Unknown:
		return false
	case rules.MatchReversePath:
		return !strings.Contains(match.Kind, "mark")
	case rules.MatchTuple:
		return cached(&m.staticTuples, keyOf(match.Alternatives), func() bool {
			return m.allStatic(match.Alternatives)
		})
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

// allIf returns all packets if a condition is true, otherwise no packets.
func allIf(condition bool) set {
	if condition {
		return all
	}
	return none
}

// matchSet returns the packets that meet a static match.
func (s *space) matchSet(match rules.Match, v *view) set {
	switch m := match.(type) {
	case rules.MatchFamily: // OtherFamilyFailsMatch
		return allIf(m.Family == rules.Inet || m.Family == s.family)
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
		return s.and(s.hasConnection(v), s.negateIf(m.Not, s.readsStatus(v, m.Status)))
	case rules.MatchDirection:
		isReply := s.bit(reply, 0)
		switch {
		case v.hasTemplate():
			isReply = none
		case v.isTrackedAgain():
			isReply = s.trackedAgain(v, "whether it is a reply")
		}
		return s.and(s.hasConnection(v), s.negateIf(!m.Reply, isReply))
	case rules.MatchAddrType:
		return s.negateIf(m.Not, s.addrTypeMatches(m, v))
	case rules.MatchReversePath:
		path := variable{
			key:  reversePathKey + m.Kind,
			text: "whether the route to the source uses the input interface",
		}
		switch {
		case v.tproxy.assigned && !v.xtables:
			// Older kernels differ (SocketChangesReversePath).
			path.key, path.kind = fmt.Sprint("path of socket ", m.Kind, *v), unknownBit
		case v.loopbackArrival:
			return allIf(!m.Not) // the route to every source of a packet on lo uses lo
		}
		return s.negateIf(m.Not, s.variable(path))
	case rules.MatchSocket:
		return s.negateIf(m.Not, s.socketFound(m, v))
	case rules.MatchTuple:
		return s.tupleMatches(m, func(fieldMatch rules.Match) set {
			return s.matchSet(fieldMatch, v)
		})
	}
	panic(fmt.Sprintf("no set of packets for a match of type %T", match))
}

// addressMatches returns the packets that meet a match on their source or destination address.
func (s *space) addressMatches(m rules.MatchAddr, v *view) set {
	if m.Family() != s.family {
		return none
	}
	if m.Side == rules.Destination {
		return s.negateIf(m.Not, s.destinationIn(v, m.Ranges))
	}
	switch {
	case v.snat.IsValid():
		return allIf(isIn(v.snat, m.Ranges) != m.Not)
	case v.snatAction != "":
		s.meter.charge(textSteps * len(m.Ranges))
		if isIn, known := s.masqueradesTo(v, m.Ranges); known {
			return allIf(isIn != m.Not)
		}
		return s.sourceCondition(m.String(), v)
	}
	original := s.addressIn(source, m.Ranges)
	if v.sourceTranslated {
		original = s.sourceWithin(source, s.addressSpans(m.Ranges), v, original)
	}
	return s.negateIf(m.Not, original)
}

// portMatches returns the packets that meet a match on their source or destination port.
func (s *space) portMatches(m rules.MatchPort, v *view) set {
	s.meter.charge(len(m.Ports))
	var packets set
	switch {
	case m.Side == rules.Destination:
		packets = s.portIn(v, spansOf(m.Ports, 0))
	case v.snatAction != "":
		s.meter.charge(textSteps * len(m.Ports))
		return s.and(s.withPorts, s.sourceCondition(m.String(), v))
	default:
		spans := spansOf(m.Ports, 0)
		packets = s.sourceWithin(sourcePort, spans, v, s.within(sourcePort, spans))
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

// stateMatches returns the packets that meet a match on the state of their connection, or on its
// translation.
func (s *space) stateMatches(m rules.MatchState, v *view) set {
	packets := s.readsState(v, func(state rules.State) bool { return m.States.Has(state) })
	if m.States.Has(rules.SNAT) {
		packets = s.or(packets, s.readsStatus(v, rules.StatusSNAT))
	}
	if m.States.Has(rules.DNAT) {
		packets = s.or(packets, s.readsStatus(v, rules.StatusDNAT))
	}
	return s.negateIf(m.Not, packets)
}

// addrTypeMatches returns the packets whose source or destination has one of the types of the
// match. It ignores the negation of the match.
func (s *space) addrTypeMatches(m rules.MatchAddrType, v *view) set {
	spans := typeSpans(m.Types)
	switch a, isOriginal := s.addressOf(v.target); {
	case m.Side == rules.Source && v.snatAction != "":
		return s.sourceCondition(m.String(), v)
	case m.Side == rules.Source:
		return s.sourceWithin(sourceType, spans, v, s.within(sourceType, spans))
	case isOriginal && s.seesRetranslated(v):
		return s.ifElse(s.retranslated(), s.variable(variable{
			key:  fmt.Sprint("type of the destination translated before ", m.Types),
			kind: unknownBit,
			text: "the type of the address to which earlier packets of the connection were sent",
		}), s.within(destinationType, spans))
	case isOriginal:
		return s.within(destinationType, spans)
	case !a.IsValid() && v.target.kind == redirectTarget:
		return allIf(m.Types.Has(rules.Local))
	case a.IsValid() && addrTypeOf(a) != rules.AddrTypeUnknown:
		return allIf(m.Types.Has(addrTypeOf(a)))
	}
	return s.variable(variable{
		key:  fmt.Sprint("type of ", v.target.addr, v.target.lastAddr, m.Types),
		kind: unknownBit,
		text: fmt.Sprintf("the type of the address %s, to which the packet is sent",
			v.target.addr),
	})
}

// typeSpans converts address types.
func typeSpans(types rules.AddrTypeSet) []span {
	var spans []span
	for t := range rules.ResolvedType + 1 {
		if types.Has(t) {
			spans = append(spans, span{number(t), number(t)})
		}
	}
	return spans
}

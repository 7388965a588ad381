package diff

import (
	"fmt"
	"strings"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// A view describes what has happened to the packets of a flow before a rule reads them. The rule
// may therefore read other values than the packets had when they entered their hook.
type view struct {
	stage
	visibleProgress
	// xtables is the result of isXTables.
	xtables bool
	// skipsAuthentication reports that the rules compare the protocol after an authentication
	// header of IPv6 (AuthenticationHeaderIsSkipped).
	skipsAuthentication bool
}

// view returns the view of the packets of a flow.
func (e *evaluator) view(p *progress) view {
	v := view{
		stage: e.position.stage, visibleProgress: p.visibleProgress, xtables: e.isXTables(),
		skipsAuthentication: e.family == rules.IPv6 && e.chain.Table.XTables,
	}
	v.confirmed = v.confirmed || v.loopbackArrival
	return v
}

// isXTables reports whether the current rule consists of matches and targets of xtables, as rules
// of iptables-legacy and iptables-nft do.
func (e *evaluator) isXTables() bool { return e.chain.Table.XTables || e.rule().XTables }

// hasTemplate reports whether the packets have a template of a connection.
func (v *view) hasTemplate() bool { return v.beforeConntrack && v.tracking.isTemplate() }

// hasConnection returns the packets with a conntrack entry, which may be a template
// (NoConnectionBeforeConntrack, NFTReadsTemplateStateOnly).
func (s *space) hasConnection(v *view) set {
	switch {
	case v.hasTemplate():
		// Rules of nftables read only the state of a template.
		return allIf(v.xtables)
	case v.tracking == untracked:
		return none
	case v.beforeConntrack && !v.loopbackArrival:
		return s.carriesConnection()
	case v.isTrackedAgain():
		return s.trackedAgain(v, "whether it has a connection")
	}
	return s.connected
}

// carriesConnection returns the packets that enter their hook with a conntrack entry
// (ResetHasConnection, ErrorHasConnection, CopyHasConnection).
func (s *space) carriesConnection() set {
	if s.carried != nil {
		return *s.carried
	}
	var packets set
	if s.hook == rules.Output {
		answers := variable{
			key: "answer of reject", kind: unknownBit,
			text: "whether the TCP reset is the answer of a rule",
		}
		packets = s.or(s.and(s.resets, s.or(s.bit(reply, 0), s.variable(answers))),
			s.errorsWithConnection())
	} else {
		toSeveral := s.or(s.is(destinationType, number(rules.Multicast)),
			s.is(destinationType, number(rules.Broadcast)))
		packets = s.and(s.minus(s.connected, s.is(state, number(rules.New))),
			s.and(toSeveral, s.variable(variable{
				key:  copyKey,
				text: "whether the packet is a copy of a packet that this host has sent",
			})))
	}
	s.carried = &packets
	return packets
}

// icmpRedirectsDroppedByNAT returns the ICMP redirects that NAT drops (NATDropsRedirects). A
// redirect about an unconfirmed connection is dropped although no status bit shows a translation:
// the source is not translated yet. Only the kernel of this host sends such redirects.
func (s *space) icmpRedirectsDroppedByNAT() set {
	const redirect = 5 // the type of the ICMP message
	redirects := s.and(s.and(s.isICMP, s.stateIs(rules.Related)), s.within(icmp, []span{{
		number[uint32](redirect << 8), number[uint32](redirect<<8 | 0xff),
	}}))
	if redirects == none || !s.translations && !s.kernelPackets {
		return none
	}
	translated := s.not(s.maskedEquals(status, 0, uint32(rules.StatusSNAT|rules.StatusDNAT)))
	if s.hook != rules.Output {
		return s.and(redirects, translated)
	}
	return s.and(redirects, s.or(translated, s.and(s.hasKernelSocket, s.unconfirmed())))
}

// unconfirmed returns the packets of connections that conntrack has not confirmed.
func (s *space) unconfirmed() set {
	return s.maskedEquals(status, 0, uint32(rules.StatusConfirmed))
}

// errorsWithConnection returns the ICMP errors that the kernel has sent with the connection of the
// reported packet. For other errors, conntrack finds the connection only if it is confirmed.
func (s *space) errorsWithConnection() set {
	errors := s.and(s.and(s.and(s.isICMP, s.icmpErrors()), s.hasKernelSocket),
		s.stateIs(rules.Related))
	if errors == none {
		return none
	}
	return s.and(errors, s.or(s.unconfirmed(), s.variable(variable{
		key: "error about a packet with a connection", kind: unknownBit,
		text: "whether the ICMP error is about a packet that had a connection",
	})))
}

// readsState returns the packets for which rules read one of the wanted states (TemplateIsNew,
// EntersUntracked).
func (s *space) readsState(v *view, isWanted func(rules.State) bool) set {
	switch {
	case v.tracking == untracked:
		return allIf(isWanted(rules.Untracked))
	case v.hasTemplate():
		return allIf(isWanted(rules.New))
	case v.beforeConntrack && !v.loopbackArrival:
		// Packets that conntrack will ignore are marked as untracked when conntrack runs. Before,
		// only packets that entered untracked have this state.
		return s.ifElse(s.carriesConnection(), s.stateIn(isWanted),
			s.ifElse(s.entersUntracked(), allIf(isWanted(rules.Untracked)),
				allIf(isWanted(rules.Invalid))))
	case v.isTrackedAgain():
		packets := none
		for state := rules.New; state < rules.Untracked; state++ {
			if isWanted(state) {
				packets = s.or(packets, s.trackedAgain(v, fmt.Sprint("state ", state)))
			}
		}
		return packets
	}
	return s.stateIn(isWanted)
}

// readsStatus returns the packets for which rules read a status with any of the bits
// (StatusNeedsConnection, LoopbackConfirms).
func (s *space) readsStatus(v *view, bits rules.Status) set {
	if v.hasTemplate() {
		return allIf(v.xtables && bits&rules.StatusConfirmed != 0)
	}
	if v.isTrackedAgain() {
		return s.trackedAgain(v, fmt.Sprint("status ", bits))
	}
	packets := allIf(v.confirmed && bits&rules.StatusConfirmed != 0)
	for i := range fieldWidths[status] {
		if bits>>i&1 == 1 {
			packets = s.or(packets, s.bit(status, i))
		}
	}
	if bits&rules.StatusDNAT != 0 {
		packets = s.or(packets, s.isTranslated(v.target))
	}
	if bits&rules.StatusSNAT != 0 && v.snatAction != "" {
		packets = s.or(packets, s.sourceCondition("translates", v))
	}
	return s.and(packets, s.hasConnection(v))
}

// sourceCondition returns the packets whose new source meets a condition, which is unknown. The
// packets must have been translated by a rule (see view.snatAction).
func (s *space) sourceCondition(condition string, v *view) set {
	by, _, _ := strings.Cut(v.snatAction, keySeparator)
	return s.variable(variable{
		key: "source after " + v.snatAction + keySeparator + condition, kind: unknownBit,
		text: "the source of the packet after " + by,
	})
}

// masqueradesTo reports whether the source after MASQUERADE, which is one of the known addresses of
// the host (nf_nat_masquerade_ipv4 in net/netfilter/nf_nat_masquerade.c), is in one of the ranges.
// known is false if only some of the addresses are in the ranges, if no address is known, or if no
// MASQUERADE has changed the source.
func (s *space) masqueradesTo(v *view, ranges []netipx.IPRange) (in, known bool) {
	if !strings.HasPrefix(v.snatAction, "masquerade") {
		return false, false
	}
	var inside, outside bool
	for _, a := range s.hostAddresses {
		switch {
		case rules.FamilyOf(a) != s.family:
		case isIn(a, ranges):
			inside = true
		default:
			outside = true
		}
	}
	return inside, inside != outside
}

// sourceWithin returns the packets whose field f, which is the source address, the source port or
// the source type, is in one of the spans. If the source is translated like the source of earlier
// packets of the connection, the value is unknown, but equal for all rules. original is the result
// for other packets.
func (s *space) sourceWithin(f field, spans []span, v *view, original set) set {
	retranslated := s.sourceRetranslated(v)
	if retranslated == none {
		return original
	}
	bits := make([]set, len(s.bits[f]))
	for i := range bits {
		bits[i] = s.variable(variable{
			key: fmt.Sprint("source translated before ", f, " ", i), kind: unknownBit,
			text: "the source to which earlier packets of the connection were translated",
		})
	}
	return s.ifElse(retranslated, s.valueIn(bits, value{}, spans), original)
}

// isTranslated returns the packets whose target is not their original destination.
func (s *space) isTranslated(t target) set {
	if t.kind == noTarget {
		return none
	}
	return s.not(s.sameDestination(t, target{}))
}

// entersUntracked returns the packets that enter untracked. They do not include neighbor discovery,
// which conntrack makes untracked.
func (s *space) entersUntracked() set {
	return s.minus(s.stateIs(rules.Untracked), s.neighborDiscovery())
}

// neighborDiscovery returns the ICMPv6 messages that conntrack does not track
// (NeighborDiscoveryUntracked).
func (s *space) neighborDiscovery() set {
	if s.family != rules.IPv6 {
		return none
	}
	return s.and(s.isICMP, s.icmpTypes(rules.UntrackedICMPv6))
}

package diff

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// retrackInvalid sets retracked for the invalid packets of flows that arrive on lo, if a rule at
// output assigned a zone. At prerouting conntrack uses zone 0, unless a rule assigns another one
// (see assignZone).
func (w *walk) retrackInvalid(in []flow) []flow {
	var out flows
	for _, f := range in {
		if f.zone == 0 || f.tracking == untracked {
			w.add(&out, f)
			continue
		}
		invalid, others := w.split(f, w.dependsOnZone())
		invalid.setRetracked(0)
		w.add(&out, invalid, others)
	}
	return out.list
}

// dependsOnZone returns the invalid packets that conntrack may track in another zone: packets of
// protocols whose packets may be invalid because of the connections that conntrack knows. Other
// packets are invalid because of their contents (nf_conntrack_handle_packet in
// net/netfilter/nf_conntrack_core.c).
func (s *space) dependsOnZone() set {
	protocols := s.protocolIn(rules.TCP, rules.SCTP, rules.DCCP)
	return s.and(s.stateIs(rules.Invalid), s.or(protocols, s.isICMP))
}

// setRetracked marks packets as tracked again in another zone. Their NAT mapping is not determined.
func (f *flow) setRetracked(zone uint16) {
	f.retracked, f.retrackZone, f.mapped = true, zone, false
}

// assignZone sets retracked for invalid packets that arrive on lo if the zone is another zone than
// at output.
func (f *flow) assignZone(zone uint16) {
	if zone != f.zone {
		f.setRetracked(zone)
		return
	}
	f.retracked, f.retrackZone, f.mapped = false, 0, true
}

// isTrackedAgain reports whether conntrack has tracked the packets again (see progress.retracked).
func (v *view) isTrackedAgain() bool { return v.retracked && !v.beforeConntrack }

// trackedAgain returns the retracked packets whose connection meets a condition, which is unknown.
func (s *space) trackedAgain(v *view, condition string) set {
	return s.variable(retrackedVariable(v.retrackZone, condition))
}

// retrackedVariable returns the variable of a condition on the connection of retracked packets.
func retrackedVariable(zone uint16, condition string) variable {
	return variable{
		key: fmt.Sprint("tracked again in zone ", zone, keySeparator, condition), kind: unknownBit,
		text: "how conntrack treats a packet that is invalid at output and arrives on lo in " +
			"another conntrack zone",
	}
}

// redirectsToLoopback returns the packets on lo that a redirection at prerouting sends to 127.0.0.1
// or ::1, the address of lo. A redirection drops an IPv6 packet on lo if no address of lo has the
// scope of its destination (RedirectMatchesScope).
func (s *space) redirectsToLoopback() set {
	packets := all
	if s.family == rules.IPv6 {
		scoped := append([]string{linkLocalIPv6, multicastIPv6}, deprecatedPrefixes[:]...)
		for _, prefix := range scoped {
			packets = s.minus(packets, s.matchSet(addresses(rules.Destination, prefix), &view{}))
		}
		packets = s.or(packets, s.matchSet(addresses(rules.Destination, loopbackIPv6), &view{}))
	}
	return packets
}

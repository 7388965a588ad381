package diff

import (
	"fmt"
	"math"

	"github.com/sluice-mesh/sluice/rules"
)

// ownerMatches returns the packets that meet a match on a user or group (SocketsAfterPrerouting,
// OwnerNeedsSocket, XTablesOwnerWithoutSocket, KernelSocketHasNoOwner).
func (s *space) ownerMatches(m rules.MatchOwner, v *view) set {
	s.meter.charge(len(m.IDs))
	if v.tproxy.assigned {
		s.meter.charge(textSteps * len(m.IDs))
		return s.variable(variable{
			key: fmt.Sprint("owner ", v.tproxy, m), kind: unknownBit,
			text: fmt.Sprintf(
				"the owner of the transparent listener on port %d, whose socket the packet has",
				v.tproxy.port),
		})
	}
	socketless := allIf(m.Not && m.Socketless)
	if v.loopbackArrival {
		return socketless
	}
	ids := s.within(user, spansOf(m.IDs, userSocketBit))
	if m.Group {
		ids = s.within(group, spansOf(m.IDs, 0))
	}
	packets := s.or(s.and(s.hasUserSocket, s.negateIf(m.Not, ids)),
		s.minus(s.minus(socketless, s.hasUserSocket), s.hasKernelSocket))
	if v.xtables && m.Not != comparesOnlySocket(m) {
		packets = s.or(packets, s.hasKernelSocket)
	}
	return packets
}

// comparesOnlySocket reports whether the match distinguishes only packets with a socket from
// packets without a socket.
func comparesOnlySocket(m rules.MatchOwner) bool {
	return !m.Group && len(m.IDs) == 1 && m.IDs[0] == rules.IDRange{Last: math.MaxUint32}
}

// cgroupMatches returns the packets whose socket is in a cgroup. A packet has no field for the
// cgroup: the cgroup is a fact about the sender, equal on both sides.
func (s *space) cgroupMatches(m rules.MatchCgroup, v *view) set {
	if v.loopbackArrival {
		return none
	}
	if m.Path == "" {
		m.Path = s.cgroups[m.ID]
	}
	in := variable{
		key:  fmt.Sprint("cgroup ", m, v.tproxy),
		text: "whether the sender is in the cgroup: " + m.String(),
	}
	if m.Path != "" {
		in.key = fmt.Sprint("cgroup ", m.Path, v.tproxy)
	}
	if v.tproxy.assigned {
		in.kind = unknownBit
		return s.variable(in)
	}
	if s.single != nil {
		in.kind = random // for a single packet, list both outcomes
	}
	return s.and(s.or(s.hasUserSocket, s.hasKernelSocket), s.variable(in))
}

// addCgroups adds the path of each cgroup in the rules, by the number of the cgroup. Only the
// matches of compiled rules contain both.
func addCgroups(to map[uint64]string, rs *rules.Ruleset) {
	for _, r := range rs.AllRules() {
		for _, m := range r.Matches {
			if c, ok := m.(rules.MatchCgroup); ok && c.ID != 0 && c.Path != "" {
				to[c.ID] = c.Path
			}
		}
	}
}

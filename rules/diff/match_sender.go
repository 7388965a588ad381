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
// cgroup: the cgroup is a fact about the sender, equal on both sides. A closed socket, which has no
// owner, is still in its cgroup (ClosedSocketHasCgroup). For a received packet, nft compares the
// cgroup of the socket that receives it (SocketMatchLooksUpReceiver), and xtables has no such
// match.
func (s *space) cgroupMatches(m rules.MatchCgroup, v *view) set {
	isReceived := s.hook == rules.Prerouting || v.loopbackArrival
	switch {
	case isReceived && v.xtables:
		return none
	case isReceived && !v.tproxy.assigned:
		return s.lookedUp(variable{
			key:  "cgroup of the receiver " + s.cgroupName(m),
			kind: s.randomForSinglePacket(hostFact),
			text: "whether the socket that receives the packet is in the cgroup: " + m.String(),
		}, v)
	}
	in := variable{
		key:  fmt.Sprint("cgroup ", s.cgroupName(m), v.tproxy),
		kind: s.randomForSinglePacket(hostFact),
		text: "whether the sender is in the cgroup: " + m.String(),
	}
	if v.tproxy.assigned {
		in.kind = unknownBit
		return s.variable(in)
	}
	return s.and(s.mayHaveSocket(), s.variable(in))
}

// cgroupName returns a name of the cgroup of a match and its level, which is equal for all matches
// of the same cgroup at the same level. It contains the number of the cgroup, if the match or
// another match with its path contains it.
func (s *space) cgroupName(m rules.MatchCgroup) string {
	id := m.ID
	if id == 0 {
		id = s.cgroups[cgroupPath{m.Path, m.Level}]
	}
	if id == 0 {
		return fmt.Sprintf("%q level %d", m.Path, m.Level)
	}
	return fmt.Sprintf("%d level %d", id, m.Level)
}

// A cgroupPath is the path of a cgroup and the level at which rules compare it.
type cgroupPath struct {
	path  string
	level uint8
}

// addCgroups adds the number of each cgroup in the rules whose path is known, or 0 if the path has
// several numbers. Only the matches of compiled rules contain both.
func addCgroups(to map[cgroupPath]uint64, rs *rules.Ruleset) {
	for _, r := range rs.AllRules() {
		for _, m := range r.Matches {
			c, ok := m.(rules.MatchCgroup)
			if !ok || c.ID == 0 || c.Path == "" {
				continue
			}
			key, id := cgroupPath{c.Path, c.Level}, c.ID
			if known, ok := to[key]; ok && known != id {
				id = 0
			}
			to[key] = id
		}
	}
}

package diff

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// interfaceMatches returns the packets that meet a match on an interface (OutputSeesFirstInterface,
// InputInterfaceAtPostrouting).
func (s *space) interfaceMatches(m rules.MatchInterface, v *view) set {
	switch {
	case v.leavesHost && m.Out:
		return s.negateIf(m.Not, s.leavesBy(m.Names, v))
	case v.atPostrouting && m.Out, v.loopbackArrival && !m.Out:
		return allIf(s.isNamed(m.Names, loopback) != m.Not)
	case v.atPostrouting && s.hook == rules.Output:
		return s.ifElse(s.hasUserSocket, allIf(s.isNamed(m.Names, "") != m.Not),
			s.negateIf(m.Not, s.variable(variable{
				key: fmt.Sprint("input interface at postrouting ", m.Names), kind: unknownBit,
				text: "the input interface at postrouting of a packet without a user socket",
			})))
	case v.atPostrouting, v.loopbackArrival, m.Out != (s.hook == rules.Output):
		return allIf(s.isNamed(m.Names, "") != m.Not)
	}
	return s.negateIf(m.Not, s.interfaceNamed(m.Names))
}

// leavesBy returns the packets at postrouting that leave by one of the interfaces. The interface is
// unknown for packets that are or were translated to another address, and for packets that a
// changed mark routed away from lo or from an interface that the sender had selected. Other packets
// are assumed to leave by the interface that rules at output matched.
func (s *space) leavesBy(names []rules.InterfaceName, v *view) set {
	rerouted := none
	switch {
	case v.target.kind == addrTarget:
		rerouted = all
	case v.leavesLoopback:
		rerouted = s.or(s.overLoopback, s.selected())
	}
	if s.seesRetranslated(v) {
		rerouted = s.or(rerouted, s.retranslated())
	}
	if rerouted == none {
		return s.interfaceNamed(names)
	}
	return s.ifElse(rerouted, s.variable(variable{
		key:  fmt.Sprint("output interface at postrouting ", v.target, names),
		kind: s.randomForSinglePacket(unknownBit),
		text: "by which interface the packet leaves after its destination or its mark has changed",
	}), s.interfaceNamed(names))
}

package diff

import (
	"math/bits"

	"github.com/sluice-mesh/sluice/rules"
)

// A space is all packets of one family that enter at one hook, as far as bits go. Sets of one space can be combined.
type space struct {
	*diagrams
	family rules.Family
	hook   rules.Hook
	// bits are those of each field, the most significant first.
	bits [fieldCount][]uint32
	// devices are the classes of interfaces.
	devices []deviceClass
	// Sets that are often needed: what leaves by lo, what is TCP, has ports, has a conntrack entry, has a socket.
	overLoopback, tcp, withPorts, connected, owned set
	// possible are the packets that can exist.
	possible set
}

// newSpace returns the space in which the interface names of the rulesets are told apart.
func newSpace(f rules.Family, h rules.Hook, names []rules.InterfaceName) *space {
	s := &space{diagrams: newDiagrams(), family: f, hook: h, devices: deviceClasses(names)}
	width := [fieldCount]int{
		destination: 32, source: 32, protocol: 8, destinationPort: 16, sourcePort: 16,
		device: bits.Len(uint(len(s.devices) - 1)), user: 33, group: 32, state: 3, flags: 8, listener: 1,
	}
	if f == rules.IPv6 {
		width[destination], width[source] = 128, 128
	}
	next := uint32(0)
	take := func(f field) {
		s.bits[f] = append(s.bits[f], next)
		next++
	}
	for f := range mark {
		for range width[f] {
			take(f)
		}
	}
	// The bits of the marks alternate: where one mark is a copy of the other, only then is the set small.
	for range 32 {
		take(mark)
		take(connectionMark)
	}
	s.tcp = s.is(protocol, number(rules.TCP))
	s.withPorts = s.or(s.tcp, s.is(protocol, number(rules.UDP)))
	s.connected = s.states(func(state rules.State) bool { return state.HasConnection() })
	s.owned = s.within(user, []span{{number[uint64](withSocket), number[uint64](2*withSocket - 1)}})
	s.overLoopback = s.deviceNamed(func(name string) bool { return name == loopback })
	s.possible = s.domain()
	return s
}

// keep marks the bits of some fields, for project.
func (s *space) keep(fields ...field) []bool {
	kept := make([]bool, s.bits[connectionMark][31]+1)
	for _, f := range fields {
		for _, bit := range s.bits[f] {
			kept[bit] = true
		}
	}
	return kept
}

// states returns the packets in those states.
func (s *space) states(in func(rules.State) bool) set {
	packets := none
	for state := rules.New; state <= rules.Untracked; state++ {
		if in(state) {
			packets = s.or(packets, s.stateIs(state))
		}
	}
	return packets
}

func (s *space) stateIs(st rules.State) set { return s.is(state, number(st)) }

// deviceNamed returns the packets of which the interface has such a name.
func (s *space) deviceNamed(named func(string) bool) set {
	packets := none
	for i, c := range s.devices {
		if named(c.example) {
			packets = s.or(packets, s.is(device, number(uint32(i))))
		}
	}
	return packets
}

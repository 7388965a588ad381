package kerneltest

import (
	"math/bits"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// sendableWitness returns a packet of the class that the network can send: the witness, or a packet
// that differs from it in as few respects as possible. If there is no such packet, sendableWitness
// returns the witness.
func (n *Network) sendableWitness(c diff.Class) rules.Packet {
	// complete is like Network.Complete, but keeps the interface by which a packet leaves.
	complete := func(p *rules.Packet) {
		out := p.OutInterface
		n.Complete(p)
		if p.Hook == rules.Output {
			p.OutInterface = out
			p.Bound = p.Owner != nil && out != outInterfaceOf(p) && !isLocal(p.Destination.Addr())
		}
	}
	changes := []func(p *rules.Packet){
		// The status that belongs to the state.
		func(p *rules.Packet) {
			switch p.State {
			case rules.Established:
				p.Status = EstablishedStatus
			case rules.Related:
				p.Status = RelatedStatus
			case rules.New:
				p.Status = 0
				if p.ConntrackMark != 0 {
					p.Status = rules.StatusConfirmed
				}
			}
		},
		// Another protocol.
		func(p *rules.Packet) { p.Protocol, p.Flags = rules.TCP, flagsOf(p.State) },
		func(p *rules.Packet) { p.Protocol, p.Flags = rules.UDP, 0 },
		func(p *rules.Packet) {
			p.Protocol, p.ICMPType = icmpOf(p)
			p.Flags = 0
			p.ICMPCode = 0
			p.Source = netip.AddrPortFrom(p.Source.Addr(), 0)
			p.Destination = netip.AddrPortFrom(p.Destination.Addr(), 0)
		},
		func(p *rules.Packet) { p.Protocol, p.Flags = unknownProtocols[0], 0 },
		// An interface that exists, and to which the pod routes the packet.
		func(p *rules.Packet) {
			if p.Hook == rules.Prerouting {
				p.InInterface = "eth0"
			} else {
				p.OutInterface = outInterfaceOf(p)
			}
		},
		// A packet that the host sends is untracked or has a socket.
		func(p *rules.Packet) {
			if p.Hook == rules.Output && p.Owner == nil {
				p.State, p.Status, p.ConntrackMark, p.Reply = rules.Untracked, 0, 0, false
			}
		},
		func(p *rules.Packet) {
			if p.Hook == rules.Output {
				p.Owner = &rules.Owner{UID: 999, GID: 999}
			}
		},
	}
	witness := c.Witness
	complete(&witness)
	if n.CheckSendable(&witness) == nil {
		return witness
	}
	// Try all combinations of changes, beginning with the fewest changes.
	combinations := make([]int, 1<<len(changes))
	for i := range combinations {
		combinations[i] = i
	}
	slices.SortStableFunc(combinations, func(a, b int) int {
		return bits.OnesCount(uint(a)) - bits.OnesCount(uint(b))
	})
	for _, combination := range combinations {
		p := c.Witness
		for i, change := range changes {
			if combination&(1<<i) != 0 {
				change(&p)
			}
		}
		complete(&p)
		if n.CheckSendable(&p) == nil && c.Contains(p) {
			return p
		}
	}
	return witness
}

// flagsOf returns TCP flags with which a packet has the state.
func flagsOf(s rules.State) rules.TCPFlags {
	switch s {
	case rules.New:
		return rules.SYN
	case rules.Invalid:
		return rules.RST
	}
	return rules.ACK
}

// icmpOf returns the protocol and the type with which an ICMP packet has the state of the packet.
func icmpOf(p *rules.Packet) (rules.Protocol, uint8) {
	types := map[rules.State]uint8{rules.New: 8, rules.Related: 3, rules.Invalid: 0}
	if p.Family() == rules.IPv6 {
		types = map[rules.State]uint8{rules.New: 128, rules.Related: 1, rules.Invalid: 129}
		return rules.ICMPv6, types[p.State]
	}
	return rules.ICMP, types[p.State]
}

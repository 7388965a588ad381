package kerneltest

import (
	"math/bits"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// sendableWitness returns the witness of the class if the network can send it. Otherwise it changes
// as few properties of the witness as possible, and returns the first result that is in the class
// and that the network can send. It returns the witness if there is no such result.
func (n *Network) sendableWitness(c diff.Class) rules.Packet {
	// complete is like Network.Complete, but keeps the outgoing interface. If the pod does not
	// route the packet to this interface, complete binds the packet's socket to it.
	complete := func(p *rules.Packet) {
		out := p.OutInterface
		n.Complete(p)
		if p.Hook == rules.Output {
			p.OutInterface = out
			p.Bound = p.Owner != nil && out != outInterfaceOf(p) && !isLocal(p.Destination.Addr())
		}
	}
	changes := []func(p *rules.Packet){
		// Set the status that belongs to the state.
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
		// Use another protocol.
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
		// Use an interface that exists or, for an outgoing packet, the interface of its route.
		func(p *rules.Packet) {
			if p.Hook == rules.Prerouting {
				p.InInterface = "eth0"
			} else {
				p.OutInterface = outInterfaceOf(p)
			}
		},
		// Make an outgoing packet without a socket untracked.
		func(p *rules.Packet) {
			if p.Hook == rules.Output && p.Owner == nil {
				p.State, p.Status, p.ConntrackMark, p.Reply = rules.Untracked, 0, 0, false
			}
		},
		// Give an outgoing packet a socket.
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

// flagsOf returns TCP flags that a packet in the state may have.
func flagsOf(s rules.State) rules.TCPFlags {
	switch s {
	case rules.New:
		return rules.SYN
	case rules.Invalid:
		return rules.RST
	}
	return rules.ACK
}

// icmpOf returns the protocol and the type of an ICMP packet with the family and the state of p.
func icmpOf(p *rules.Packet) (rules.Protocol, uint8) {
	types := map[rules.State]uint8{rules.New: 8, rules.Related: 3, rules.Invalid: 0}
	if p.Family() == rules.IPv6 {
		types = map[rules.State]uint8{rules.New: 128, rules.Related: 1, rules.Invalid: 129}
		return rules.ICMPv6, types[p.State]
	}
	return rules.ICMP, types[p.State]
}

package rules

import (
	"fmt"
	"net/netip"
	"strings"
)

// A Packet is what rules can know of one packet when it enters a hook.
type Packet struct {
	// Hook is Output for a packet that a local process sends, Prerouting for one that arrives.
	Hook         Hook
	InInterface  string // at Prerouting
	OutInterface string // at Output: what routing chose
	Protocol     Protocol
	// Source and Destination are of one family. Ports are 0 for protocols other than TCP and UDP.
	Source, Destination netip.AddrPort
	// Owner is the sending socket's; nil at Prerouting, and for the packets that the kernel sends by itself.
	Owner         *Owner
	Mark          uint32
	ConntrackMark uint32
	State         State
	Flags         TCPFlags // of TCP
	// NoListener tells that a tproxy rule finds no transparent socket to hand the packet to.
	NoListener bool
}

// Owner is the user and group of a socket.
type Owner struct{ UID, GID uint32 }

// Family returns the packet's IP version.
func (p *Packet) Family() Family { return FamilyOf(p.Destination.Addr()) }

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols with names; others are written as numbers.
const (
	ICMP   Protocol = 1
	TCP    Protocol = 6
	UDP    Protocol = 17
	ICMPv6 Protocol = 58
	SCTP   Protocol = 132
)

var protocolNames = [...]string{ICMP: "icmp", TCP: "tcp", UDP: "udp", ICMPv6: "ipv6-icmp", SCTP: "sctp"}

// String returns the protocol's name in lower case, or its number.
func (p Protocol) String() string {
	if int(p) < len(protocolNames) && protocolNames[p] != "" {
		return protocolNames[p]
	}
	return fmt.Sprint(uint8(p))
}

// State is what conntrack thinks of a packet.
type State uint8

// The states.
const (
	New State = iota // the first packets of a connection, until an answer was seen
	Established
	Related // belongs to another connection, an ICMP error for instance
	Invalid
	Untracked
)

var stateNames = [...]string{"new", "established", "related", "invalid", "untracked"}

// String returns nft's word.
func (s State) String() string { return stateNames[s] }

// HasConnection tells whether conntrack has an entry for packets in this state.
func (s State) HasConnection() bool { return s != Invalid && s != Untracked }

// StateSet is a set of states.
type StateSet uint8

// States returns the set of the states.
func States(states ...State) StateSet {
	var set StateSet
	for _, s := range states {
		set |= 1 << s
	}
	return set
}

// Has tells whether the state is in the set.
func (s StateSet) Has(state State) bool { return s&(1<<state) != 0 }

// String writes the states as nft does.
func (s StateSet) String() string {
	var names []string
	for i, name := range stateNames {
		if s.Has(State(i)) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// TCPFlags are the flags of a TCP header.
type TCPFlags uint8

// The flags, with the values that they have in the header (RFC 9293, section 3.1).
const (
	FIN TCPFlags = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECN // ECE of RFC 3168, by nft's name
	CWR
)

var flagNames = [...]string{"fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"}

// String writes the flags as nft does.
func (f TCPFlags) String() string {
	var names []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "0x0"
	}
	return strings.Join(names, " | ")
}

// String writes the packet in the syntax that [ParsePacket] reads.
func (p Packet) String() string {
	b := new(strings.Builder)
	end := func(a netip.AddrPort) string {
		if p.Protocol == TCP || p.Protocol == UDP {
			return a.String()
		}
		return a.Addr().String()
	}
	direction, device := "in", p.InInterface
	if p.Hook == Output {
		direction, device = "out", p.OutInterface
	}
	fmt.Fprintf(b, "%s %s %s > %s dev %s", direction, p.Protocol, end(p.Source), end(p.Destination), device)
	switch {
	case p.Owner != nil:
		fmt.Fprintf(b, " uid %d gid %d", p.Owner.UID, p.Owner.GID)
	case p.Hook == Output:
		b.WriteString(" no-socket")
	}
	if p.Mark != 0 {
		fmt.Fprintf(b, " mark 0x%x", p.Mark)
	}
	if p.ConntrackMark != 0 {
		fmt.Fprintf(b, " ctmark 0x%x", p.ConntrackMark)
	}
	if p.State != New {
		fmt.Fprintf(b, " state %s", p.State)
	}
	if p.Protocol == TCP && p.Flags != defaultFlags(p.State) {
		fmt.Fprintf(b, " flags %s", strings.ReplaceAll(p.Flags.String(), " | ", ","))
	}
	if p.NoListener {
		b.WriteString(" no-listener")
	}
	return b.String()
}

// defaultFlags are those of a typical TCP packet of the state.
func defaultFlags(s State) TCPFlags {
	if s == New {
		return SYN
	}
	return ACK
}

package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A Packet contains the properties of a packet that rules can read when it enters a hook.
type Packet struct {
	// Hook is Output for packets of local processes, and Prerouting for packets that arrive.
	Hook         Hook
	InInterface  string // at Prerouting
	OutInterface string // at Output: the interface that routing chose
	Protocol     Protocol
	// Source and Destination are of one family. Ports are 0 for protocols without them (see
	// [Protocol.HasPorts]).
	Source, Destination netip.AddrPort
	// Owner is the owner of the sending socket. It is nil at Prerouting, and for a packet that no
	// open socket of a process sends.
	Owner *Owner
	// KernelSocket reports that the kernel sends the packet with a socket of its own, as it sends
	// echo replies and TCP resets. Such a socket has no owner.
	KernelSocket  bool
	Mark          uint32
	ConntrackMark uint32
	State         State
	Flags         TCPFlags // of TCP
	// NoListener reports that there is no transparent socket for any tproxy rule.
	NoListener bool
	// MissingListeners contains the missing listeners of tproxy rules, if other listeners exist. If
	// NoListener is set, no listener exists.
	MissingListeners ListenerSet

	// Reply reports that the packet is in the reply direction of its connection. The state must be
	// one with a connection, other than New.
	Reply bool
	// Status contains conntrack's status bits of the connection. A new connection can have only
	// [StatusExpected] and [StatusConfirmed].
	Status Status
	// ICMPType and ICMPCode are set for ICMP and ICMPv6, and 0 for other protocols.
	ICMPType, ICMPCode uint8
	// InAddress is the destination after a redirect at prerouting: the first address of InInterface
	// (IPv4), or the first one with the destination's scope (IPv6). The unspecified address means
	// that there is none, the zero value that it is unknown.
	InAddress netip.Addr
	// SourceType and DestinationType are the types that routing gives to the addresses, or
	// AddrTypeUnknown.
	SourceType, DestinationType AddrType
	// NoReversePath reports that the host does not route to the source over InInterface.
	NoReversePath bool
	// TransparentSocket reports that the host has a transparent socket for the packet, and that
	// every kind of lookup finds this socket. The match socket of xtables without --nowildcard does
	// not find a listener for all addresses (socket_match in net/netfilter/xt_socket.c).
	TransparentSocket bool
	// TransparentSender reports that the sending socket is transparent (IP_TRANSPARENT). Owner may
	// be nil nevertheless, because the socket may have been closed.
	TransparentSender bool
	// Copy reports that the packet is the host's own copy of a multicast or broadcast packet that
	// the host has sent.
	Copy bool
	// Bound reports that the sending socket is bound to OutInterface (SO_BINDTODEVICE). Rerouting
	// does not change the interface of such a packet. Owner may be nil nevertheless, because the
	// socket may have been closed.
	Bound bool
	// SelectsInterface reports that the sender has selected OutInterface for this packet only
	// (IP_PKTINFO, IP_UNICAST_IF), so that it does not follow from the destination and the mark. If
	// rules reroute the packet, the selection has no effect.
	SelectsInterface bool
}

// Owner is the user and group of a socket.
type Owner struct{ UID, GID uint32 }

// Interface returns the interface through which a packet at Prerouting arrives, or a packet at
// Output leaves.
func (p *Packet) Interface() string {
	if p.Hook == Output {
		return p.OutInterface
	}
	return p.InInterface
}

// Family returns the packet's IP version.
func (p *Packet) Family() Family { return FamilyOf(p.Destination.Addr()) }

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols with names; others are printed as numbers.
const (
	ICMP    Protocol = 1
	TCP     Protocol = 6
	UDP     Protocol = 17
	DCCP    Protocol = 33
	ICMPv6  Protocol = 58
	SCTP    Protocol = 132
	UDPLite Protocol = 136
)

var protocolNames = [...]string{
	ICMP: "icmp", TCP: "tcp", UDP: "udp", DCCP: "dccp", ICMPv6: "ipv6-icmp", SCTP: "sctp",
	UDPLite: "udplite",
}

// HasPorts reports whether the header of the protocol begins with a source and a destination port.
func (p Protocol) HasPorts() bool {
	return p == TCP || p == UDP || p == SCTP || p == DCCP || p == UDPLite
}

// String returns the protocol's name in lower case, or its number.
func (p Protocol) String() string {
	if int(p) < len(protocolNames) && protocolNames[p] != "" {
		return protocolNames[p]
	}
	return fmt.Sprint(uint8(p))
}

// State is the state of a packet in conntrack.
type State uint8

// The states.
const (
	New State = iota // the first packets of a connection, until a reply is seen
	Established
	Related // belongs to another connection, like an ICMP error
	Invalid
	Untracked

	// SNAT and DNAT are not states. In a [StateSet] they mean packets of connections whose source
	// or destination is translated, as in xtables.
	SNAT
	DNAT
)

var stateNames = [...]string{
	"new", "established", "related", "invalid", "untracked", "snat", "dnat",
}

// String returns the state in nft's syntax.
func (s State) String() string { return stateNames[s] }

// HasConnection reports whether conntrack has an entry for packets in this state.
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

// Has reports whether the state is in the set.
func (s StateSet) Has(state State) bool { return s&(1<<state) != 0 }

// String returns the states in nft's syntax.
func (s StateSet) String() string {
	return strings.Join(namesOfBits(uint8(s), stateNames[:]), ",")
}

// namesOfBits returns the names of the bits that are set, where names[i] is the name of bit 1<<i.
func namesOfBits(set uint8, names []string) []string {
	var found []string
	for i, name := range names {
		if set&(1<<i) != 0 {
			found = append(found, name)
		}
	}
	return found
}

// TCPFlags are the flags of a TCP header.
type TCPFlags uint8

// The flags as in the TCP header (RFC 9293, section 3.1).
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

// String returns the flags in nft's syntax.
func (f TCPFlags) String() string {
	if f == 0 {
		return "0x0"
	}
	return strings.Join(namesOfBits(uint8(f), flagNames[:]), " | ")
}

// The flags of TCP segments that conntrack accepts, without PSH, ECN and CWR, which it ignores
// (tcp_valid_flags and tcp_conntracks in net/netfilter/nf_conntrack_proto_tcp.c). Segments with
// other flags are invalid.
var (
	// FirstFlags contains the flags of segments that begin a connection. ACK begins one only if the
	// sysctl net.netfilter.nf_conntrack_tcp_loose is not 0.
	FirstFlags = []TCPFlags{SYN, SYN | URG, ACK, ACK | URG}
	// LaterFlags contains the other flags that segments of connections have.
	LaterFlags = []TCPFlags{SYN | ACK, RST, RST | ACK, FIN | ACK, FIN | ACK | URG}
)

// IgnoredFlags are the flags on which the state of a segment does not depend.
const IgnoredFlags = PSH | ECN | CWR

// String returns the packet in the syntax of [ParsePacket]. It always contains the device, and the
// owner or the ICMP type if the packet has one. It omits other options that have their default, except
// a state of a TCP segment that is not new, and the status if the state implies its bits.
func (p Packet) String() string {
	b := new(strings.Builder)
	endpoint := func(a netip.AddrPort) string {
		if p.Protocol.HasPorts() {
			return a.String()
		}
		return a.Addr().String()
	}
	direction := "in"
	if p.Hook == Output {
		direction = "out"
	}
	fmt.Fprintf(b, "%s %s %s > %s dev %s", direction, p.Protocol, endpoint(p.Source),
		endpoint(p.Destination), p.Interface())
	addIf := func(applies bool, format string, args ...any) {
		if applies {
			fmt.Fprintf(b, " "+format, args...)
		}
	}
	switch {
	case p.Owner != nil:
		fmt.Fprintf(b, " uid %d gid %d", p.Owner.UID, p.Owner.GID)
	case p.KernelSocket:
		b.WriteString(" kernel-socket")
	case p.Hook == Output:
		b.WriteString(" no-socket")
	}
	addIf(p.Mark != 0, "mark 0x%x", p.Mark)
	addIf(p.ConntrackMark != 0, "ctmark 0x%x", p.ConntrackMark)
	state, ok := p.defaultState()
	addIf(p.State != state || !ok || p.Protocol == TCP && state != New, "state %s", p.State)
	addIf(p.Reply, "reply")
	addIf(p.Status != 0 && p.Status != impliedStatus(p.State), "status %s", p.Status)
	addIf(p.Protocol == TCP && p.Flags != defaultFlags(p.State), "flags %s",
		strings.ReplaceAll(p.Flags.String(), " | ", ","))
	addIf(p.isICMP() || p.ICMPType != 0 || p.ICMPCode != 0, "icmp %d/%d", p.ICMPType, p.ICMPCode)
	addIf(p.NoListener, "no-listener")
	addIf(p.MissingListeners != "", "missing-listeners %s", p.MissingListeners)
	hasNoAddress := p.InAddress.IsUnspecified()
	addIf(hasNoAddress, "in-address none")
	addIf(p.InAddress.IsValid() && !hasNoAddress, "in-address %s", p.InAddress)
	addIf(p.SourceType != AddrTypeUnknown, "src-type %s", p.SourceType)
	addIf(p.DestinationType != AddrTypeUnknown, "dst-type %s", p.DestinationType)
	for _, o := range booleanOptions {
		addIf(*o.field(&p), "%s", o.name)
	}
	return b.String()
}

// isICMP reports whether the packet is an ICMP or ICMPv6 message.
func (p *Packet) isICMP() bool { return p.Protocol == ICMP || p.Protocol == ICMPv6 }

// Types of ICMP messages.
var (
	// ICMPRequests and ICMPv6Requests contain the types of messages that begin a connection, and
	// ICMPReplies and ICMPv6Replies the types of their replies: echo, timestamp, information and
	// address mask for IPv4; echo and node information for IPv6.
	ICMPRequests   = []uint8{8, 13, 15, 17}
	ICMPReplies    = []uint8{0, 14, 16, 18}
	ICMPv6Requests = []uint8{128, 139}
	ICMPv6Replies  = []uint8{129, 140}

	// UntrackedICMPv6 contains the types that conntrack does not track: MLD, router discovery and
	// neighbor discovery (nf_conntrack_icmpv6_error in
	// net/netfilter/nf_conntrack_proto_icmpv6.c).
	UntrackedICMPv6 = []uint8{130, 131, 132, 133, 134, 135, 136, 143}

	// ICMPErrors contains the types of IPv4 errors: destination unreachable, source quench,
	// redirect, time exceeded and parameter problem.
	ICMPErrors = []uint8{3, 4, 5, 11, 12}
)

// FirstInformationalICMPv6 is the first type of ICMPv6 that is not an error (RFC 4443, section
// 2.1).
const FirstInformationalICMPv6 = 128

// ICMPv6Redirect is the type of a redirect of neighbor discovery. Since Linux 6.2 conntrack relates
// a redirect to the connection of the packet that the redirect quotes, if any
// (nf_conntrack_icmpv6_redirect in net/netfilter/nf_conntrack_proto_icmpv6.c). Any other redirect
// is invalid.
const ICMPv6Redirect = 137

// isICMPv6Redirect reports whether the packet is a redirect of ICMPv6.
func (p *Packet) isICMPv6Redirect() bool {
	return p.Protocol == ICMPv6 && p.ICMPType == ICMPv6Redirect
}

// defaultState returns the state that the packet probably has in conntrack. ok is false if there is
// no probable state: for an ICMP reply, which is established or, if its request is not known,
// invalid; and for an ICMPv6 redirect.
func (p *Packet) defaultState() (state State, ok bool) {
	switch flags := p.Flags &^ IgnoredFlags; {
	case p.Protocol == TCP && slices.Contains(LaterFlags, flags):
		return Established, true
	case p.Protocol == TCP && !slices.Contains(FirstFlags, flags):
		return Invalid, true
	case !p.isICMP():
		return New, true
	}
	requests, replies := ICMPRequests, ICMPReplies
	isError, isUntracked := slices.Contains(ICMPErrors, p.ICMPType), false
	if p.Protocol == ICMPv6 {
		requests, replies = ICMPv6Requests, ICMPv6Replies
		isError = p.ICMPType < FirstInformationalICMPv6
		isUntracked = slices.Contains(UntrackedICMPv6, p.ICMPType)
	}
	switch {
	case slices.Contains(requests, p.ICMPType):
		return New, true
	case slices.Contains(replies, p.ICMPType), p.isICMPv6Redirect():
		return New, false
	case isError:
		return Related, true
	case isUntracked:
		return Untracked, true
	}
	return Invalid, true // conntrack accepts no other type
}

// impliedStatus returns the status bits that every connection in the state has.
func impliedStatus(s State) Status {
	if s == Established {
		return StatusSeenReply | StatusConfirmed
	}
	return 0
}

// defaultFlags returns the flags of a typical TCP packet in the state.
func defaultFlags(s State) TCPFlags {
	if s == New {
		return SYN
	}
	return ACK
}

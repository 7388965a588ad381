package kerneltest

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// InitialState returns the state that conntrack assigns to a packet without an existing connection.
// For other kinds of packets, which [Network] does not send, it returns Untracked.
func InitialState(p *rules.Packet) rules.State {
	switch p.Protocol {
	case rules.TCP:
		// See tcp_valid_flags and tcp_conntracks in net/netfilter/nf_conntrack_proto_tcp.c.
		switch flags := p.Flags &^ (rules.PSH | rules.ECN | rules.CWR); flags {
		case rules.SYN, rules.SYN | rules.URG, rules.ACK, rules.ACK | rules.URG:
			return rules.New
		}
		return rules.Invalid
	case rules.UDP:
		return rules.New
	case rules.ICMP:
		switch p.ICMPType {
		case 8, 13, 15, 17: // echo, timestamp, information and address mask requests
			return rules.New
		case 0: // echo reply
			return rules.Invalid
		}
		return rules.Untracked
	case rules.ICMPv6:
		switch p.ICMPType {
		case 128:
			return rules.New
		case 129:
			return rules.Invalid
		}
		return rules.Untracked
	}
	if slices.Contains(unknownProtocols, p.Protocol) {
		return rules.New
	}
	return rules.Untracked
}

// unknownProtocols contains numbers of protocols that the kernel does not implement.
var unknownProtocols = []rules.Protocol{253, 254}

// isUntrackedICMPv6 reports whether conntrack does not track the packet
// (nf_conntrack_icmpv6_error in net/netfilter/nf_conntrack_proto_icmpv6.c).
func isUntrackedICMPv6(p *rules.Packet) bool {
	return p.Protocol == rules.ICMPv6 && (p.ICMPType >= 130 && p.ICMPType <= 137 ||
		p.ICMPType == 143)
}

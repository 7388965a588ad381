package kerneltest

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// InitialState returns the state that conntrack assigns to a packet without an existing connection:
// New, Invalid, or Untracked for some ICMPv6 messages. It also returns Untracked for packets whose
// state it does not know, such as ICMP errors.
func InitialState(p *rules.Packet) rules.State {
	switch p.Protocol {
	case rules.TCP:
		if slices.Contains(rules.FirstFlags, p.Flags&^rules.IgnoredFlags) {
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
		case 128: // echo request
			return rules.New
		case 129: // echo reply
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

// isUntrackedICMPv6 reports whether the packet is an ICMPv6 message that conntrack does not track.
func isUntrackedICMPv6(p *rules.Packet) bool {
	return p.Protocol == rules.ICMPv6 && slices.Contains(rules.UntrackedICMPv6, p.ICMPType)
}

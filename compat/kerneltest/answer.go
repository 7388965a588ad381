package kerneltest

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// icmpCodes contains the ICMP errors in the format of [Observation.Answer], by the protocol and
// name that a rule uses for them.
var icmpCodes = map[string]string{
	"icmp net-unreachable":    "icmp 3/0",
	"icmp host-unreachable":   "icmp 3/1",
	"icmp prot-unreachable":   "icmp 3/2",
	"icmp port-unreachable":   "icmp 3/3",
	"icmp net-prohibited":     "icmp 3/9",
	"icmp host-prohibited":    "icmp 3/10",
	"icmp admin-prohibited":   "icmp 3/13",
	"icmpv6 no-route":         "ipv6-icmp 1/0",
	"icmpv6 admin-prohibited": "ipv6-icmp 1/1",
	"icmpv6 addr-unreachable": "ipv6-icmp 1/3",
	"icmpv6 port-unreachable": "ipv6-icmp 1/4",
	"icmpv6 policy-fail":      "ipv6-icmp 1/5",
	"icmpv6 reject-route":     "ipv6-icmp 1/6",
}

// mayHaveAnswer reports whether the answer may be the kernel's answer to a packet with the outcome.
// An empty answer means that the kernel did not answer.
func mayHaveAnswer(p *rules.Packet, outcome rules.Outcome, answer string) bool {
	rejectWith := strings.TrimPrefix(outcome.Rejected, "reject with ")
	expected := icmpCodes[rejectWith]
	if rejectWith == "tcp reset" {
		expected = rejectWith
	}
	if answer == "" && expected != "" {
		// A translation or a changed mark may have routed the packet to lo, where the answer has no
		// route.
		return isTranslated(outcome) || outcome.Mark != p.Mark || !isAlwaysAnswered(p, rejectWith)
	}
	return answer == expected
}

// isAlwaysAnswered reports whether the kernel always answers the packet if a rule rejects it with
// rejectWith, and no rule has changed its destination. The kernel does not answer a packet to a
// multicast or broadcast address, a reset or an ICMP error (nf_send_reset and nf_send_unreach in
// net/ipv4/netfilter/nf_reject_ipv4.c, icmp_send in net/ipv4/icmp.c).
func isAlwaysAnswered(p *rules.Packet, rejectWith string) bool {
	switch {
	case p.Hook != rules.Output || p.OutInterface == "lo" || p.Bound ||
		p.Source.Addr().IsLinkLocalUnicast() || p.DestinationType == rules.Multicast ||
		p.DestinationType == rules.Broadcast:
		return false
	case rejectWith == "tcp reset":
		return p.Flags&rules.RST == 0
	}
	return p.Protocol == rules.TCP || p.Protocol == rules.UDP
}

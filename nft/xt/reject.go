package xt

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// replies4 and replies6 contain the replies of REJECT in nft's syntax, indexed by enum
// ipt_reject_with and ip6t_reject_with. An empty text stands for the echo reply, which the kernel
// rejects, or for not-neighbor, which no program uses.
var (
	replies4 = []string{
		"icmp net-unreachable", "icmp host-unreachable", "icmp prot-unreachable",
		"icmp port-unreachable", "",
		"icmp net-prohibited", "icmp host-prohibited", "tcp reset", "icmp admin-prohibited",
	}
	replies6 = []string{
		"icmpv6 no-route", "icmpv6 admin-prohibited", "",
		"icmpv6 addr-unreachable", "icmpv6 port-unreachable", "",
		"tcp reset", "icmpv6 policy-fail", "icmpv6 reject-route",
	}
)

// rejectReplies returns the replies of a family, and nft's default.
func rejectReplies(family rules.Family) (replies []string, defaultReply string) {
	switch family {
	case rules.IPv4:
		return replies4, "icmp port-unreachable"
	case rules.IPv6:
		return replies6, "icmpv6 port-unreachable"
	}
	return nil, ""
}

// decodeReject decodes struct ipt_reject_info or ip6t_reject_info.
func decodeReject(family rules.Family, info []byte) rules.Action {
	replies, _ := rejectReplies(family)
	if len(info) < 4 {
		return nil
	}
	with := native.Uint32(info)
	if with >= uint32(len(replies)) || replies[with] == "" {
		return nil
	}
	return rules.Reject{With: replies[with]}
}

// encodeReject encodes struct ipt_reject_info or ip6t_reject_info. An empty reply is nft's default.
func encodeReject(family rules.Family, a rules.Reject) (Extension, error) {
	replies, with := rejectReplies(family)
	if a.With != "" {
		with = a.With
	}
	i := slices.Index(replies, with)
	if i < 0 || with == "" {
		return Extension{}, fmt.Errorf("%s: REJECT of family %s has no such reply", a, family)
	}
	return Extension{Name: "REJECT", Data: native.AppendUint32(nil, uint32(i))}, nil
}

package xt

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// The answers of REJECT in nft's words, by enum ipt_reject_with and ip6t_reject_with. Those without
// a word are refused by the kernel (echo reply), or written by no program (not-neighbour).
var (
	rejects4 = []string{
		"icmp net-unreachable", "icmp host-unreachable", "icmp prot-unreachable",
		"icmp port-unreachable", "",
		"icmp net-prohibited", "icmp host-prohibited", "tcp reset", "icmp admin-prohibited",
	}
	rejects6 = []string{
		"icmpv6 no-route", "icmpv6 admin-prohibited", "",
		"icmpv6 addr-unreachable", "icmpv6 port-unreachable", "",
		"tcp reset", "icmpv6 policy-fail", "icmpv6 reject-route",
	}
)

// rejectsOf returns the answers of a family, and nft's own one where none is chosen.
func rejectsOf(family rules.Family) (answers []string, chosen string) {
	switch family {
	case rules.IPv4:
		return rejects4, "icmp port-unreachable"
	case rules.IPv6:
		return rejects6, "icmpv6 port-unreachable"
	}
	return nil, ""
}

// decodeReject reads struct ipt_reject_info or ip6t_reject_info.
func decodeReject(family rules.Family, info []byte) rules.Action {
	answers, _ := rejectsOf(family)
	if len(info) < 4 {
		return nil
	}
	with := native.Uint32(info)
	if with >= uint32(len(answers)) || answers[with] == "" {
		return nil
	}
	return rules.Reject{With: answers[with]}
}

func encodeReject(family rules.Family, a rules.Reject) (Extension, error) {
	answers, with := rejectsOf(family)
	if a.With != "" {
		with = a.With
	}
	i := slices.Index(answers, with)
	if i < 0 || with == "" {
		return Extension{}, fmt.Errorf("%s: REJECT of family %s has no such answer", a, family)
	}
	return Extension{Name: "REJECT", Data: native.AppendUint32(nil, uint32(i))}, nil
}

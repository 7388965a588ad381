package save

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A rejection is a packet with which the target REJECT answers.
type rejection struct {
	name, otherName string // the names in iptables
	with            string // the name in nft and in the model
}

// rejections returns the rejections for packets of a family, the default first.
func rejections(f rules.Family) []rejection {
	reset := rejection{"tcp-reset", "tcp-rst", "tcp reset"}
	if f == rules.IPv6 {
		return []rejection{
			{"icmp6-port-unreachable", "port-unreach", "icmpv6 port-unreachable"},
			{"icmp6-no-route", "no-route", "icmpv6 no-route"},
			{"icmp6-adm-prohibited", "adm-prohibited", "icmpv6 admin-prohibited"},
			{"icmp6-addr-unreachable", "addr-unreach", "icmpv6 addr-unreachable"},
			{"icmp6-policy-fail", "policy-fail", "icmpv6 policy-fail"},
			{"icmp6-reject-route", "reject-route", "icmpv6 reject-route"},
			reset,
		}
	}
	return []rejection{
		{"icmp-port-unreachable", "port-unreach", "icmp port-unreachable"},
		{"icmp-net-unreachable", "net-unreach", "icmp net-unreachable"},
		{"icmp-host-unreachable", "host-unreach", "icmp host-unreachable"},
		{"icmp-proto-unreachable", "proto-unreach", "icmp prot-unreachable"},
		{"icmp-net-prohibited", "net-prohib", "icmp net-prohibited"},
		{"icmp-host-prohibited", "host-prohib", "icmp host-prohibited"},
		{"icmp-admin-prohibited", "admin-prohib", "icmp admin-prohibited"},
		reset,
	}
}

// targetReject parses the target REJECT. An abbreviated name of a rejection makes the target
// unknown, because the abbreviation may be ambiguous.
func (r *moduleReader) targetReject() rules.Action {
	known := rejections(r.family)
	o := r.option("--reject-with")
	if o == nil {
		return rules.Reject{With: known[0].with}
	}
	w := o.values[0]
	prefix := strings.ToLower(w.text)
	names := make([]string, len(known))
	for i, k := range known {
		if strings.EqualFold(w.text, k.name) || strings.EqualFold(w.text, k.otherName) {
			return rules.Reject{With: k.with}
		}
		isPrefix := strings.HasPrefix(k.name, prefix) || strings.HasPrefix(k.otherName, prefix)
		r.isUnknown = r.isUnknown || prefix != "" && isPrefix
		names[i] = k.name
	}
	if !r.isUnknown {
		r.fail(w, "an answer: %s", strings.Join(names, ", "))
	}
	return nil
}

// addReject writes the target REJECT.
func (p *rulePrinter) addReject(a rules.Reject) error {
	for _, rejection := range rejections(p.table.Family) {
		switch {
		case rejection.with != a.With:
		case rejection.name == "tcp-reset" && p.protocol != rules.TCP:
			return fmt.Errorf("%s: the rule must match tcp", a)
		default:
			return p.addTarget(a, "filter", "REJECT", "--reject-with", rejection.name)
		}
	}
	return fmt.Errorf("%s: iptables has no such REJECT type in this family", a)
}

package xt

import "github.com/sluice-mesh/sluice/rules"

// MatchIgnores returns the inputs on which a match does not depend, by its name. A match that is
// not known may depend on all of them.
func MatchIgnores(name string) rules.Inputs {
	const headers = rules.ConnectionInput | rules.MarkInput | rules.ConntrackMarkInput |
		rules.InterfaceInput
	switch name {
	case "ah", "comment", "cpu", "dscp", "dst", "ecn", "esp", "frag", "hbh", "hl", "icmp",
		"icmp6", "icmpv6", "ipcomp", "ipv6header", "length", "limit", "mac", "mh", "osf", "physdev", "pkttype",
		"quota", "rateest", "rt", "srh", "statistic", "tcpmss", "time", "tos", "ttl":
		return rules.AllInputs
	case "devgroup":
		return rules.AllInputs &^ rules.InterfaceInput
	case "addrtype":
		return headers &^ rules.InterfaceInput
	case "cgroup", "dccp", "eui64", "hashlimit", "iprange", "l2tp", "multiport", "owner",
		"recent", "sctp", "socket", "string", "tcp", "u32", "udp", "udplite":
		return headers
	case "set": // a set may compare the mark (hash:ip,mark) and the interface (hash:net,iface)
		return headers &^ (rules.MarkInput | rules.InterfaceInput)
	case "rpfilter":
		return headers &^ rules.MarkInput
	case "mark":
		return rules.AllInputs &^ rules.MarkInput
	case "connmark":
		return rules.AllInputs &^ (rules.ConnectionInput | rules.ConntrackMarkInput)
	case "connbytes", "connlabel", "conntrack", "helper", "state":
		return rules.AllInputs &^ rules.ConnectionInput
	}
	return 0
}

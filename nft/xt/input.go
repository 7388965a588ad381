package xt

import "github.com/sluice-mesh/sluice/rules"

// MatchIgnores returns the inputs on which the match with the name does not depend. It returns no
// inputs for bpf, cluster, connlimit, ipvs, nfacct, policy and realm, and for matches that Linux
// 6.18 does not have.
func MatchIgnores(name string) rules.Inputs {
	return rules.AllInputs &^ matchInputs(name)
}

// matchInputs returns the inputs on which a match may depend, according to its function in
// net/netfilter/xt_*.c, net/ipv4/netfilter/ipt_*.c or net/ipv6/netfilter/ip6t_*.c of Linux 6.18.
func matchInputs(name string) rules.Inputs {
	switch name {
	case "ah", "comment", "cpu", "dscp", "dst", "ecn", "esp", "frag", "hbh", "hl", "icmp", "icmp6",
		"icmpv6", "ipcomp", "ipv6header", "limit", "mac", "mh", "rt", "srh", "statistic", "tcpmss",
		"time", "tos", "ttl":
		// comment, cpu, limit, statistic and time do not depend on the packet. The other matches
		// compare fields that NAT keeps, such as IPv6 extension headers, ICMP types and the options
		// of a SYN. A target that changes such a field has the effect [rules.WritesHeader], and its
		// change is not an input.
		return 0
	case "length", "quota":
		return rules.ContentsInput // the length
	case "rateest":
		return 0 // a rate, which is the match's own state
	case "cgroup", "dccp", "eui64", "iprange", "multiport", "owner", "recent", "sctp", "tcp", "udp",
		"udplite":
		return rules.HeaderInput
	case "hashlimit", "l2tp", "string", "u32":
		return rules.HeaderInput | rules.ContentsInput
	case "osf":
		// The match compares the length, the options, the window and the TTL of a SYN. The source
		// address decides whether the TTL is compared exactly.
		return rules.HeaderInput
	case "pkttype":
		// The type of a multicast packet that the host sends to itself depends on the destination.
		return rules.HeaderInput
	case "socket":
		// The socket is looked up by the packet's addresses, and for replies by the connection's
		// addresses (nf_sk_lookup_slow_v4 in net/ipv4/netfilter/nf_socket_ipv4.c).
		return rules.HeaderInput | rules.ConnectionInput
	case "devgroup", "physdev":
		return rules.InterfaceInput
	case "addrtype":
		return rules.HeaderInput | rules.InterfaceInput
	case "set": // a set may compare the mark (hash:ip,mark) and the interface (hash:net,iface)
		return rules.HeaderInput | rules.MarkInput | rules.InterfaceInput
	case "rpfilter":
		return rules.HeaderInput | rules.MarkInput
	case "mark":
		return rules.MarkInput
	case "connmark":
		return rules.ConnectionInput | rules.ConntrackMarkInput
	case "connbytes", "connlabel", "helper", "state":
		return rules.ConnectionInput
	case "conntrack": // also the status, and the expiration time, which a timeout policy determines
		return rules.ConnectionInput | rules.StateInput | rules.NATInput
	}
	return rules.AllInputs
}

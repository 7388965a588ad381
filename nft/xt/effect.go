package xt

import "github.com/sluice-mesh/sluice/rules"

// MatchEffect returns what a match of xtables may do to a packet beside ending its rule, by its
// name. Matches that net/netfilter, net/ipv4/netfilter and net/ipv6/netfilter of Linux 6.18 have
// only read the packet, or keep a history of their own; any other name is [rules.Anything].
//
// Options give a match of the list another effect: --restore-skmark of socket writes the packet's
// mark, --set of connlabel the labels of its connection, and --set, --update, --remove and --reap
// of recent the list. The caller knows the options. That a match drops a malformed packet, or one
// for which it has no memory (par->hotdrop), is no effect here: the model has no malformed packets.
//
// cluster is not in the list, for it turns a packet that the link layer takes for multicast into
// one for the host (xt_cluster_mt in net/netfilter/xt_cluster.c). bpf can draw a random number,
// nfacct uses up a quota, and set can compare counters that it increases.
func MatchEffect(name string) rules.Effect {
	switch name {
	case "addrtype", "ah", "cgroup", "comment", "connbytes", "connlabel", "connmark", "conntrack", "cpu",
		"dccp", "devgroup", "dscp", "dst", "ecn", "esp", "eui64", "frag", "hbh", "helper", "hl", "icmp",
		"icmp6", "icmpv6", "ipcomp", "iprange", "ipv6header", "ipvs", "l2tp", "length", "mac", "mark", "mh",
		"multiport", "osf", "owner", "physdev", "pkttype", "policy", "realm", "rpfilter", "rt", "sctp",
		"socket", "srh", "state", "string", "tcp", "tcpmss", "time", "tos", "ttl", "u32", "udp", "udplite":
		return rules.Reads
	case "bpf", "limit", "quota", "rateest", "recent", "set", "statistic":
		return rules.Draws
	case "hashlimit", "nfacct":
		return rules.Records
	}
	return rules.Anything
}

// newestRevision is that of Linux 6.18 of a match that MatchEffect knows.
func newestRevision(match string) uint32 {
	switch match {
	case "addrtype", "bpf", "connlimit", "connmark", "iprange", "mark", "multiport", "nfacct", "owner",
		"recent", "srh", "string", "tos":
		return 1
	case "cgroup":
		return 2
	case "conntrack", "hashlimit", "socket":
		return 3
	case "set":
		return 4
	}
	return 0
}

// matchEffect returns the effect of a match. A revision that is not known may do anything.
func matchEffect(x Extension) rules.Effect {
	if x.Revision > newestRevision(x.Name) {
		return rules.Anything
	}
	if x.Name == "socket" && x.Revision > 0 &&
		(len(x.Data) < 1 || x.Data[0]&^(socketTransparent|socketNoWildcard) != 0) {
		return rules.Anything
	}
	return MatchEffect(x.Name)
}

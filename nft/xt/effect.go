package xt

import "github.com/sluice-mesh/sluice/rules"

// MatchEffect returns the possible effect of the xtables match with the name. The listed matches of
// net/netfilter, net/ipv4/netfilter and net/ipv6/netfilter of Linux 6.18 only read the packet or
// keep their own history. The effect of every other match is [rules.AnyEffect].
//
// The caller must consider the options of the match, because some options change the effect.
// --restore-skmark of socket writes the mark of the packet. --set of connlabel writes the labels of
// the packet's connection. --set, --update, --remove and --reap of recent write the list. A
// statistic match with certain options matches all packets or none.
//
// The effect of cluster is [rules.AnyEffect], because cluster changes the type of a link-layer
// multicast packet to host (xt_cluster_mt in net/netfilter/xt_cluster.c). nfacct consumes a quota,
// and set can compare counters that it increases. The effect of bpf is [rules.Reads], although a
// program can use random numbers. MatchEffect ignores that a match drops a malformed packet, or a
// packet for which the kernel has no memory (par->hotdrop).
func MatchEffect(name string) rules.Effect {
	switch name {
	case "addrtype", "ah", "bpf", "cgroup", "comment", "connbytes", "connlabel", "connmark",
		"conntrack", "cpu", "dccp", "devgroup", "dscp", "dst", "ecn", "esp", "eui64", "frag", "hbh",
		"helper", "hl", "icmp", "icmp6", "icmpv6", "ipcomp", "iprange", "ipv6header", "ipvs",
		"l2tp", "length", "mac", "mark", "mh", "multiport", "osf", "owner", "physdev", "pkttype",
		"policy", "realm", "rpfilter", "rt", "sctp", "socket", "srh", "state", "string", "tcp",
		"tcpmss", "time", "tos", "ttl", "u32", "udp", "udplite":
		return rules.Reads
	case "limit", "statistic":
		return rules.ReadsVarying
	case "quota", "rateest", "recent", "set":
		return rules.ReadsHistory
	case "hashlimit", "nfacct":
		return rules.ReadsAndWrites
	}
	return rules.AnyEffect
}

// maxRevision returns the newest revision of a match in Linux 6.18.
func maxRevision(match string) uint32 {
	switch match {
	case "addrtype", "bpf", "connlimit", "connmark", "iprange", "mark", "multiport", "nfacct",
		"owner", "recent", "srh", "string", "tos":
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

// matchEffect returns the effect of a match with its options. An unsupported revision, and an
// unsupported option of socket, may have any effect. [withState] considers the options that write
// a state.
func matchEffect(x Extension) rules.Effect {
	if x.Revision > maxRevision(x.Name) {
		return rules.AnyEffect
	}
	if x.Name == "socket" && x.Revision > 0 &&
		(len(x.Data) < 1 || x.Data[0]&^(socketTransparent|socketNoWildcard) != 0) {
		return rules.AnyEffect
	}
	if s, ok := decodeStatistic(x.Data); x.Name == "statistic" && (!ok || !s.Varies()) {
		return rules.Reads
	}
	return MatchEffect(x.Name)
}

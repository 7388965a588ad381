package diff

// A Fact is a behavior of the kernel that does not depend on the rules, and on which decisions
// rely. Package compat/kerneltest tests each of them with the kernel.
type Fact uint8

// The facts. [Fact.String] describes each in a sentence, [Fact.Source] names its place in the
// kernel.
const (
	HooksRunByPriority Fact = iota
	ConntrackPriorityTies
	NATRunsTogether
	FirstNATMapping
	NATDecidesOnce
	ErrorsSkipNAT
	UntrackedSkipsNAT
	HelperDecides
	TranslationRepeats
	LoopbackKeepsConnection
	LoopbackConfirms
	LoopbackPassesPostrouting
	ConntrackReassembles

	RedirectTakesFirstAddress
	RedirectTakesScope
	RedirectAtOutputIsLoopback
	FreePortIsKept
	NoAddressDrops

	NoConnectionBeforeConntrack
	UntrackedFromElsewhere
	MarkNeedsConnection
	StatusNeedsConnection
	TemplateIsNew
	TemplateIsForXTables
	TemplateIsShared
	FirstTemplateStays
	NFTZoneOfUntracked
	NotrackNeedsNoConnection
	ZoneBehindConntrack
	NeighbourDiscoveryUntracked

	SocketsAfterPrerouting
	TProxyAssignsSocket
	LastTProxyHolds
	TProxyOfAnyState
	TProxyNeedsPorts
	TProxyOnOwnPort
	SocketChangesReversePath
	NoListenerDrops
	NoListenerEndsRule
	OwnerNeedsSocket
	XTablesOwnerWithoutSocket
	SocketMarkIsWritten

	RouteChainsRouteAgain
	OtherMarkLeavesLoopback
	LinkKeepsInterface
	BoundSocketKeepsInterface
	TranslationRoutesAgain
	OutInterfaceStays
	InputInterfaceAtPostrouting

	EffectsBeforeFailedMatch
	MissEndsRule
	OtherFamilyFailsMatch
	ResetAnswersTCP
	LoopbackAnswersThisHost
	ErrorsComeFromThisHost

	LinkLocalIsAnsweredByItsLink
	UnspecifiedAddressIsReplaced
	LoopbackWasSent
	LoopbackSourceNeverArrives
	LoopbackIPv6NeverArrives
	MulticastSourceNeverArrives
	UnspecifiedAddressHasNoType
)

// A factText describes a fact.
type factText struct{ name, says, source string }

var factTexts = [...]factText{
	HooksRunByPriority: {
		"HooksRunByPriority", "the chains of a hook run in ascending priority",
		"nf_hook_entries_grow in net/netfilter/core.c",
	},
	ConntrackPriorityTies: {
		"ConntrackPriorityTies",
		"of a chain at conntrack's priority and conntrack, the one that was registered last runs first",
		"nf_hook_entries_grow in net/netfilter/core.c, ipv4_conntrack_ops in net/netfilter/nf_conntrack_proto.c",
	},
	NATRunsTogether: {
		"NATRunsTogether",
		"the chains of NAT of a hook run together where the kernel translates, whatever their priorities, and there in the order of these",
		"nf_nat_register_fn in net/netfilter/nf_nat_core.c",
	},
	FirstNATMapping: {
		"FirstNATMapping",
		"the first chain of NAT that maps a connection decides, and no later chain of NAT runs",
		"nf_nat_inet_fn in net/netfilter/nf_nat_core.c",
	},
	NATDecidesOnce: {
		"NATDecidesOnce", "NAT was already decided for the connection",
		"nf_nat_inet_fn in net/netfilter/nf_nat_core.c",
	},
	ErrorsSkipNAT: {
		"ErrorsSkipNAT", "ICMP errors of a connection never enter chains of NAT",
		"nf_nat_ipv4_fn and nf_nat_ipv6_fn in net/netfilter/nf_nat_proto.c",
	},
	UntrackedSkipsNAT: {
		"UntrackedSkipsNAT", "packets without a conntrack entry never enter chains of NAT",
		"nf_nat_inet_fn in net/netfilter/nf_nat_core.c",
	},
	HelperDecides: {
		"HelperDecides", "a helper has translated the connection as the one that announced it",
		"nf_nat_follow_master in net/netfilter/nf_nat_core.c",
	},
	TranslationRepeats: {
		"TranslationRepeats",
		"later packets of a connection are translated as its first one, whatever the rules are by then",
		"nf_nat_packet in net/netfilter/nf_nat_core.c",
	},
	LoopbackKeepsConnection: {
		"LoopbackKeepsConnection",
		"a packet that left by lo arrives with its conntrack entry, which stays as it is",
		"loopback_xmit in drivers/net/loopback.c, nf_conntrack_in in net/netfilter/nf_conntrack_core.c",
	},
	LoopbackConfirms: {
		"LoopbackConfirms",
		"a new connection is confirmed when its first packet has left, and so before it arrives by lo",
		"nf_confirm in net/netfilter/nf_conntrack_proto.c",
	},
	LoopbackPassesPostrouting: {
		"LoopbackPassesPostrouting",
		"a packet that leaves by lo passes the chains of postrouting before those of prerouting",
		"ip_output in net/ipv4/ip_output.c, ip6_output in net/ipv6/ip6_output.c",
	},
	ConntrackReassembles: {
		"ConntrackReassembles",
		"where conntrack or a transparent proxy is used, rules from priority -400 on receive no fragments: the kernel reassembles packets before",
		"ipv4_conntrack_defrag in net/ipv4/netfilter/nf_defrag_ipv4.c, ipv6_defrag in net/ipv6/netfilter/nf_defrag_ipv6_hooks.c",
	},
	RedirectTakesFirstAddress: {
		"RedirectTakesFirstAddress",
		"a redirection at prerouting leads to the first address of the interface by which the packet came in",
		"nf_nat_redirect_ipv4 in net/netfilter/nf_nat_redirect.c",
	},
	RedirectTakesScope: {
		"RedirectTakesScope",
		"a redirection at prerouting of a packet for an IPv6 address that is not global leads to the first address of that scope",
		"nf_nat_redirect_ipv6 in net/netfilter/nf_nat_redirect.c, ipv6_addr_scope in include/net/ipv6.h",
	},
	RedirectAtOutputIsLoopback: {
		"RedirectAtOutputIsLoopback", "a redirection at output leads to 127.0.0.1 or ::1",
		"nf_nat_redirect_ipv4 and nf_nat_redirect_ipv6 in net/netfilter/nf_nat_redirect.c",
	},
	FreePortIsKept: {
		"FreePortIsKept",
		"a translation to a range of ports leaves a port of the range as it is, and takes the first of the range for others, unless another connection has that",
		"get_unique_tuple and nf_nat_l4proto_unique_tuple in net/netfilter/nf_nat_core.c",
	},
	NoAddressDrops: {
		"NoAddressDrops",
		"a redirection at prerouting drops what came by an interface without an address of the family",
		"nf_nat_redirect_ipv4 and nf_nat_redirect_ipv6 in net/netfilter/nf_nat_redirect.c",
	},
	NoConnectionBeforeConntrack: {
		"NoConnectionBeforeConntrack",
		"before conntrack's priority a packet has no connection, and its state is invalid",
		"ipv4_conntrack_ops in net/netfilter/nf_conntrack_proto.c, nft_ct_get_eval in net/netfilter/nft_ct.c",
	},
	UntrackedFromElsewhere: {
		"UntrackedFromElsewhere",
		"a packet that enters as one that conntrack is to leave alone is untracked before conntrack too",
		"nf_dup_ipv4 in net/ipv4/netfilter/nf_dup_ipv4.c, nf_ct_get in include/net/netfilter/nf_conntrack.h",
	},
	MarkNeedsConnection: {
		"MarkNeedsConnection",
		"a packet without a connection fulfils no condition on the connection's mark, also none that is negated, and a rule of nft that reads the mark ends",
		"connmark_mt in net/netfilter/xt_connmark.c, nft_ct_get_eval and nft_ct_set_eval in net/netfilter/nft_ct.c",
	},
	StatusNeedsConnection: {
		"StatusNeedsConnection",
		"a packet without a connection fulfils no condition on the connection's status or direction, also none that is negated",
		"conntrack_mt in net/netfilter/xt_conntrack.c, nft_ct_get_eval in net/netfilter/nft_ct.c",
	},
	TemplateIsNew: {
		"TemplateIsNew", "a zone chosen before conntrack attaches a template, whose state is new",
		"nf_ct_set in include/net/netfilter/nf_conntrack.h by xt_ct_target in net/netfilter/xt_CT.c and nft_ct_set_zone_eval in net/netfilter/nft_ct.c",
	},
	TemplateIsForXTables: {
		"TemplateIsForXTables",
		"of a template xtables reads and writes the mark and reads status and direction, nft reads the state only",
		"connmark_mt and connmark_tg in net/netfilter/xt_connmark.c, nft_ct_get_eval in net/netfilter/nft_ct.c",
	},
	TemplateIsShared: {
		"TemplateIsShared",
		"a rule of xtables has one template for all packets, and nft has one per CPU for all rules of all namespaces; each keeps the mark that was written to it",
		"xt_ct_tg_check in net/netfilter/xt_CT.c, nft_ct_tmpl_alloc_pcpu and nft_ct_set_zone_eval in net/netfilter/nft_ct.c",
	},
	FirstTemplateStays: {
		"FirstTemplateStays",
		"a packet with a template keeps it: later zones and notrack have no effect",
		"xt_ct_target in net/netfilter/xt_CT.c, nft_ct_set_zone_eval and nft_notrack_eval in net/netfilter/nft_ct.c",
	},
	NFTZoneOfUntracked: {
		"NFTZoneOfUntracked",
		"nft gives a packet that is not to be tracked a zone, so that it is tracked; xtables does not",
		"nft_ct_set_zone_eval in net/netfilter/nft_ct.c, xt_ct_target in net/netfilter/xt_CT.c",
	},
	NotrackNeedsNoConnection: {
		"NotrackNeedsNoConnection",
		"notrack makes a packet without a connection untracked, at any priority, and has no effect on others",
		"nft_notrack_eval in net/netfilter/nft_ct.c, xt_ct_target in net/netfilter/xt_CT.c",
	},
	ZoneBehindConntrack: {
		"ZoneBehindConntrack",
		"a zone assigned after conntrack has no effect on a packet with a connection",
		"nft_ct_set_zone_eval in net/netfilter/nft_ct.c",
	},
	NeighbourDiscoveryUntracked: {
		"NeighbourDiscoveryUntracked",
		"conntrack leaves neighbour discovery and the like untracked",
		"nf_conntrack_icmpv6_error in net/netfilter/nf_conntrack_proto_icmpv6.c",
	},
	SocketsAfterPrerouting: {
		"SocketsAfterPrerouting",
		"a packet that arrives has no socket at prerouting: early demux looks for one after it",
		"ip_rcv_finish_core in net/ipv4/ip_input.c, ip6_rcv_finish_core in net/ipv6/ip6_input.c",
	},
	TProxyAssignsSocket: {
		"TProxyAssignsSocket",
		"tproxy gives the packet the listener's socket, which later rules see and no translation takes away",
		"nf_tproxy_assign_sock in include/net/netfilter/nf_tproxy.h",
	},
	LastTProxyHolds: {
		"LastTProxyHolds", "of several rules with tproxy the last gives the packet its socket",
		"nf_tproxy_assign_sock in include/net/netfilter/nf_tproxy.h",
	},
	TProxyOfAnyState: {
		"TProxyOfAnyState", "tproxy takes packets of any state and direction",
		"tproxy_tg4 in net/netfilter/xt_TPROXY.c, nft_tproxy_eval_v4 in net/netfilter/nft_tproxy.c",
	},
	TProxyNeedsPorts: {
		"TProxyNeedsPorts", "tproxy of another protocol than TCP and UDP ends the rule",
		"nft_tproxy_eval_v4 and nft_tproxy_eval_v6 in net/netfilter/nft_tproxy.c",
	},
	TProxyOnOwnPort: {
		"TProxyOnOwnPort", "tproxy on port 0 looks for a listener on the packet's own port",
		"tproxy_tg4 in net/netfilter/xt_TPROXY.c",
	},
	SocketChangesReversePath: {
		"SocketChangesReversePath",
		"nftables takes the source of a packet on lo as reachable, but looks for a route once the packet has a socket",
		"nft_fib_can_skip in include/net/netfilter/nft_fib.h",
	},
	NoListenerDrops: {
		"NoListenerDrops", "TPROXY of xtables drops a packet for which there is no listener",
		"tproxy_tg4 and tproxy_tg6_v1 in net/netfilter/xt_TPROXY.c",
	},
	NoListenerEndsRule: {
		"NoListenerEndsRule",
		"tproxy of nft ends the rule for a packet for which there is no listener",
		"nft_tproxy_eval_v4 and nft_tproxy_eval_v6 in net/netfilter/nft_tproxy.c",
	},
	OwnerNeedsSocket: {
		"OwnerNeedsSocket",
		"a packet without a socket fulfils no condition of nft on users and groups, also none that is negated",
		"nft_meta_get_eval_skugid in net/netfilter/nft_meta.c",
	},
	XTablesOwnerWithoutSocket: {
		"XTablesOwnerWithoutSocket",
		"a packet without a socket fulfils the owner match of xtables if all conditions of that are negated",
		"owner_mt in net/netfilter/xt_owner.c",
	},
	SocketMarkIsWritten: {
		"SocketMarkIsWritten",
		"a match of xtables that writes the socket's mark does so before later matches",
		"socket_match in net/netfilter/xt_socket.c",
	},
	RouteChainsRouteAgain: {
		"RouteChainsRouteAgain",
		"a chain of type route, and mangle at output, that has changed the mark makes the kernel look for a route again; others do not",
		"nf_route_table_inet in net/netfilter/nft_chain_route.c, ipt_mangle_out in net/ipv4/netfilter/iptable_mangle.c",
	},
	OtherMarkLeavesLoopback: {
		"OtherMarkLeavesLoopback",
		"a packet that was to leave by lo because of its mark leaves by another interface if such a chain has changed the mark",
		"ip_route_me_harder in net/ipv4/netfilter.c, ip6_route_me_harder in net/ipv6/netfilter.c",
	},
	LinkKeepsInterface: {
		"LinkKeepsInterface",
		"an IPv6 packet for a link-local or multicast address keeps its interface when a route is looked for again",
		"ip6_route_me_harder in net/ipv6/netfilter.c",
	},
	BoundSocketKeepsInterface: {
		"BoundSocketKeepsInterface",
		"a packet of a socket that is bound to an interface keeps that when a route is looked for again, also to an address of this host",
		"ip_route_me_harder in net/ipv4/netfilter.c, ip6_route_me_harder in net/ipv6/netfilter.c",
	},
	TranslationRoutesAgain: {
		"TranslationRoutesAgain",
		"a translation at output to another address makes the kernel look for a route again, by the mark at that time; one to another port does not",
		"nf_nat_ipv4_local_fn and nf_nat_ipv6_local_fn in net/netfilter/nf_nat_proto.c",
	},
	OutInterfaceStays: {
		"OutInterfaceStays",
		"the rules of output see the interface that was chosen first, also when another route was found",
		"nf_hook_state in include/linux/netfilter.h",
	},
	InputInterfaceAtPostrouting: {
		"InputInterfaceAtPostrouting",
		"a packet that has no socket, such as a copy of another one, may have an input interface at postrouting",
		"ip_output in net/ipv4/ip_output.c, ip6_output in net/ipv6/ip6_output.c, nf_dup_ipv4 in net/ipv4/netfilter/nf_dup_ipv4.c",
	},
	EffectsBeforeFailedMatch: {
		"EffectsBeforeFailedMatch",
		"an expression has its effect also if a later one of the rule ends that",
		"nft_do_chain in net/netfilter/nf_tables_core.c",
	},
	MissEndsRule: {
		"MissEndsRule", "a map without the value ends the rule",
		"nft_lookup_eval in net/netfilter/nft_lookup.c",
	},
	OtherFamilyFailsMatch: {
		"OtherFamilyFailsMatch",
		"a rule of a table of both families that reads an address of one, or names two families, matches no packet of the other",
		"nft_meta_get_eval in net/netfilter/nft_meta.c",
	},
	ResetAnswersTCP: {
		"ResetAnswersTCP",
		"a rejection by a reset answers packets of TCP that are no resets, and drops all without an answer but these",
		"nf_reject_ip_tcphdr_get in net/ipv4/netfilter/nf_reject_ipv4.c",
	},
	LoopbackAnswersThisHost: {
		"LoopbackAnswersThisHost",
		"a rejection answers a packet for an address of 127.0.0.0/8 only if the source is an address of this host, unless route_localnet is set",
		"__mkroute_output in net/ipv4/route.c",
	},
	ErrorsComeFromThisHost: {
		"ErrorsComeFromThisHost",
		"an ICMP error about a packet that a mark leads to this host comes from the packet's destination, and so is not sent if that is no address of the host",
		"icmp_send in net/ipv4/icmp.c",
	},
	LinkLocalIsAnsweredByItsLink: {
		"LinkLocalIsAnsweredByItsLink",
		"an ICMPv6 error to a link-local address leaves by the interface that the route of the rejected packet names, and so is not sent if that is lo",
		"icmp6_send and icmp6_dev in net/ipv6/icmp.c",
	},
	UnspecifiedAddressIsReplaced: {
		"UnspecifiedAddressIsReplaced",
		"sockets send to a loopback address instead of the unspecified one; a packet of a raw socket that is bound to lo to the IPv6 unspecified address is lost when a route is looked for again, also after a translation to an address that is no loopback address",
		"rawv6_send_hdrinc in net/ipv6/raw.c, ip6_route_me_harder in net/ipv6/netfilter.c",
	},
	LoopbackWasSent: {
		"LoopbackWasSent", "a packet that arrives on lo was sent before, and entered at output",
		"loopback_xmit in drivers/net/loopback.c",
	},
	LoopbackSourceNeverArrives: {
		"LoopbackSourceNeverArrives",
		"no packet from 127.0.0.0/8 arrives, whatever the rules did, unless route_localnet is set",
		"ip_route_input_slow in net/ipv4/route.c",
	},
	LoopbackIPv6NeverArrives: {
		"LoopbackIPv6NeverArrives", "no packet from or for ::1 comes to prerouting",
		"ip6_rcv_core in net/ipv6/ip6_input.c",
	},
	MulticastSourceNeverArrives: {
		"MulticastSourceNeverArrives",
		"no packet from a multicast address arrives, whatever the rules did",
		"ip_route_input_slow in net/ipv4/route.c, ip6_rcv_core in net/ipv6/ip6_input.c",
	},
	UnspecifiedAddressHasNoType: {
		"UnspecifiedAddressHasNoType",
		"nftables gives the address :: the type unspec, and no other address",
		"nft_fib6_eval_type in net/ipv6/netfilter/nft_fib_ipv6.c",
	},
}

// Facts returns all facts.
func Facts() []Fact {
	list := make([]Fact, len(factTexts))
	for i := range list {
		list[i] = Fact(i)
	}
	return list
}

// Name returns the name of the constant.
func (f Fact) Name() string { return factTexts[f].name }

// String returns a description of the fact.
func (f Fact) String() string { return factTexts[f].says }

// Source returns the functions of Linux 6.18 that implement the fact, and their files.
func (f Fact) Source() string { return factTexts[f].source }

// skipsNAT contains the facts because of which packets do not traverse NAT chains.
var skipsNAT = [...]Fact{NATDecidesOnce, ErrorsSkipNAT, UntrackedSkipsNAT, HelperDecides}

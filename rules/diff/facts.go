package diff

// A Fact is a behavior of the kernel that does not depend on the rules and that the evaluator
// relies on. Package compat/kerneltest tests each fact with the kernel.
type Fact uint8

// The facts. [Fact.String] describes each in a sentence, and [Fact.Source] names the kernel
// functions that implement it.
const (
	HooksRunByPriority Fact = iota
	ConntrackPriorityTies
	NATRunsTogether
	NATPriorityTies
	FirstNATMapping
	NATDecidesOnce
	ErrorsSkipNAT
	NATDropsRedirects
	UntrackedSkipsNAT
	NATNeedsConntrack
	ExpectationFollowsMaster
	NATMappingPersists
	LoopbackKeepsConnection
	InvalidIsTrackedAgain
	LoopbackConfirms
	LoopbackPassesPostrouting
	ConntrackReassembles
	UntrackedNotReassembled
	ConntrackSeesDropped

	RedirectTakesFirstAddress
	RedirectMatchesScope
	RedirectAtOutputIsLoopback
	PortInRangeIsKept
	RedirectWithoutAddressDrops

	NoConnectionBeforeConntrack
	ResetHasConnection
	ErrorHasConnection
	CopyHasConnection
	EntersUntracked
	MarkNeedsConnection
	NATSetsStatus
	StatusNeedsConnection
	TemplateIsNew
	NFTReadsTemplateStateOnly
	TemplateIsShared
	FirstTemplateStays
	NFTZoneOfUntracked
	NotrackNeedsNoConnection
	ZoneAfterConntrackHasNoEffect
	NeighborDiscoveryUntracked
	ICMPStateFollowsType

	SocketsAfterPrerouting
	TProxyAssignsSocket
	LastTProxyWins
	TProxyIgnoresState
	TProxyNeedsTCPOrUDP
	TProxyPortZeroIsDestinationPort
	SocketChangesReversePath
	TProxyNeedsLocalRoute
	NoListenerDrops
	NoListenerEndsRule
	ListenersAreIndependent
	OwnerNeedsSocket
	XTablesOwnerWithoutSocket
	KernelSocketHasNoOwner
	ClosedSocketHasCgroup
	SocketMatchRestoresMark
	SocketMatchLooksUpReceiver
	SocketMatchReadsSender

	MarkChangeReroutes
	MarkChangeReroutesLoopback
	LinkLocalKeepsInterface
	BoundSocketKeepsInterface
	SelectedInterfaceIsNotKept
	HeaderChangeReroutes
	CopiesAreRoutedToTheGateway
	DNATAtOutputReroutes
	OutputSeesFirstInterface
	InputInterfaceAtPostrouting

	EffectsBeforeFailedMatch
	MapMissEndsRule
	VerdictEndsRule
	OtherFamilyFailsMatch
	AuthenticationHeaderIsSkipped
	ResetAnswersTCP
	RejectFromLoopbackNeedsLocalSource
	ICMPErrorNeedsLocalSource
	LinkLocalErrorUsesRouteInterface

	UnspecifiedAddressIsReplaced
	LoopbackTraversedOutput
	LoopbackSourceIsDropped
	IPv6LoopbackIsDroppedEarly
	MulticastSourceIsDropped
	OnlyUnspecifiedIsTypeUnspec
)

// A factText describes a fact.
type factText struct{ name, text, source string }

var factTexts = [...]factText{
	HooksRunByPriority: {
		"HooksRunByPriority", "the chains of a hook run in ascending priority",
		"nf_hook_entries_grow in net/netfilter/core.c",
	},
	ConntrackPriorityTies: {
		"ConntrackPriorityTies",
		"if a chain has the same priority as conntrack, the one of the two that was registered " +
			"last runs first; at postrouting conntrack confirms connections at the highest " +
			"priority, 2147483647",
		"nf_hook_entries_grow in net/netfilter/core.c, ipv4_conntrack_ops in " +
			"net/netfilter/nf_conntrack_proto.c",
	},
	NATRunsTogether: {
		"NATRunsTogether",
		"all NAT chains of a hook run at the kernel's NAT priority; their own priorities " +
			"determine only their order",
		"nf_nat_register_fn in net/netfilter/nf_nat_core.c",
	},
	NATPriorityTies: {
		"NATPriorityTies",
		"if another chain has the kernel's NAT priority, it runs before the NAT chains of the hook " +
			"if it was registered after the first of them, and otherwise after them",
		"nf_hook_entries_grow in net/netfilter/core.c, nf_nat_register_fn in " +
			"net/netfilter/nf_nat_core.c",
	},
	FirstNATMapping: {
		"FirstNATMapping",
		"the first NAT chain that sets up a mapping for a connection ends NAT: later NAT chains " +
			"do not run",
		"nf_nat_inet_fn in net/netfilter/nf_nat_core.c",
	},
	NATDecidesOnce: {
		"NATDecidesOnce", "NAT is decided only once for a connection",
		"nf_nat_inet_fn in net/netfilter/nf_nat_core.c",
	},
	ErrorsSkipNAT: {
		"ErrorsSkipNAT", "ICMP errors related to a connection do not traverse NAT chains",
		"nf_nat_ipv4_fn and nf_nat_ipv6_fn in net/netfilter/nf_nat_proto.c",
	},
	NATDropsRedirects: {
		"NATDropsRedirects",
		"with a NAT chain for IPv4, the kernel drops, at prerouting and output, an ICMP redirect " +
			"that is related to a translated connection, or to a connection whose first packet " +
			"has not left yet",
		"nf_nat_icmp_reply_translation in net/netfilter/nf_nat_proto.c",
	},
	UntrackedSkipsNAT: {
		"UntrackedSkipsNAT", "packets without a conntrack entry do not traverse NAT chains",
		"nf_nat_inet_fn in net/netfilter/nf_nat_core.c",
	},
	NATNeedsConntrack: {
		"NATNeedsConntrack",
		"packets traverse NAT chains only if conntrack is enabled for their family; a NAT chain " +
			"alone does not enable conntrack, and a rule of an inet table that translates to an " +
			"address enables it only for the family of the address",
		"nf_nat_inet_fn in net/netfilter/nf_nat_core.c, nf_ct_netns_get in " +
			"net/netfilter/nf_conntrack_proto.c, nft_nat_init in net/netfilter/nft_nat.c",
	},
	ExpectationFollowsMaster: {
		"ExpectationFollowsMaster",
		"a connection that a conntrack helper expected uses the NAT mapping of its master " +
			"connection",
		"nf_nat_follow_master in net/netfilter/nf_nat_core.c",
	},
	NATMappingPersists: {
		"NATMappingPersists",
		"later packets of a connection use the NAT mapping of its first packet, even if the " +
			"rules have changed since",
		"nf_nat_packet in net/netfilter/nf_nat_core.c",
	},
	LoopbackKeepsConnection: {
		"LoopbackKeepsConnection",
		"a packet sent on lo is received with its conntrack entry unchanged",
		"loopback_xmit in drivers/net/loopback.c, nf_conntrack_in in " +
			"net/netfilter/nf_conntrack_core.c",
	},
	InvalidIsTrackedAgain: {
		"InvalidIsTrackedAgain",
		"a packet that is invalid at output has no conntrack entry: when it arrives on lo, conntrack " +
			"runs again, in the zone that rules at prerouting assign, and may find or begin a " +
			"connection of TCP, SCTP, DCCP or ICMP",
		"nf_conntrack_in in net/netfilter/nf_conntrack_core.c",
	},
	LoopbackConfirms: {
		"LoopbackConfirms",
		"a new connection is confirmed at the end of postrouting, so that on lo its first packet " +
			"is received with a confirmed entry",
		"nf_confirm in net/netfilter/nf_conntrack_proto.c",
	},
	LoopbackPassesPostrouting: {
		"LoopbackPassesPostrouting",
		"a packet sent on lo traverses the postrouting chains before the prerouting chains",
		"ip_output in net/ipv4/ip_output.c, ip6_output in net/ipv6/ip6_output.c",
	},
	ConntrackReassembles: {
		"ConntrackReassembles",
		"where conntrack or a transparent proxy is in use, chains with a priority above -400 see " +
			"no fragments, because the kernel reassembles packets first",
		"ipv4_conntrack_defrag in net/ipv4/netfilter/nf_defrag_ipv4.c, ipv6_defrag in " +
			"net/ipv6/netfilter/nf_defrag_ipv6_hooks.c",
	},
	UntrackedNotReassembled: {
		"UntrackedNotReassembled",
		"untracked fragments that are sent over lo are not reassembled before prerouting",
		"ipv4_conntrack_defrag in net/ipv4/netfilter/nf_defrag_ipv4.c, ipv6_defrag in " +
			"net/ipv6/netfilter/nf_defrag_ipv6_hooks.c",
	},
	ConntrackSeesDropped: {
		"ConntrackSeesDropped",
		"a packet that a rule drops after conntrack changes the state of its connection, and a " +
			"packet dropped before conntrack does not; a new connection is kept only if its first " +
			"packet reaches the end of postrouting or input",
		"nf_conntrack_in and __nf_conntrack_confirm in net/netfilter/nf_conntrack_core.c",
	},
	RedirectTakesFirstAddress: {
		"RedirectTakesFirstAddress",
		"redirect at prerouting translates to the first address of the input interface",
		"nf_nat_redirect_ipv4 in net/netfilter/nf_nat_redirect.c",
	},
	RedirectMatchesScope: {
		"RedirectMatchesScope",
		"redirect at prerouting of a packet to a non-global IPv6 address translates to the input " +
			"interface's first address of the same scope",
		"nf_nat_redirect_ipv6 in net/netfilter/nf_nat_redirect.c, ipv6_addr_scope in " +
			"include/net/ipv6.h",
	},
	RedirectAtOutputIsLoopback: {
		"RedirectAtOutputIsLoopback", "redirect at output translates to 127.0.0.1 or ::1",
		"nf_nat_redirect_ipv4 and nf_nat_redirect_ipv6 in net/netfilter/nf_nat_redirect.c",
	},
	PortInRangeIsKept: {
		"PortInRangeIsKept",
		"DNAT to a range of ports keeps a destination port of the range and otherwise uses the " +
			"first port of the range, or another one if a connection uses that port",
		"get_unique_tuple and nf_nat_l4proto_unique_tuple in net/netfilter/nf_nat_core.c",
	},
	RedirectWithoutAddressDrops: {
		"RedirectWithoutAddressDrops",
		"redirect at prerouting drops packets whose input interface has no address of the family",
		"nf_nat_redirect_ipv4 and nf_nat_redirect_ipv6 in net/netfilter/nf_nat_redirect.c",
	},
	NoConnectionBeforeConntrack: {
		"NoConnectionBeforeConntrack",
		"before conntrack's priority a packet has no connection, and its state is invalid",
		"ipv4_conntrack_ops in net/netfilter/nf_conntrack_proto.c, nft_ct_get_eval in " +
			"net/netfilter/nft_ct.c",
	},
	ResetHasConnection: {
		"ResetHasConnection",
		"the TCP reset that answers a packet for a reject rule has the connection of that " +
			"packet, in state related, even before conntrack; the reset traverses NAT chains if " +
			"NAT was not decided for the connection, but they do not translate it",
		"nf_send_reset in net/ipv4/netfilter/nf_reject_ipv4.c, nf_conntrack_attach in " +
			"net/netfilter/nf_conntrack_core.c",
	},
	ErrorHasConnection: {
		"ErrorHasConnection",
		"an ICMP error that the kernel sends about a packet with a connection has this " +
			"connection, in state related, even before conntrack",
		"icmp_glue_bits in net/ipv4/icmp.c, icmpv6_getfrag in net/ipv6/icmp.c, " +
			"nf_conntrack_attach in net/netfilter/nf_conntrack_core.c",
	},
	CopyHasConnection: {
		"CopyHasConnection",
		"if the host itself receives a copy of a multicast or broadcast packet that it sends, " +
			"the copy has the connection of the packet, even before conntrack",
		"ip_mc_output in net/ipv4/ip_output.c, ip6_finish_output2 in net/ipv6/ip6_output.c",
	},
	EntersUntracked: {
		"EntersUntracked",
		"a packet that enters the hook already marked as untracked has the state untracked even " +
			"before conntrack",
		"nf_dup_ipv4 in net/ipv4/netfilter/nf_dup_ipv4.c, nf_ct_get in " +
			"include/net/netfilter/nf_conntrack.h",
	},
	MarkNeedsConnection: {
		"MarkNeedsConnection",
		"a match on the connection's mark fails for a packet without a conntrack entry, even if " +
			"the match is negated, and an nft expression that reads the mark ends the rule",
		"connmark_mt in net/netfilter/xt_connmark.c, nft_ct_get_eval and nft_ct_set_eval in " +
			"net/netfilter/nft_ct.c",
	},
	NATSetsStatus: {
		"NATSetsStatus",
		"if there is a NAT chain of the family, every new connection gets the status bits " +
			"SRC_NAT_DONE and DST_NAT_DONE, even if no rule translates it",
		"nf_nat_inet_fn and nf_nat_alloc_null_binding in net/netfilter/nf_nat_core.c",
	},
	StatusNeedsConnection: {
		"StatusNeedsConnection",
		"a match on the connection's status or direction fails for a packet without a conntrack " +
			"entry, even if the match is negated",
		"conntrack_mt in net/netfilter/xt_conntrack.c, nft_ct_get_eval in net/netfilter/nft_ct.c",
	},
	TemplateIsNew: {
		"TemplateIsNew",
		"assigning a zone before conntrack attaches a template, whose state is new",
		"nf_ct_set in include/net/netfilter/nf_conntrack.h by xt_ct_target in " +
			"net/netfilter/xt_CT.c and nft_ct_set_zone_eval in net/netfilter/nft_ct.c",
	},
	NFTReadsTemplateStateOnly: {
		"NFTReadsTemplateStateOnly",
		"xtables reads and writes the mark of a template, and reads its status and direction; " +
			"nft reads only its state",
		"connmark_mt and connmark_tg in net/netfilter/xt_connmark.c, nft_ct_get_eval in " +
			"net/netfilter/nft_ct.c",
	},
	TemplateIsShared: {
		"TemplateIsShared",
		"a CT rule of xtables has one template for all packets, and nft has one template per CPU " +
			"for all rules of all namespaces; a template keeps the mark that was written to it",
		"xt_ct_tg_check in net/netfilter/xt_CT.c, nft_ct_tmpl_alloc_pcpu and " +
			"nft_ct_set_zone_eval in net/netfilter/nft_ct.c",
	},
	FirstTemplateStays: {
		"FirstTemplateStays",
		"a packet with a template keeps it: later zones and notrack have no effect",
		"xt_ct_target in net/netfilter/xt_CT.c, nft_ct_set_zone_eval and nft_notrack_eval in " +
			"net/netfilter/nft_ct.c",
	},
	NFTZoneOfUntracked: {
		"NFTZoneOfUntracked",
		"assigning a zone with nft to an untracked packet makes conntrack track it; the CT " +
			"target of xtables does not",
		"nft_ct_set_zone_eval in net/netfilter/nft_ct.c, xt_ct_target in net/netfilter/xt_CT.c",
	},
	NotrackNeedsNoConnection: {
		"NotrackNeedsNoConnection",
		"notrack makes a packet without a connection untracked, at any priority, and has no " +
			"effect on others",
		"nft_notrack_eval in net/netfilter/nft_ct.c, xt_ct_target in net/netfilter/xt_CT.c",
	},
	ZoneAfterConntrackHasNoEffect: {
		"ZoneAfterConntrackHasNoEffect",
		"a zone assigned after conntrack has no effect on a packet with a connection",
		"nft_ct_set_zone_eval in net/netfilter/nft_ct.c",
	},
	NeighborDiscoveryUntracked: {
		"NeighborDiscoveryUntracked",
		"conntrack does not track ICMPv6 neighbor discovery, router discovery and MLD messages",
		"nf_conntrack_icmpv6_error in net/netfilter/nf_conntrack_proto_icmpv6.c",
	},
	ICMPStateFollowsType: {
		"ICMPStateFollowsType",
		"of the ICMP messages, only requests are in state new or in state established of the " +
			"original direction, and only answers are in state established of the reply " +
			"direction; an error is related, or it has no connection",
		"nf_conntrack_icmp_packet and nf_conntrack_icmpv4_error in " +
			"net/netfilter/nf_conntrack_proto_icmp.c, nf_conntrack_icmpv6_packet and " +
			"nf_conntrack_icmpv6_error in net/netfilter/nf_conntrack_proto_icmpv6.c",
	},
	SocketsAfterPrerouting: {
		"SocketsAfterPrerouting",
		"a received packet has no socket at prerouting: early demux looks up its socket after " +
			"prerouting",
		"ip_rcv_finish_core in net/ipv4/ip_input.c, ip6_rcv_finish_core in net/ipv6/ip6_input.c",
	},
	TProxyAssignsSocket: {
		"TProxyAssignsSocket",
		"tproxy assigns the listener's socket to the packet; later rules see this socket, and " +
			"NAT does not remove it",
		"nf_tproxy_assign_sock in include/net/netfilter/nf_tproxy.h",
	},
	LastTProxyWins: {
		"LastTProxyWins", "if several tproxy rules match, the last one assigns the socket",
		"nf_tproxy_assign_sock in include/net/netfilter/nf_tproxy.h",
	},
	TProxyIgnoresState: {
		"TProxyIgnoresState", "tproxy applies to packets of any conntrack state and direction",
		"tproxy_tg4 in net/netfilter/xt_TPROXY.c, nft_tproxy_eval_v4 in net/netfilter/nft_tproxy.c",
	},
	TProxyNeedsTCPOrUDP: {
		"TProxyNeedsTCPOrUDP", "tproxy ends the rule for protocols other than TCP and UDP",
		"nft_tproxy_eval_v4 and nft_tproxy_eval_v6 in net/netfilter/nft_tproxy.c",
	},
	TProxyPortZeroIsDestinationPort: {
		"TProxyPortZeroIsDestinationPort",
		"tproxy with port 0 looks up a listener on the packet's destination port",
		"tproxy_tg4 in net/netfilter/xt_TPROXY.c",
	},
	SocketChangesReversePath: {
		"SocketChangesReversePath",
		"the fib expression of nft skips the reverse-path lookup for a packet on lo, unless the " +
			"packet has a socket",
		"nft_fib_can_skip in include/net/netfilter/nft_fib.h",
	},
	TProxyNeedsLocalRoute: {
		"TProxyNeedsLocalRoute",
		"a packet that tproxy assigned to a socket is dropped unless routing delivers it to this " +
			"host, even by a host that forwards",
		"ip_forward in net/ipv4/ip_forward.c, ip6_forward in net/ipv6/ip6_output.c",
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
	ListenersAreIndependent: {
		"ListenersAreIndependent",
		"tproxy looks up the listener of its own address and port; the listeners of other tproxy " +
			"rules do not affect it",
		"nf_tproxy_get_sock_v4 in net/ipv4/netfilter/nf_tproxy_ipv4.c, nf_tproxy_get_sock_v6 in " +
			"net/ipv6/netfilter/nf_tproxy_ipv6.c",
	},
	OwnerNeedsSocket: {
		"OwnerNeedsSocket",
		"nft's skuid and skgid never match a packet without a socket, even if they are negated",
		"nft_meta_get_eval_skugid in net/netfilter/nft_meta.c",
	},
	XTablesOwnerWithoutSocket: {
		"XTablesOwnerWithoutSocket",
		"the owner match of xtables matches a packet without a socket only if all conditions of " +
			"the match are negated",
		"owner_mt in net/netfilter/xt_owner.c",
	},
	KernelSocketHasNoOwner: {
		"KernelSocketHasNoOwner",
		"nft's skuid and skgid never match a packet of a socket of the kernel, such as an echo " +
			"reply; the owner match of xtables matches it if all compared ids are negated, or if " +
			"the match requires only a socket",
		"owner_mt in net/netfilter/xt_owner.c, nft_meta_get_eval_skugid in " +
			"net/netfilter/nft_meta.c",
	},
	ClosedSocketHasCgroup: {
		"ClosedSocketHasCgroup",
		"the socket of a connection that the process has closed has no owner, but it still has its " +
			"cgroup",
		"sock_orphan in include/net/sock.h, owner_mt in net/netfilter/xt_owner.c, cgroup_mt_v2 in " +
			"net/netfilter/xt_cgroup.c",
	},
	SocketMatchRestoresMark: {
		"SocketMatchRestoresMark",
		"-m socket --restore-skmark sets the packet's mark to the socket's mark before later " +
			"matches of the rule",
		"socket_match in net/netfilter/xt_socket.c",
	},
	SocketMatchLooksUpReceiver: {
		"SocketMatchLooksUpReceiver",
		"at prerouting, the socket expression of nft looks up the socket that receives the packet, " +
			"unless tproxy assigned one, and reads the flag or the cgroup of this socket",
		"nft_socket_eval and nft_socket_do_lookup in net/netfilter/nft_socket.c",
	},
	SocketMatchReadsSender: {
		"SocketMatchReadsSender",
		"at output, the socket expression of nft reads the socket that sends the packet, and looks " +
			"up no other socket",
		"nft_socket_eval and nft_socket_do_lookup in net/netfilter/nft_socket.c",
	},
	MarkChangeReroutes: {
		"MarkChangeReroutes",
		"a chain of type route, or xtables' mangle table at output, reroutes a packet whose mark " +
			"it changed; other chains do not",
		"nf_route_table_inet in net/netfilter/nft_chain_route.c, ipt_mangle_out in " +
			"net/ipv4/netfilter/iptable_mangle.c",
	},
	MarkChangeReroutesLoopback: {
		"MarkChangeReroutesLoopback",
		"a packet that was routed to lo by its mark leaves through another interface if a chain " +
			"that reroutes has changed the mark",
		"ip_route_me_harder in net/ipv4/netfilter.c, ip6_route_me_harder in net/ipv6/netfilter.c",
	},
	LinkLocalKeepsInterface: {
		"LinkLocalKeepsInterface",
		"rerouting keeps the output interface of an IPv6 packet to a link-local or multicast " +
			"address",
		"ip6_route_me_harder in net/ipv6/netfilter.c",
	},
	BoundSocketKeepsInterface: {
		"BoundSocketKeepsInterface",
		"rerouting keeps the interface to which the packet's socket is bound, even if the " +
			"destination is a local address",
		"ip_route_me_harder in net/ipv4/netfilter.c, ip6_route_me_harder in net/ipv6/netfilter.c",
	},
	SelectedInterfaceIsNotKept: {
		"SelectedInterfaceIsNotKept",
		"a packet whose sender selected the output interface for this packet (IP_PKTINFO) does not " +
			"keep this interface when it is rerouted",
		"ip_route_me_harder in net/ipv4/netfilter.c, ip6_route_me_harder in net/ipv6/netfilter.c",
	},
	HeaderChangeReroutes: {
		"HeaderChangeReroutes",
		"a chain that reroutes a packet after a change of the mark also reroutes it after a " +
			"change of the type of service or the IPv6 hop limit; the route depends on the " +
			"current mark",
		"ipt_mangle_out in net/ipv4/netfilter/iptable_mangle.c, ip6t_mangle_out in " +
			"net/ipv6/netfilter/ip6table_mangle.c, nf_route_table_inet in " +
			"net/netfilter/nft_chain_route.c",
	},
	CopiesAreRoutedToTheGateway: {
		"CopiesAreRoutedToTheGateway",
		"a copy that a rule sends by dup or TEE is routed to the gateway of the rule, whatever " +
			"the mark of the copy, and has no socket",
		"nf_dup_ipv4_route in net/ipv4/netfilter/nf_dup_ipv4.c, nf_dup_ipv6_route in " +
			"net/ipv6/netfilter/nf_dup_ipv6.c",
	},
	DNATAtOutputReroutes: {
		"DNATAtOutputReroutes",
		"DNAT at output to another address reroutes the packet with its current mark; DNAT to " +
			"another port does not",
		"nf_nat_ipv4_local_fn and nf_nat_ipv6_local_fn in net/netfilter/nf_nat_proto.c",
	},
	OutputSeesFirstInterface: {
		"OutputSeesFirstInterface",
		"rules at output see the output interface that was selected first, even after rerouting",
		"nf_hook_state in include/linux/netfilter.h",
	},
	InputInterfaceAtPostrouting: {
		"InputInterfaceAtPostrouting",
		"a packet that has no socket, such as a copy of another one, may have an input interface " +
			"at postrouting",
		"ip_output in net/ipv4/ip_output.c, ip6_output in net/ipv6/ip6_output.c, nf_dup_ipv4 in " +
			"net/ipv4/netfilter/nf_dup_ipv4.c",
	},
	EffectsBeforeFailedMatch: {
		"EffectsBeforeFailedMatch",
		"an expression takes effect even if a later expression ends the rule",
		"nft_do_chain in net/netfilter/nf_tables_core.c",
	},
	MapMissEndsRule: {
		"MapMissEndsRule", "a map lookup that finds no element ends the rule",
		"nft_lookup_eval in net/netfilter/nft_lookup.c",
	},
	VerdictEndsRule: {
		"VerdictEndsRule",
		"a verdict ends the rule: after a jump the kernel continues with the next rule, even if other " +
			"statements follow the jump, which nft accepts for a jump to a chain without a name",
		"nft_do_chain in net/netfilter/nf_tables_core.c",
	},
	OtherFamilyFailsMatch: {
		"OtherFamilyFailsMatch",
		"in an inet table, a rule that compares an address of one family does not match packets " +
			"of the other family, even if the comparison is negated, and a rule that requires " +
			"both families matches no packet",
		"nft_meta_get_eval in net/netfilter/nft_meta.c",
	},
	AuthenticationHeaderIsSkipped: {
		"AuthenticationHeaderIsSkipped",
		"in IPv6, rules of iptables-legacy compare the protocol after an authentication header, " +
			"and rules of nftables and iptables-nft compare the protocol of the header itself",
		"ip6_packet_match in net/ipv6/netfilter/ip6_tables.c, nft_set_pktinfo_ipv6 in " +
			"include/net/netfilter/nf_tables_ipv6.h",
	},
	ResetAnswersTCP: {
		"ResetAnswersTCP",
		"reject with tcp reset answers TCP packets that are not resets, and drops all other " +
			"packets without an answer",
		"nf_reject_ip_tcphdr_get in net/ipv4/netfilter/nf_reject_ipv4.c",
	},
	RejectFromLoopbackNeedsLocalSource: {
		"RejectFromLoopbackNeedsLocalSource",
		"reject answers a packet to 127.0.0.0/8 only if the source of the packet is a local " +
			"address or route_localnet is set",
		"__mkroute_output in net/ipv4/route.c",
	},
	ICMPErrorNeedsLocalSource: {
		"ICMPErrorNeedsLocalSource",
		"an ICMP error about a packet whose mark routes it to this host has the packet's " +
			"destination as its source; therefore the error is sent only if the destination is a " +
			"local address",
		"icmp_send in net/ipv4/icmp.c",
	},
	LinkLocalErrorUsesRouteInterface: {
		"LinkLocalErrorUsesRouteInterface",
		"an ICMPv6 error to a link-local address uses the interface of the rejected packet's " +
			"route, and is not sent if this interface is lo",
		"icmp6_send and icmp6_dev in net/ipv6/icmp.c",
	},
	UnspecifiedAddressIsReplaced: {
		"UnspecifiedAddressIsReplaced",
		"a socket that sends to the unspecified address sends to the loopback address, except " +
			"for a raw socket that sends to ::; if such a socket is bound to lo, rerouting drops " +
			"the packet, even after DNAT to an address that is not a loopback address",
		"rawv6_send_hdrinc in net/ipv6/raw.c, ip6_route_me_harder in net/ipv6/netfilter.c",
	},
	LoopbackTraversedOutput: {
		"LoopbackTraversedOutput",
		"a packet received on lo was sent by this host and has traversed output",
		"loopback_xmit in drivers/net/loopback.c",
	},
	LoopbackSourceIsDropped: {
		"LoopbackSourceIsDropped",
		"a packet received with a source in 127.0.0.0/8 is dropped after prerouting, regardless " +
			"of the rules, unless route_localnet is set",
		"ip_route_input_slow in net/ipv4/route.c",
	},
	IPv6LoopbackIsDroppedEarly: {
		"IPv6LoopbackIsDroppedEarly",
		"a packet received with the source or destination ::1 does not reach prerouting",
		"ip6_rcv_core in net/ipv6/ip6_input.c",
	},
	MulticastSourceIsDropped: {
		"MulticastSourceIsDropped",
		"a packet received with a multicast source is dropped, regardless of the rules: after " +
			"prerouting in IPv4, before it in IPv6",
		"ip_route_input_slow in net/ipv4/route.c, ip6_rcv_core in net/ipv6/ip6_input.c",
	},
	OnlyUnspecifiedIsTypeUnspec: {
		"OnlyUnspecifiedIsTypeUnspec",
		"in nft's fib expression only the address :: has the type unspec",
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
func (f Fact) String() string { return factTexts[f].text }

// Source returns the kernel functions that implement the fact, with their files, as of Linux 6.18.
func (f Fact) Source() string { return factTexts[f].source }

// natSkipFacts contains the reasons why a packet skips NAT chains.
var natSkipFacts = [...]Fact{
	NATDecidesOnce, ErrorsSkipNAT, UntrackedSkipsNAT, NATNeedsConntrack,
	ExpectationFollowsMaster,
}

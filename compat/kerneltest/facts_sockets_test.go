package kerneltest_test

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/rules"
)

// onLoopback is a packet that leaves by lo. The route to its source address leads to eth0.
var onLoopback = with(out(1338, rules.UDP, "11.0.0.1:29565", "10.244.1.5:15006"),
	func(p *rules.Packet) { p.OutInterface = "lo" })

// socketFacts returns facts about the sockets of packets, and about packets without a socket.
func socketFacts() (list factList) {
	list.add("SocketsAfterPrerouting",
		"nft: a packet without a socket has no user at prerouting",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "meta skuid != 0 meta mark set 9"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("TProxyAssignsSocket", "nft: after tproxy a packet has the user of the listener",
		rulesetOf(
			chains(rules.Inet,
				[]string{mangleNFT, "meta l4proto tcp tproxy to :15006 accept"},
				[]string{base("filter", "prerouting", "-140"), "meta skuid 1337 meta mark set 9"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x9 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	list.add("TProxyAssignsSocket",
		"nft: after tproxy the next rule of the chain sees the user of the listener",
		rulesetOf(
			chains(rules.Inet,
				[]string{
					mangleNFT, "meta l4proto tcp tproxy to :15006",
					"meta skuid 1337 meta mark set 9",
				},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x9 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	list.add("TProxyAssignsSocket",
		"legacy: after TPROXY a packet has the user of the listener",
		rulesetOf(
			xtables(legacy, "mangle", "PREROUTING -p tcp -j TPROXY --on-port 15006"),
			chains(rules.Inet,
				[]string{base("filter", "prerouting", "-140"), "meta skuid 1337 meta mark set 9"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x9 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	list.add("TProxyAssignsSocket",
		"legacy: a packet keeps the listener of TPROXY after REDIRECT",
		rulesetOf(
			xtables(legacy, "mangle", "PREROUTING -p tcp -j TPROXY --on-port 15006"),
			xtables(legacy, "nat", "PREROUTING -p tcp -j REDIRECT --to-ports 15001"),
		),
		syn,
		"to 10.244.1.5:15001 mark 0x0 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	list.add("LastTProxyWins", "nft: the last tproxy selects the listener",
		rulesetOf(
			chains(rules.Inet,
				[]string{
					mangleNFT, "meta l4proto tcp tproxy to :15006",
					"meta l4proto tcp tproxy to :15001",
				},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x0 with the listener of 0:1337 connection mark 0x0 zone 0",
	)
	withoutTunnel := with(syn, func(p *rules.Packet) { p.MissingListeners = "15008" })
	list.add("ListenersAreIndependent",
		"nft: a rule without a listener does not affect a later rule with one",
		rulesetOf(chains(rules.Inet, []string{
			mangleNFT, "meta l4proto tcp tproxy to :15008 accept",
			"meta l4proto tcp tproxy to :15006 accept",
		})),
		withoutTunnel,
		"to 10.244.1.5:81 mark 0x0 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	list.add("ListenersAreIndependent",
		"nft: a later rule without a listener does not remove the socket",
		rulesetOf(chains(rules.Inet, []string{
			mangleNFT, "meta l4proto tcp tproxy to :15006",
			"meta l4proto tcp tproxy to :15008 meta mark set 9",
		})),
		withoutTunnel,
		"to 10.244.1.5:81 mark 0x0 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	for _, p := range []kerneltest.Program{legacy, iptablesNFT} {
		list.add("ListenersAreIndependent",
			string(p)+": TPROXY without a listener drops the packet although another one exists",
			rulesetOf(xtables(p, "mangle", "PREROUTING -p tcp -j TPROXY --on-port 15008",
				"PREROUTING -p tcp -j TPROXY --on-port 15006")),
			withoutTunnel, "dropped",
		)
	}
	list.add("TProxyAssignsSocket", "nft: drop after tproxy drops the packet",
		rulesetOf(chains(rules.Inet, []string{
			mangleNFT, "meta l4proto tcp tproxy to :15006", "drop",
		})),
		syn, "dropped",
	)
	list.add("TProxyNeedsTCPOrUDP", "nft: tproxy of ICMP ends the rule",
		rulesetOf(
			chains(rules.Inet,
				[]string{mangleNFT, "meta l4proto { tcp, icmp } tproxy to :15006 meta mark set 9"},
			),
		),
		in("eth0", rules.ICMP, "10.9.9.9:0", "10.244.1.5:0"),
		"to 10.244.1.5:0 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("TProxyIgnoresState",
		"legacy: TPROXY selects the listener for an established packet",
		rulesetOf(xtables(legacy, "mangle",
			"PREROUTING -p tcp -j TPROXY --on-port 15006 --tproxy-mark 9")),
		with(syn, established),
		"to 10.244.1.5:81 mark 0x9 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	list.add("TProxyIgnoresState", "legacy: TPROXY selects the listener for a reply",
		rulesetOf(xtables(legacy, "mangle",
			"PREROUTING -p udp -j TPROXY --on-port 15006 --tproxy-mark 9")),
		with(with(udp, established), func(p *rules.Packet) { p.Reply = true }),
		"to 10.244.1.5:81 mark 0x9 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	list.add("TProxyIgnoresState", "nft: tproxy selects the listener for a reply",
		rulesetOf(
			chains(rules.Inet,
				[]string{mangleNFT, "meta l4proto udp tproxy to :15006 meta mark set 9"},
			),
		),
		with(with(udp, established), func(p *rules.Packet) { p.Reply = true }),
		"to 10.244.1.5:81 mark 0x9 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	list.add("TProxyIgnoresState", "nft: tproxy selects the listener for an established packet",
		rulesetOf(
			chains(rules.Inet,
				[]string{mangleNFT, "meta l4proto tcp tproxy to :15006 meta mark set 9"},
			),
		),
		with(syn, established),
		"to 10.244.1.5:81 mark 0x9 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	list.add("TProxyPortZeroIsDestinationPort",
		"legacy: TPROXY to port 0 selects the listener on the packet's port",
		rulesetOf(xtables(legacy, "mangle", "PREROUTING -p tcp -j TPROXY --on-port 0")),
		in("eth0", rules.TCP, "10.9.9.9:1000", "10.244.1.5:15006"),
		"to 10.244.1.5:15006 mark 0x0 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	list.add("TProxyPortZeroIsDestinationPort",
		"legacy: TPROXY to port 0 drops a packet whose port has no listener",
		rulesetOf(xtables(legacy, "mangle", "PREROUTING -p tcp -j TPROXY --on-port 0")),
		syn, "dropped",
	)
	list.add("TProxyAssignsSocket", "legacy: TPROXY to another address selects the listener",
		rulesetOf(xtables(legacy, "mangle",
			"PREROUTING -p tcp -j TPROXY --on-port 15006 --on-ip 127.0.0.1")),
		syn, "to 10.244.1.5:81 mark 0x0 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	list.add("SocketChangesReversePath",
		"nft: a packet on lo without a socket has a reverse path",
		rulesetOf(chains(rules.IPv4, []string{mangleNFT, "fib saddr . iif oif exists drop"})),
		onLoopback, "dropped",
	)
	list.add("SocketChangesReversePath",
		"nft: a packet on lo that has a socket has no reverse path",
		rulesetOf(chains(rules.IPv4, []string{
			mangleNFT, "meta l4proto { tcp, udp } tproxy to :9090",
			"fib saddr . iif oif exists drop",
		})),
		onLoopback,
		"to 10.244.1.5:15006 mark 0x0 with the listener of 1000:0 connection mark 0x0 zone 0",
	)
	toListener := in("eth0", rules.TCP, "10.9.9.9:1000", "10.244.1.5:15006")
	toListener.TransparentSocket = true
	list.add("SocketMatchLooksUpReceiver",
		"nft: at prerouting, a packet to a transparent listener has a transparent socket",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "socket transparent 1 meta mark set 9"})),
		toListener, "to 10.244.1.5:15006 mark 0x9 connection mark 0x0 zone 0",
	)
	list.add("SocketMatchLooksUpReceiver",
		"nft: at prerouting, a packet to a port without a listener has no socket",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "socket transparent 1 meta mark set 9"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	readsTransparent := chains(rules.Inet,
		[]string{base("filter", "output", "-150"), "socket transparent 1 meta mark set meta mark or 9"},
		[]string{mangleNFT, "socket transparent 1 meta mark set meta mark or 0x10"},
	)
	fromTransparent := with(outgoing, func(p *rules.Packet) { p.TransparentSender = true })
	list.add("SocketMatchReadsSender", "nft: at output, a packet of a transparent socket matches",
		rulesetOf(readsTransparent), fromTransparent,
		"to 10.9.9.9:80 mark 0x9 connection mark 0x0 zone 0",
	)
	list.add("SocketMatchReadsSender", "nft: at output, a packet of another socket does not match",
		rulesetOf(readsTransparent), outgoing,
		"to 10.9.9.9:80 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("SocketMatchReadsSender",
		"nft: the sender of a packet on lo is transparent, and not its receiver",
		rulesetOf(readsTransparent),
		with(out(0, rules.TCP, "10.244.1.5:1000", "10.244.1.5:80"), func(p *rules.Packet) {
			p.OutInterface, p.TransparentSender = "lo", true
		}), "to 10.244.1.5:80 mark 0x9 connection mark 0x0 zone 0",
	)
	list.add("SocketMatchReadsSender",
		"nft: the receiver of a packet on lo is transparent, and not its sender",
		rulesetOf(readsTransparent),
		with(out(0, rules.TCP, "10.244.1.5:1000", "10.244.1.5:15006"), func(p *rules.Packet) {
			p.OutInterface, p.TransparentSocket = "lo", true
		}), "to 10.244.1.5:15006 mark 0x10 connection mark 0x0 zone 0",
	)
	list.add("SocketMatchReadsSender", "nft: at output, a packet without a socket does not match",
		rulesetOf(readsTransparent),
		with(outgoing, func(p *rules.Packet) {
			p.Owner, p.State, p.TransparentSocket = nil, rules.Untracked, true
		}), "to 10.9.9.9:80 mark 0x0 untracked",
	)
	list.add("TProxyIgnoresState",
		"nft: tproxy in raw selects the listener for a packet that is invalid there",
		rulesetOf(chains(rules.Inet, []string{
			rawNFT,
			"meta l4proto tcp tproxy to :15006 meta mark set 9",
		})),
		syn, "to 10.244.1.5:81 mark 0x9 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	list.add("TProxyIgnoresState", "legacy: TPROXY selects the listener for a packet on lo",
		rulesetOf(xtables(legacy, "mangle",
			"PREROUTING -p tcp -j TPROXY --on-port 15006 --tproxy-mark 9")),
		out(0, rules.TCP, "10.244.1.5:1000", "10.1.2.3:80"),
		"to 10.1.2.3:80 mark 0x9 with the listener of 1337:1337 connection mark 0x0 zone 0",
	)
	for _, p := range []kerneltest.Program{legacy, iptablesNFT} {
		list = append(list, factTest{
			fact: "NoListenerDrops",
			name: string(p) + ": TPROXY without a listener drops the packet",
			ruleset: rulesetOf(xtables(p, "mangle",
				"PREROUTING -p tcp -j TPROXY --on-port 15006 --tproxy-mark 9")),
			packet: syn, want: "dropped",
		})
	}
	list = append(list, factTest{
		fact: "NoListenerEndsRule", name: "nft: tproxy without a listener ends the rule",
		ruleset: rulesetOf(chains(rules.Inet, []string{
			mangleNFT,
			"meta l4proto tcp tproxy to :15006 meta mark set 9 accept", "meta mark set 7",
		})), packet: syn, want: "to 10.244.1.5:81 mark 0x7 connection mark 0x0 zone 0",
	})
	socketless := with(out(0, rules.TCP, "10.244.1.5:1000", "10.9.9.9:80"),
		func(p *rules.Packet) { p.Owner, p.State = nil, rules.Untracked })
	for _, p := range []kerneltest.Program{legacy, iptablesNFT} {
		name := string(p)
		list.add("XTablesOwnerWithoutSocket", name+": a negated user matches without a socket",
			rulesetOf(xtables(p, "mangle",
				"OUTPUT -m owner ! --uid-owner 1337 -j MARK --set-mark 9")),
			socketless, "to 10.9.9.9:80 mark 0x9 untracked",
		)
		list.add("XTablesOwnerWithoutSocket", name+": a negated group matches without a socket",
			rulesetOf(xtables(p, "mangle",
				"OUTPUT -m owner ! --gid-owner 1337 -j MARK --set-mark 9")),
			socketless, "to 10.9.9.9:80 mark 0x9 untracked",
		)
		list.add("XTablesOwnerWithoutSocket",
			name+": a user and a negated group do not match without a socket",
			rulesetOf(
				xtables(p, "mangle",
					"OUTPUT -m owner --uid-owner 1337 ! --gid-owner 1337 -j MARK --set-mark 9",
				),
			),
			socketless, "to 10.9.9.9:80 mark 0x0 untracked",
		)
		list.add("XTablesOwnerWithoutSocket",
			name+": a negated user and a negated group match without a socket",
			rulesetOf(
				xtables(p, "mangle",
					"OUTPUT -m owner ! --uid-owner 1337 ! --gid-owner 1337 -j MARK --set-mark 9",
				),
			),
			socketless, "to 10.9.9.9:80 mark 0x9 untracked",
		)
		list.add("XTablesOwnerWithoutSocket",
			name+": --socket-exists does not match without a socket",
			rulesetOf(xtables(p, "mangle", "OUTPUT -m owner --socket-exists -j MARK --set-mark 9")),
			socketless, "to 10.9.9.9:80 mark 0x0 untracked",
		)
		list.add("XTablesOwnerWithoutSocket",
			name+": negated --socket-exists matches without a socket",
			rulesetOf(xtables(p, "mangle",
				"OUTPUT -m owner ! --socket-exists -j MARK --set-mark 9")),
			socketless, "to 10.9.9.9:80 mark 0x9 untracked",
		)
		list.add("XTablesOwnerWithoutSocket",
			name+": negated --socket-exists does not match with a socket",
			rulesetOf(xtables(p, "mangle",
				"OUTPUT -m owner ! --socket-exists -j MARK --set-mark 9")),
			outgoing, "to 10.9.9.9:80 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add("XTablesOwnerWithoutSocket",
			name+": --socket-exists and a user match with a socket",
			rulesetOf(
				xtables(p, "mangle",
					"OUTPUT -m owner --socket-exists --uid-owner 0 -j MARK --set-mark 9",
				),
			),
			outgoing, "to 10.9.9.9:80 mark 0x9 connection mark 0x0 zone 0",
		)
		list.add("XTablesOwnerWithoutSocket",
			name+": negated --socket-exists and a negated user match without a socket",
			rulesetOf(
				xtables(p, "mangle",
					"OUTPUT -m owner ! --socket-exists ! --uid-owner 0 -j MARK --set-mark 9",
				),
			),
			socketless, "to 10.9.9.9:80 mark 0x9 untracked",
		)
	}
	copied := with(socketless, func(p *rules.Packet) {
		p.Destination, p.OutInterface = netip.MustParseAddrPort("10.244.1.5:80"), "lo"
	})
	list.add("InputInterfaceAtPostrouting",
		"at postrouting, a copy that leaves by lo has the input interface lo",
		rulesetOf(chains(rules.Inet, []string{
			base("filter", "postrouting", "0"), `iifname "lo" meta mark set 9`,
		})),
		copied, "to 10.244.1.5:80 mark 0x9 untracked",
	)
	list.add("InputInterfaceAtPostrouting",
		"at postrouting, a packet of a socket that leaves by lo has no input interface",
		rulesetOf(chains(rules.Inet, []string{
			base("filter", "postrouting", "0"), `iifname "lo" meta mark set 9`,
		})),
		with(outgoing, func(p *rules.Packet) { p.Mark = kerneltest.LocalMark }),
		"to 10.9.9.9:80 mark 0x539 connection mark 0x0 zone 0",
	)
	list.add("OwnerNeedsSocket", "nft: a negated user does not match without a socket",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("filter", "output", "-150"), "meta skuid != 1337 meta mark set 9"},
			),
		),
		socketless, "to 10.9.9.9:80 mark 0x0 untracked",
	)
	list.add("EntersUntracked",
		"legacy: in raw a packet that enters untracked is not invalid",
		rulesetOf(xtables(legacy, "raw",
			"OUTPUT -m conntrack --ctstate INVALID -j MARK --set-mark 9")),
		socketless, "to 10.9.9.9:80 mark 0x0 untracked",
	)
	list.add("EntersUntracked",
		"legacy: in raw a packet that enters untracked is untracked",
		rulesetOf(xtables(legacy, "raw",
			"OUTPUT -m conntrack --ctstate UNTRACKED -j MARK --set-mark 9")),
		socketless, "to 10.9.9.9:80 mark 0x9 untracked",
	)
	list.add("EntersUntracked", "nft: in raw a packet that enters untracked is untracked",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("filter", "output", "-300"), "ct state untracked meta mark set 9"},
			),
		),
		socketless, "to 10.9.9.9:80 mark 0x9 untracked",
	)
	list.add("EntersUntracked", "legacy: a zone has no effect on a packet that enters untracked",
		rulesetOf(xtables(legacy, "raw", "OUTPUT -j CT --zone 5")),
		socketless, "to 10.9.9.9:80 mark 0x0 untracked",
	)
	list.add("EntersUntracked",
		"nft: a zone makes conntrack track a packet that enters untracked",
		rulesetOf(chains(rules.Inet, []string{base("filter", "output", "-300"), "ct zone set 5"})),
		socketless, "to 10.9.9.9:80 mark 0x0 connection mark 0x0 zone 5",
	)
	return list
}

package kerneltest_test

import (
	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/rules"
)

// redirectionFacts returns facts about the destinations of redirections.
func redirectionFacts() (list factList) {
	redirect := rulesetOf(xtables(legacy, "nat", "PREROUTING -p tcp -j REDIRECT --to-ports 15006"))
	redirect6 := rulesetOf(chains(rules.Inet, []string{
		base("nat", "prerouting", "-100"),
		"meta l4proto tcp redirect to :15006",
	}))
	list.add("RedirectTakesFirstAddress",
		"a redirection goes to the first address of the interface",
		redirect,
		in("eth0", rules.TCP, "10.9.9.9:1000", "10.1.2.3:80"),
		"to 10.244.1.5:15006 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("RedirectWithoutAddressDrops",
		"a redirection on an interface without an address drops the packet",
		redirect,
		in("eth2", rules.TCP, "10.9.9.9:1000", "10.1.2.3:80"), "dropped",
	)
	list.add("RedirectTakesFirstAddress", "a redirection of IPv6 goes to the address added last",
		redirect6,
		in("eth0", rules.TCP, "[2001:db8::9]:1000", "[fd00:10:244:1::5]:80"),
		"to [fd00:1::2]:15006 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("RedirectMatchesScope", "a redirection of a packet to ::6 drops the packet",
		redirect6,
		in("eth0", rules.TCP, "[2001:db8::9]:1000", "[::6]:80"), "dropped",
	)
	list.add("RedirectMatchesScope",
		"a redirection of a packet to a link-local address goes to such an address",
		redirect6,
		in("eth0", rules.TCP, "[2001:db8::9]:1000", "[fe80::1]:80"),
		"to [fe80::5]:15006 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("RedirectWithoutAddressDrops",
		"a redirection of IPv6 on an interface without an address drops the packet",
		redirect6,
		in("eth2", rules.TCP, "[2001:db8::9]:1000", "[fd00:10:244:1::5]:80"), "dropped",
	)
	list.add("RedirectMatchesScope",
		"a redirection of a packet to a site-local address drops the packet",
		redirect6,
		in("eth0", rules.TCP, "[2001:db8::9]:1000", "[fec0::1]:80"), "dropped",
	)
	list.add("RedirectTakesFirstAddress", "a redirection without a port keeps the port",
		rulesetOf(xtables(legacy, "nat", "PREROUTING -j REDIRECT")),
		in("eth0", rules.TCP, "10.9.9.9:1000", "10.1.2.3:80"),
		"to 10.244.1.5:80 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("RedirectTakesFirstAddress", "a redirection of ICMP goes to the first address",
		rulesetOf(xtables(legacy, "nat", "PREROUTING -j REDIRECT")),
		in("eth0", rules.ICMP, "10.9.9.9:0", "10.1.2.3:0"),
		"to 10.244.1.5:0 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("RedirectTakesFirstAddress",
		"a redirection of protocol 253 goes to the first address",
		rulesetOf(xtables(legacy, "nat", "PREROUTING -j REDIRECT")),
		in("eth0", 253, "10.9.9.9:0", "10.1.2.3:0"),
		"to 10.244.1.5:0 mark 0x0 connection mark 0x0 zone 0",
	)
	for _, c := range []struct{ name, to, want string }{
		{
			"keeps a port of the range", "127.0.0.1:443",
			"to 127.0.0.1:443 mark 0x0 connection mark 0x0 zone 0",
		},
		{
			"changes another port", "127.0.0.1:80",
			"to 127.0.0.1:90 mark 0x9 connection mark 0x0 zone 0",
		},
	} {
		list.add("PortInRangeIsKept",
			"a redirection to a range of ports "+c.name,
			kerneltest.Ruleset{
				xtables(legacy, "nat", "OUTPUT -p tcp -j REDIRECT --to-ports 90-443"),
				chains(rules.Inet, []string{
					base("filter", "prerouting", "-150"), "ct status dnat meta mark set 9",
				}),
			},
			out(0, rules.TCP, "10.244.1.5:1000", c.to), c.want,
		)
	}
	list.add("RedirectAtOutputIsLoopback", "a redirection of ICMP at output goes to 127.0.0.1",
		rulesetOf(xtables(legacy, "nat", "OUTPUT -j REDIRECT")),
		out(0, rules.ICMP, "10.244.1.5:0", "10.9.9.9:0"),
		"to 127.0.0.1:0 mark 0x0 rerouted connection mark 0x0 zone 0",
	)
	return list
}

// natFacts returns facts about which packets enter NAT chains, and about the second pass of
// packets on lo.
func natFacts() (list factList) {
	for _, p := range []kerneltest.Program{legacy, iptablesNFT} {
		list.add("ErrorsSkipNAT", string(p)+": ICMP errors do not enter NAT",
			rulesetOf(xtables(p, "nat", "PREROUTING -j MARK --set-mark 9")),
			with(in("eth0", rules.ICMP, "10.9.9.9:0", "10.244.1.5:0"), related),
			"to 10.244.1.5:0 mark 0x0 connection mark 0x0 zone 0",
		)
	}
	list.add("ErrorsSkipNAT", "nft: ICMP errors do not enter NAT",
		rulesetOf(chains(rules.Inet, []string{
			base("nat", "prerouting", "-100") + " policy drop;",
		})),
		with(in("eth0", rules.ICMP, "10.9.9.9:0", "10.244.1.5:0"), related),
		"to 10.244.1.5:0 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("ErrorsSkipNAT", "nft: echo requests enter NAT",
		rulesetOf(chains(rules.Inet, []string{
			base("nat", "prerouting", "-100") + " policy drop;",
		})),
		in("eth0", rules.ICMP, "10.9.9.9:0", "10.244.1.5:0"), "dropped",
	)
	list.add("NATDecidesOnce",
		"nft: the first packet of a connection, sent again, does not enter NAT",
		rulesetOf(chains(rules.Inet, []string{
			base("nat", "prerouting", "-100") + " policy drop;",
		})),
		with(udp, func(p *rules.Packet) { p.Status = rules.StatusConfirmed }),
		"to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	for _, to := range []string{"10.0.2.8", "10.0.2.8-10.0.2.9"} {
		list.add("OtherFamilyFailsMatch", "nft: NAT to "+to+" does not change an IPv6 packet",
			rulesetOf(chains(rules.Inet, []string{
				base("nat", "postrouting", "100") + " policy drop;", "snat ip to " + to,
			})),
			out(0, rules.TCP, "[fd00:10:244:1::5]:1000", "[2001:db8::9]:80"), "dropped",
		)
	}
	list.add("UntrackedSkipsNAT", "nft: invalid packets do not enter NAT",
		rulesetOf(chains(rules.Inet, []string{
			base("nat", "prerouting", "-100") + " policy drop;",
		})),
		with(syn, func(p *rules.Packet) { p.Flags, p.State = rules.RST, rules.Invalid }),
		"to 10.244.1.5:81 mark 0x0",
	)
	list.add("UntrackedSkipsNAT", "nft: untracked packets do not enter NAT",
		rulesetOf(
			chains(rules.Inet,
				[]string{rawNFT, "notrack"},
				[]string{base("nat", "prerouting", "-100") + " policy drop;"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x0 untracked",
	)
	list.add("NATDecidesOnce",
		"a packet that was redirected at output does not enter NAT at prerouting",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("nat", "output", "-100"), "meta l4proto tcp redirect to :15001"},
				[]string{base("nat", "prerouting", "-100") + " policy drop;"},
			),
		),
		out(0, rules.TCP, "10.244.1.5:1000", "10.9.9.9:80"),
		"to 127.0.0.1:15001 mark 0x0 rerouted connection mark 0x0 zone 0",
	)
	list.add("NATDecidesOnce", "a packet to lo does not enter NAT at prerouting",
		rulesetOf(chains(rules.Inet, []string{
			base("nat", "prerouting", "-100") + " policy drop;",
		})),
		out(0, rules.TCP, "10.244.1.5:1000", "10.1.2.3:80"),
		"to 10.1.2.3:80 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("NATDecidesOnce",
		"a packet to lo does not enter NAT at prerouting, with a NAT chain at output",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("nat", "output", "-100"), "accept"},
				[]string{base("nat", "prerouting", "-100") + " policy drop;"},
			),
		),
		out(0, rules.TCP, "10.244.1.5:1000", "10.1.2.3:80"),
		"to 10.1.2.3:80 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("LoopbackKeepsConnection",
		"an untracked packet to lo is still untracked at prerouting",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("filter", "output", "-300"), "notrack"},
				[]string{base("nat", "prerouting", "-100") + " policy drop;"},
			),
		),
		out(0, rules.TCP, "10.244.1.5:1000", "10.1.2.3:80"), "to 10.1.2.3:80 mark 0x0 untracked",
	)
	list.add("LoopbackKeepsConnection", "an invalid packet to lo is still invalid at prerouting",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("filter", "prerouting", "-150"), "ct state invalid meta mark set 9"},
			),
		),
		with(out(0, rules.TCP, "10.244.1.5:1000", "10.1.2.3:80"), func(p *rules.Packet) {
			p.Flags, p.State = rules.RST, rules.Invalid
		}),
		"to 10.1.2.3:80 mark 0x9",
	)
	list.add("LoopbackKeepsConnection",
		"a zone has no effect on a packet on lo that has a connection",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct zone set 5"})),
		out(0, rules.TCP, "10.244.1.5:1000", "10.1.2.3:80"),
		"to 10.1.2.3:80 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("LoopbackKeepsConnection", "in raw on lo the connection exists",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct state new meta mark set 9"})),
		out(0, rules.TCP, "10.244.1.5:1000", "10.1.2.3:80"),
		"to 10.1.2.3:80 mark 0x9 connection mark 0x0 zone 0",
	)
	list.add("LoopbackKeepsConnection",
		"notrack has no effect on a packet on lo that has a connection",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "notrack"})),
		out(0, rules.TCP, "10.244.1.5:1000", "10.1.2.3:80"),
		"to 10.1.2.3:80 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("LoopbackKeepsConnection",
		"in raw on lo, after a zone at output, the connection exists",
		rulesetOf(
			xtables(legacy, "raw",
				"OUTPUT -j CT --zone 5",
				"PREROUTING -m connmark --mark 7 -j MARK --set-mark 9",
			),
		),
		with(with(out(0, rules.TCP, "10.244.1.5:1000", "10.1.2.3:80"), established),
			func(p *rules.Packet) { p.ConntrackMark = 7 }),
		"to 10.1.2.3:80 mark 0x9 connection mark 0x7 zone 5",
	)
	list.add("LoopbackKeepsConnection",
		"in raw on lo, after a zone and a redirection at output, the status is DNAT",
		rulesetOf(
			xtables(legacy, "raw",
				"OUTPUT -j CT --zone 5",
				"PREROUTING -m conntrack --ctstate DNAT -j MARK --set-mark 9",
			),
			xtables(legacy, "nat", "OUTPUT -p tcp -j REDIRECT --to-ports 15001"),
		),
		out(0, rules.TCP, "10.244.1.5:1000", "10.9.9.9:80"),
		"to 127.0.0.1:15001 mark 0x9 rerouted connection mark 0x0 zone 5",
	)
	list.add("LoopbackConfirms",
		"on lo the connection of a new packet is confirmed at prerouting",
		rulesetOf(
			xtables(legacy, "raw",
				"PREROUTING -m conntrack --ctstatus CONFIRMED -j MARK --set-mark 9"),
		),
		out(0, rules.TCP, "10.244.1.5:1000", "10.1.2.3:80"),
		"to 10.1.2.3:80 mark 0x9 connection mark 0x0 zone 0",
	)
	list.add("LoopbackConfirms", "at output the connection of a new packet is not confirmed",
		rulesetOf(xtables(legacy, "mangle",
			"OUTPUT -m conntrack --ctstatus CONFIRMED -j MARK --set-mark 9")),
		out(0, rules.TCP, "10.244.1.5:1000", "10.1.2.3:80"),
		"to 10.1.2.3:80 mark 0x0 connection mark 0x0 zone 0",
	)
	return list
}

// natOrderFacts returns facts about the order of NAT chains.
func natOrderFacts() (list factList) {
	list.add("FirstNATMapping", "the first NAT chain that translates determines the destination",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("nat", "output", "-90"), "meta l4proto tcp redirect to :15001"},
				[]string{base("nat", "output", "-110"), "meta l4proto tcp redirect to :15006"},
			),
		),
		out(0, rules.TCP, "10.244.1.5:1000", "10.9.9.9:80"),
		"to 127.0.0.1:15006 mark 0x0 rerouted connection mark 0x0 zone 0",
	)
	list.add("FirstNATMapping", "a NAT chain after one that accepts still runs",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("nat", "output", "-90"), "meta l4proto tcp redirect to :15001"},
				[]string{base("nat", "output", "-110"), "accept"},
			),
		),
		out(0, rules.TCP, "10.244.1.5:1000", "10.9.9.9:80"),
		"to 127.0.0.1:15001 mark 0x0 rerouted connection mark 0x0 zone 0",
	)
	list.add("FirstNATMapping", "a NAT chain after one that translates does not run",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("nat", "output", "-90"), "meta mark set 9"},
				[]string{base("nat", "output", "-110"), "meta l4proto tcp redirect to :15006"},
			),
		),
		out(0, rules.TCP, "10.244.1.5:1000", "10.9.9.9:80"),
		"to 127.0.0.1:15006 mark 0x0 rerouted connection mark 0x0 zone 0",
	)
	list.add("NATRunsTogether",
		"a NAT chain at priority 0 runs before a filter chain at priority -50",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("nat", "output", "0"), "meta l4proto tcp redirect to :15001"},
				[]string{base("filter", "output", "-50"), "tcp dport 15001 meta mark set 9"},
			),
		),
		out(0, rules.TCP, "10.244.1.5:1000", "10.9.9.9:80"),
		"to 127.0.0.1:15001 mark 0x9 rerouted connection mark 0x0 zone 0",
	)
	return list
}

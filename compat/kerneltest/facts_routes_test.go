package kerneltest_test

import (
	"fmt"

	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/rules"
)

// routeFacts returns facts about interfaces and about routes that a mark or a translation changes.
func routeFacts() (list factList) {
	list.add("LinkLocalKeepsInterface",
		"a mark does not reroute an IPv6 packet to a link-local address",
		rulesetOf(chains(rules.Inet, []string{
			base("route", "output", "-150"), "meta mark set 0x539",
		})),
		out(0, rules.TCP, "[fd00:1::2]:1000", "[fe80::9]:80"),
		"to [fe80::9]:80 mark 0x539 connection mark 0x0 zone 0",
	)
	list.add("MarkChangeReroutes", "a mark reroutes an IPv6 packet to a global address",
		rulesetOf(chains(rules.Inet, []string{
			base("route", "output", "-150"), "meta mark set 0x539",
		})),
		out(0, rules.TCP, "[fd00:1::2]:1000", "[2001:db8::9]:80"),
		"to [2001:db8::9]:80 mark 0x539 rerouted connection mark 0x0 zone 0",
	)
	for _, p := range []kerneltest.Program{legacy, iptablesNFT} {
		for target, rerouted := range map[string]string{
			"-j TOS --set-tos 4": " rerouted", "-j DSCP --set-dscp 1": " rerouted",
			"-j TTL --ttl-set 5":                 "",
			"-p tcp --syn -j TCPMSS --set-mss 9": "", "-j CHECKSUM --checksum-fill": "",
			"-j CLASSIFY --set-class 1:1": "",
		} {
			list.add("HeaderChangeReroutes",
				fmt.Sprintf("%s: a marked packet whose header is changed by %s", p, target),
				rulesetOf(
					xtables(p, "raw", "OUTPUT -j MARK --set-mark 0x539"),
					xtables(p, "mangle", "OUTPUT "+target),
				),
				outgoing, "to 10.9.9.9:80 mark 0x539"+rerouted+" connection mark 0x0 zone 0",
			)
			list.add("HeaderChangeReroutes",
				fmt.Sprintf("%s: a packet whose header is changed by %s", p, target),
				rulesetOf(
					xtables(p, "mangle", "OUTPUT "+target, "OUTPUT -j CONNMARK --set-mark 9"),
				),
				outgoing, "to 10.9.9.9:80 mark 0x0 connection mark 0x9 zone 0",
			)
		}
	}
	markedCopy := outgoing
	markedCopy.Owner, markedCopy.Mark, markedCopy.State = nil, 0x539, rules.Untracked
	for target, end := range map[string]string{
		"-j TOS --set-tos 4":          "mark 0x539 rerouted untracked",
		"-j CLASSIFY --set-class 1:1": "mark 0x539 untracked",
	} {
		list.add("CopiesAreRoutedToTheGateway",
			"a copy whose mark leads to lo, but whose gateway leads to eth0, with "+target,
			rulesetOf(xtables(legacy, "mangle", "OUTPUT "+target)),
			markedCopy, "to 10.9.9.9:80 "+end,
		)
	}
	for statement, rerouted := range map[string]string{
		"ip dscp set 1": " rerouted", "ip ecn set ce": " rerouted", "ip ttl set 5": "",
		"tcp option maxseg size set 9": "",
	} {
		for mark, end := range map[string]string{
			"0x539": "mark 0x539" + rerouted, "0x0": "mark 0x0",
		} {
			list.add("HeaderChangeReroutes",
				fmt.Sprintf("nft: a packet with mark %s whose header is changed by %s", mark,
					statement),
				rulesetOf(
					chains(rules.Inet,
						[]string{base("filter", "output", "-300"), "meta mark set " + mark},
						[]string{base("route", "output", "-150"), statement, "ct mark set 9"},
					),
				),
				outgoing, "to 10.9.9.9:80 "+end+" connection mark 0x9 zone 0",
			)
		}
	}
	list.add("OutputSeesFirstInterface",
		"a packet that is redirected at output keeps its interface in later chains",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("nat", "output", "-100"), "meta l4proto tcp redirect to :15001"},
				[]string{base("filter", "output", "0"), `oifname "eth0" meta mark set 9`},
			),
		),
		outgoing, "to 127.0.0.1:15001 mark 0x9 rerouted connection mark 0x0 zone 0",
	)
	list.add("OutputSeesFirstInterface",
		"a packet that is translated at output to a local address keeps its interface",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("nat", "output", "-100"), "meta l4proto tcp dnat ip to 10.1.2.3:80"},
				[]string{base("filter", "output", "0"), `oifname "eth0" meta mark set 9`},
			),
		),
		outgoing, "to 10.1.2.3:80 mark 0x9 rerouted connection mark 0x0 zone 0",
	)
	list.add("DNATAtOutputReroutes",
		"a packet that is translated at output to another host is routed after output",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("nat", "output", "-100"), "meta l4proto tcp dnat ip to 10.0.2.2:80"},
				[]string{base("filter", "output", "0"), `oifname "eth1" meta mark set 9`},
			),
		),
		outgoing, "to 10.0.2.2:80 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("MarkChangeReroutes", "legacy: a mark in mangle reroutes the packet",
		rulesetOf(
			xtables(legacy, "mangle", "OUTPUT -j MARK --set-mark 0x539"),
			xtables(legacy, "filter", "OUTPUT -o eth0 -j MARK --set-mark 9"),
		),
		outgoing, "to 10.9.9.9:80 mark 0x9 rerouted connection mark 0x0 zone 0",
	)
	list.add("MarkChangeReroutes", "legacy: a mark in raw does not reroute the packet",
		rulesetOf(xtables(legacy, "raw", "OUTPUT -j MARK --set-mark 0x539")),
		outgoing, "to 10.9.9.9:80 mark 0x539 connection mark 0x0 zone 0",
	)
	list.add("MarkChangeReroutes", "legacy: mangle changes a mark from raw and reroutes the packet",
		rulesetOf(
			xtables(legacy, "raw", "OUTPUT -j MARK --set-mark 0x538"),
			xtables(legacy, "mangle", "OUTPUT -j MARK --or-mark 1"),
		),
		outgoing, "to 10.9.9.9:80 mark 0x539 rerouted connection mark 0x0 zone 0",
	)
	list.add("DNATAtOutputReroutes",
		"legacy: a mark in raw and a translation to another host reroute the packet",
		rulesetOf(
			xtables(legacy, "raw", "OUTPUT -j MARK --set-mark 0x539"),
			xtables(legacy, "nat", "OUTPUT -p tcp -j DNAT --to-destination 10.0.2.2"),
		),
		outgoing, "to 10.0.2.2:80 mark 0x539 rerouted connection mark 0x0 zone 0",
	)
	list.add("DNATAtOutputReroutes",
		"legacy: a mark in raw and a translation of the port do not reroute the packet",
		rulesetOf(
			xtables(legacy, "raw", "OUTPUT -j MARK --set-mark 0x539"),
			xtables(legacy, "nat", "OUTPUT -p tcp -j DNAT --to-destination :81"),
		),
		outgoing, "to 10.9.9.9:81 mark 0x539 connection mark 0x0 zone 0",
	)
	list.add("DNATAtOutputReroutes",
		"a translation reroutes the packet by its current mark, not by a later one",
		rulesetOf(chains(rules.Inet,
			[]string{base("nat", "output", "-100"), "meta l4proto tcp dnat ip to 10.0.2.2:80"},
			[]string{base("filter", "output", "0"), "meta mark set 0x539"},
			[]string{base("filter", "prerouting", "-150"), "drop"},
		)),
		outgoing, "to 10.0.2.2:80 mark 0x539 connection mark 0x0 zone 0",
	)
	list.add("MarkChangeReroutes", "legacy: a mark in filter does not reroute the packet",
		rulesetOf(xtables(legacy, "filter", "OUTPUT -j MARK --set-mark 0x539")),
		outgoing, "to 10.9.9.9:80 mark 0x539 connection mark 0x0 zone 0",
	)
	list.add("MarkChangeReroutes", "nft: a mark in a filter chain does not reroute the packet",
		rulesetOf(chains(rules.Inet, []string{
			base("filter", "output", "-150"), "meta mark set 0x539",
		})),
		outgoing, "to 10.9.9.9:80 mark 0x539 connection mark 0x0 zone 0",
	)
	list.add("MarkChangeReroutes", "nft: a mark in a route chain reroutes the packet",
		rulesetOf(chains(rules.Inet, []string{
			base("route", "output", "-150"), "meta mark set 0x539",
		})),
		outgoing, "to 10.9.9.9:80 mark 0x539 rerouted connection mark 0x0 zone 0",
	)
	list.add("MarkChangeReroutes",
		"nft: a mark set in a route chain and cleared in a filter chain reroutes the packet",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("route", "output", "-150"), "meta mark set 0x539"},
				[]string{base("filter", "output", "0"), "meta mark set 0"},
			),
		),
		outgoing, "to 10.9.9.9:80 mark 0x0 rerouted connection mark 0x0 zone 0",
	)
	list.add("MarkChangeReroutes", "nft: the last of two route chains determines the route",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("route", "output", "-150"), "meta mark set 0x539"},
				[]string{base("route", "output", "0"), "meta mark set 0x1"},
			),
		),
		outgoing, "to 10.9.9.9:80 mark 0x1 connection mark 0x0 zone 0",
	)
	list.add("MarkChangeReroutes",
		"nft: a mark set before a route chain that changes nothing does not reroute the packet",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("filter", "output", "-150"), "meta mark set 0x539"},
				[]string{base("route", "output", "0"), "accept"},
			),
		),
		outgoing, "to 10.9.9.9:80 mark 0x539 connection mark 0x0 zone 0",
	)
	list.add("RedirectAtOutputIsLoopback", "nft: a rerouted packet is redirected to 127.0.0.1",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("route", "output", "-150"), "meta mark set 0x539"},
				[]string{base("nat", "output", "-100"), "meta l4proto tcp redirect to :15001"},
			),
		),
		outgoing, "to 127.0.0.1:15001 mark 0x539 rerouted connection mark 0x0 zone 0",
	)
	list.add("MarkChangeReroutes", "nft: a rerouted packet enters prerouting",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("route", "output", "-150"), "meta mark set 0x539"},
				[]string{mangleNFT, "drop"},
			),
		),
		outgoing, "dropped",
	)
	list.add("NATDecidesOnce", "nft: a rerouted packet does not enter NAT at prerouting",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("route", "output", "-150"), "meta mark set 0x539"},
				[]string{base("nat", "prerouting", "-100"), "meta l4proto tcp redirect to :15001"},
			),
		),
		outgoing, "to 10.9.9.9:80 mark 0x539 rerouted connection mark 0x0 zone 0",
	)
	bound := with(outgoing, func(p *rules.Packet) { p.Bound, p.OutInterface = true, "eth1" })
	list.add("BoundSocketKeepsInterface",
		"a packet that is redirected at output leaves by the interface of its bound socket",
		rulesetOf(chains(rules.Inet, []string{
			base("nat", "output", "-100"), "meta l4proto tcp redirect to :15001",
		})),
		bound, "to 127.0.0.1:15001 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("BoundSocketKeepsInterface",
		"a packet that is translated to a loopback address leaves by the interface of its "+
			"bound socket",
		rulesetOf(chains(rules.Inet,
			[]string{base("nat", "output", "-100"), "dnat ip to 127.0.0.6"},
			[]string{base("filter", "prerouting", "-95"), "meta l4proto tcp drop"},
		)),
		bound, "to 127.0.0.6:80 mark 0x0 connection mark 0x0 zone 0",
	)
	for _, c := range []struct{ source, want string }{
		{"[::]:0", "dropped"},
		{"[2001:db8::1]:0", "to [2001:db8::10]:0 mark 0x0 connection mark 0x0 zone 0"},
	} {
		list.add("OnlyUnspecifiedIsTypeUnspec", "nft: the type of the source "+c.source,
			rulesetOf(chains(rules.Inet, []string{
				base("filter", "output", "0"), "fib saddr type unspec drop",
			})),
			out(0, rules.Protocol(254), c.source, "[2001:db8::10]:0"), c.want,
		)
	}
	for _, c := range []struct{ mark, to, want string }{
		{"7", "[::]:8080", "dropped"},
		{"0x539", "[::]:8080", "to [::]:8080 mark 0x539 connection mark 0x0 zone 0"},
		{"7", "0.0.0.0:8080", "to 0.0.0.0:8080 mark 0x7 connection mark 0x0 zone 0"},
	} {
		from := "10.244.1.5:40000"
		if c.to[0] == '[' {
			from = "[fd00:10:244:1::5]:40000"
		}
		list.add("UnspecifiedAddressIsReplaced",
			"a packet to "+c.to+" of a socket bound to lo, with mark "+c.mark,
			rulesetOf(chains(rules.Inet, []string{
				base("route", "output", "-150"), "meta mark set " + c.mark,
			})),
			with(out(0, rules.UDP, from, c.to), func(p *rules.Packet) {
				p.Bound, p.OutInterface = true, "lo"
			}), c.want,
		)
	}
	for _, c := range []struct{ mark, to, want string }{
		{"7", "fd00:10:244:1::5", "dropped"},
		{
			"0x539", "fd00:10:244:1::5",
			"to [fd00:10:244:1::5]:8080 mark 0x539 connection mark 0x0 zone 0",
		},
		{"7", "::1", "to [::1]:8080 mark 0x7 connection mark 0x0 zone 0"},
	} {
		list.add("UnspecifiedAddressIsReplaced",
			"a packet to [::] of a socket bound to lo is translated to "+c.to+", with mark "+c.mark,
			rulesetOf(chains(rules.Inet, []string{
				base("nat", "output", "-100"), "meta mark set " + c.mark, "dnat ip6 to " + c.to,
			})),
			with(out(0, rules.UDP, "[fd00:10:244:1::5]:40000", "[::]:8080"),
				func(p *rules.Packet) { p.Bound, p.OutInterface = true, "lo" }), c.want,
		)
	}
	list.add("BoundSocketKeepsInterface",
		"a mark does not route a packet of a bound socket to this host",
		rulesetOf(chains(rules.Inet, []string{
			base("route", "output", "-150"), "meta mark set 0x539",
		})),
		bound, "to 10.9.9.9:80 mark 0x539 connection mark 0x0 zone 0",
	)
	selects := func(device string) rules.Packet {
		return with(outgoing, func(p *rules.Packet) { p.SelectsInterface, p.OutInterface = true, device })
	}
	dropsOnLoopback := chains(rules.Inet, []string{
		base("filter", "prerouting", "-150"), "iifname lo drop",
	})
	marks := func(chainType string) kerneltest.Ruleset {
		table := chains(rules.Inet, []string{base(chainType, "output", "-150"), "meta mark set 1"})
		table.Name = "m"
		return rulesetOf(table, dropsOnLoopback)
	}
	list.add("SelectedInterfaceIsNotKept",
		"a packet whose sender selected lo leaves the pod if its mark changes",
		marks("route"), selects("lo"), "to 10.9.9.9:80 mark 0x1 away from lo connection mark 0x0 zone 0",
	)
	list.add("SelectedInterfaceIsNotKept",
		"a packet whose sender selected lo arrives there if a filter chain changes its mark",
		marks("filter"), selects("lo"), "dropped",
	)
	list.add("SelectedInterfaceIsNotKept",
		"a packet whose sender selected lo arrives there if its mark does not change",
		rulesetOf(dropsOnLoopback), selects("lo"), "dropped",
	)
	list.add("SelectedInterfaceIsNotKept",
		"a packet whose sender selected another interface is routed by its mark",
		rulesetOf(chains(rules.Inet, []string{base("route", "output", "-150"), "meta mark set 0x539"})),
		selects("eth1"), "to 10.9.9.9:80 mark 0x539 rerouted connection mark 0x0 zone 0",
	)
	marked := with(outgoing, func(p *rules.Packet) { p.Mark = kerneltest.LocalMark })
	list.add("MarkChangeReroutesLoopback",
		"a packet that its mark routes to lo leaves the pod if mangle sets another mark",
		rulesetOf(xtables(legacy, "mangle", "OUTPUT -j MARK --set-mark 1", "PREROUTING -j DROP")),
		marked, "to 10.9.9.9:80 mark 0x1 away from lo connection mark 0x0 zone 0",
	)
	list.add("MarkChangeReroutesLoopback",
		"a packet that its mark routes to lo stays there if a filter chain sets another mark",
		rulesetOf(chains(rules.Inet,
			[]string{base("filter", "output", "-150"), "meta mark set 1"},
			[]string{mangleNFT, `iifname "lo" meta mark set 9`},
		)),
		marked, "to 10.9.9.9:80 mark 0x9 connection mark 0x0 zone 0",
	)
	list.add("LoopbackTraversedOutput", "a packet to lo passes output first",
		rulesetOf(chains(rules.Inet,
			[]string{base("filter", "output", "-150"), "meta mark set 1"},
			[]string{mangleNFT, `iifname "lo" meta mark 1 meta mark set 9`},
		)),
		out(0, rules.TCP, "10.244.1.5:1000", "10.1.2.3:80"),
		"to 10.1.2.3:80 mark 0x9 connection mark 0x0 zone 0",
	)
	toItself := out(0, rules.TCP, "10.244.1.5:1000", "10.1.2.3:80")
	for _, p := range []kerneltest.Program{legacy, iptablesNFT} {
		name := string(p)
		list.add("LoopbackPassesPostrouting",
			name+": a mark set at postrouting is visible at prerouting",
			rulesetOf(xtables(p, "mangle",
				"POSTROUTING -o lo -j MARK --set-mark 1",
				"POSTROUTING ! -o lo -j DROP",
				"POSTROUTING -m owner --uid-owner 0 -j CONNMARK --set-mark 2",
				"PREROUTING -i lo -m mark --mark 1 -m connmark --mark 2 -j MARK --set-mark 9",
			)),
			toItself, "to 10.1.2.3:80 mark 0x9 connection mark 0x2 zone 0",
		)
	}
	list = append(list, factTest{
		fact: "NATMappingPersists",
		name: "a packet of a redirected connection is redirected without matching the redirection",
		ruleset: rulesetOf(chains(rules.Inet, []string{
			base("nat", "output", "-100"), "meta mark 1 meta l4proto tcp redirect to :15001",
		})),
		before: []rules.Packet{with(outgoing, func(p *rules.Packet) {
			p.Mark = 1
		})}, packet: outgoing,
		adjustModel: func(p *rules.Packet) { p.Status = rules.StatusConfirmed | rules.StatusDNAT },
		want:        "to 127.0.0.1:15001 mark 0x0 rerouted connection mark 0x0 zone 0",
	})
	list = append(list, factTest{
		fact: "NATMappingPersists",
		name: "the destination of a redirected connection has the type local after NAT only",
		ruleset: rulesetOf(chains(
			rules.Inet,
			[]string{
				base("nat", "output", "-100"),
				"meta mark 1 meta l4proto tcp redirect to :15001",
			},
			[]string{base("filter", "output", "-150"), "fib daddr type local meta mark set 5"},
			[]string{base("filter", "output", "0"), "fib daddr type local meta mark set 7"},
		)),
		before: []rules.Packet{with(outgoing, func(p *rules.Packet) {
			p.Mark = 1
		})}, packet: outgoing,
		adjustModel: func(p *rules.Packet) { p.Status = rules.StatusConfirmed | rules.StatusDNAT },
		want:        "to 127.0.0.1:15001 mark 0x7 rerouted connection mark 0x0 zone 0",
	})
	return list
}

package kerneltest_test

import (
	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/rules"
)

// beforeConntrackFacts returns facts about chains that run before conntrack.
func beforeConntrackFacts() (list factList) {
	for _, p := range []kerneltest.Program{legacy, iptablesNFT} {
		name := string(p)
		list.add("NoConnectionBeforeConntrack", name+": in raw the state is INVALID",
			rulesetOf(xtables(p, "raw",
				"PREROUTING -m conntrack --ctstate INVALID -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 0",
		)
		list.add("NoConnectionBeforeConntrack", name+": in raw the state is not UNTRACKED",
			rulesetOf(xtables(p, "raw",
				"PREROUTING -m conntrack --ctstate UNTRACKED -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add("TemplateIsNew", name+": after a zone in raw, the state is NEW",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -m conntrack --ctstate NEW -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
		)
		list.add("TemplateIsNew",
			name+": after a zone in raw, the state of an established packet is NEW",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -m conntrack --ctstate NEW -j MARK --set-mark 9",
				),
			),
			with(syn, established), "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
		)
		list.add("NFTReadsTemplateStateOnly",
			name+": after a zone in raw, the status is not NONE",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -m conntrack --ctstatus NONE -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
		)
		list.add("NFTReadsTemplateStateOnly",
			name+": after a zone in raw, the status is CONFIRMED",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -m conntrack --ctstatus CONFIRMED -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
		)
		list.add("StatusNeedsConnection",
			name+": in raw, a negated status does not match without a connection",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -m conntrack ! --ctstatus CONFIRMED -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add("StatusNeedsConnection",
			name+": in raw, a direction does not match without a connection",
			rulesetOf(xtables(p, "raw",
				"PREROUTING -m conntrack --ctdir ORIGINAL -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add("NFTReadsTemplateStateOnly",
			name+": after a zone in raw, the direction is ORIGINAL",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -m conntrack --ctdir ORIGINAL -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
		)
		list.add("NFTReadsTemplateStateOnly",
			name+": after a zone in raw, the connection mark is 0",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -m connmark --mark 0 -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
		)
		list.add("MarkNeedsConnection",
			name+": in raw without a zone, connection mark 0 does not match",
			rulesetOf(xtables(p, "raw", "PREROUTING -m connmark --mark 0 -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add("MarkNeedsConnection",
			name+": in raw without a zone, a negated connection mark does not match",
			rulesetOf(xtables(p, "raw", "PREROUTING -m connmark ! --mark 7 -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add("NFTReadsTemplateStateOnly",
			name+": after a zone in raw, the template's mark is restored",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j MARK --set-mark 9",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -j CONNMARK --restore-mark",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
		)
		list.add("NFTReadsTemplateStateOnly",
			name+": after a zone in raw, the mark is saved in the template",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j MARK --set-mark 9",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -j CONNMARK --save-mark",
					"PREROUTING -m connmark --mark 9 -j MARK --set-mark 7",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x7 connection mark 0x0 zone 5",
		)
		list.add("TemplateIsShared", name+": a mark that is set on the template is restored",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -j CONNMARK --set-mark 7",
					"PREROUTING -j CONNMARK --restore-mark",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x7 connection mark 0x0 zone 5",
		)
		list.add("TemplateIsNew", name+": after CT without options, the state is NEW",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT",
					"PREROUTING -m conntrack --ctstate NEW -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 0",
		)
		list.add("FirstTemplateStays", name+": after CT without options, a zone has no effect",
			rulesetOf(xtables(p, "raw", "PREROUTING -j CT", "PREROUTING -j CT --zone 5")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add("FirstTemplateStays", name+": after zone 0, zone 5 has no effect",
			rulesetOf(xtables(p, "raw", "PREROUTING -j CT --zone 0", "PREROUTING -j CT --zone 5")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add("NFTZoneOfUntracked", name+": after notrack, a zone has no effect",
			rulesetOf(xtables(p, "raw", "PREROUTING -j CT --notrack", "PREROUTING -j CT --zone 5")),
			syn, "to 10.244.1.5:81 mark 0x0 untracked",
		)
		list.add("FirstTemplateStays", name+": after a zone, notrack has no effect",
			rulesetOf(xtables(p, "raw", "PREROUTING -j CT --zone 5", "PREROUTING -j CT --notrack")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
		)
		list.add("TemplateIsNew", name+": a zone of only the original direction takes effect",
			rulesetOf(xtables(p, "raw", "PREROUTING -j CT --zone-orig 5")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
		)
		list.add("NotrackNeedsNoConnection", name+": after notrack, the state is UNTRACKED",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --notrack",
					"PREROUTING -m conntrack --ctstate UNTRACKED -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x9 untracked",
		)
		list.add("TemplateIsNew", name+": CT does not end the chain",
			rulesetOf(xtables(p, "raw",
				"PREROUTING -j CT --zone 5", "PREROUTING -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
		)
		list.add("StatusNeedsConnection",
			name+": in raw, a negated state DNAT matches without a connection",
			rulesetOf(xtables(p, "raw",
				"PREROUTING -m conntrack ! --ctstate DNAT -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 0",
		)
	}
	list.add("TemplateIsNew", "nft: after a zone in raw, the state is new",
		rulesetOf(chains(rules.Inet, []string{
			rawNFT, "ct zone set 5", "ct state new meta mark set 9",
		})),
		syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
	)
	list.add("NFTReadsTemplateStateOnly", "nft: after a zone in raw, ct mark 0 does not match",
		rulesetOf(chains(rules.Inet, []string{
			rawNFT, "ct zone set 5", "ct mark 0 meta mark set 9",
		})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add("NoConnectionBeforeConntrack", "nft: in raw the state is invalid",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct state invalid meta mark set 9"})),
		syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 0",
	)
	list.add("MarkNeedsConnection", "nft: in raw, ct mark 0 does not match",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct mark 0 meta mark set 9"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("MarkNeedsConnection", "nft: in raw, ct mark != 7 does not match",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct mark != 7 meta mark set 9"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("NFTReadsTemplateStateOnly",
		"nft: after a zone in raw, the template's mark is neither set nor read",
		rulesetOf(
			chains(rules.Inet,
				[]string{rawNFT, "ct zone set 5", "ct mark set 7", "meta mark set ct mark"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	for _, p := range []kerneltest.Program{legacy, iptablesNFT} {
		table := xtables(p, "raw", "PREROUTING -j CT --zone 5",
			"PREROUTING -m conntrack --ctstate NEW -j MARK --set-mark 9")
		table.Family = rules.IPv6
		list.add("NeighborDiscoveryUntracked",
			string(p)+": a zone has no effect on neighbor discovery that arrives by lo",
			rulesetOf(table),
			with(out(0, rules.ICMPv6, "[fd00:10:0:2::1]:0",
				"[fd00:10:244:1::5]:0"), func(p *rules.Packet) {
				p.ICMPType, p.State = 135, rules.Untracked
			}),
			"to [fd00:10:244:1::5]:0 mark 0x0 untracked",
		)
	}
	list.add("NFTZoneOfUntracked", "nft: after notrack, a zone makes conntrack track the packet",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "notrack", "ct zone set 5"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add("NFTZoneOfUntracked",
		"nft: after notrack, a zone on lo begins a connection, which enters NAT",
		rulesetOf(chains(rules.Inet,
			[]string{base("filter", "output", "-300"), "notrack"},
			[]string{rawNFT, "ct zone set 5"},
			[]string{base("nat", "prerouting", "-100"), "drop"},
		)),
		out(0, rules.Protocol(254), "10.244.1.5:0", "10.244.1.5:0"), "dropped",
	)
	list.add("FirstTemplateStays", "nft: after a zone, notrack has no effect",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct zone set 5", "notrack"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add("FirstTemplateStays", "nft: after zone 5, zone 1 has no effect",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct zone set 5", "ct zone set 1"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add("FirstTemplateStays", "nft: after zone 0, zone 5 has no effect",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct zone set 0", "ct zone set 5"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("NFTZoneOfUntracked",
		"after xtables' notrack, nft's zone makes conntrack track the packet",
		rulesetOf(
			xtables(legacy, "raw", "PREROUTING -j CT --notrack"),
			chains(rules.Inet, []string{base("filter", "prerouting", "-290"), "ct zone set 5"}),
		),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add("TemplateIsNew", "nft: a zone of only the original direction takes effect",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct original zone set 5"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add("NFTReadsTemplateStateOnly",
		"nft: after a zone in raw, ct status confirmed does not match",
		rulesetOf(
			chains(rules.Inet,
				[]string{rawNFT, "ct zone set 5", "ct status confirmed meta mark set 9"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add("NFTReadsTemplateStateOnly",
		"nft: after a zone in raw, ct direction original does not match",
		rulesetOf(
			chains(rules.Inet,
				[]string{rawNFT, "ct zone set 5", "ct direction original meta mark set 9"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add("NFTReadsTemplateStateOnly",
		"after nft's zone in raw, xtables' connection mark matches",
		rulesetOf(
			chains(rules.Inet, []string{base("filter", "prerouting", "-310"), "ct zone set 5"}),
			xtables(legacy, "raw", "PREROUTING -m connmark --mark 0/0 -j MARK --set-mark 9"),
		),
		syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
	)
	list.add("NFTReadsTemplateStateOnly",
		"after xtables' zone in raw, nft's ct mark 0 does not match",
		rulesetOf(
			xtables(legacy, "raw", "PREROUTING -j CT --zone 5"),
			chains(rules.Inet,
				[]string{base("filter", "prerouting", "-290"), "ct mark 0 meta mark set 9"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list = append(list, factTest{
		fact: "TemplateIsShared",
		name: "legacy: the template has the mark that an earlier packet set", listeners: true,
		want: "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5", before: []rules.Packet{udp},
		packet: syn,
		ruleset: rulesetOf(xtables(legacy, "raw", "PREROUTING -j CT --zone 5",
			"PREROUTING -m connmark --mark 7 -j MARK --set-mark 9",
			"PREROUTING -p udp -j CONNMARK --set-mark 7")),
	})
	list.add("MarkNeedsConnection",
		"nft: without a connection, a mark expression with ct mark ends the rule",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "meta mark set ct mark | 0x1 drop"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("MarkNeedsConnection",
		"nft: without a connection, a constant computed from ct mark ends the rule",
		rulesetOf(chains(rules.Inet, []string{
			rawNFT, "meta mark set 9", "meta mark set ct mark & 0x0",
		})),
		syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 0",
	)
	return list
}

// atConntrackFacts returns facts about chains at conntrack's priority and after it.
func atConntrackFacts() (list factList) {
	list.add("ConntrackPriorityTies", "nft: a zone at -200 takes effect",
		rulesetOf(chains(rules.Inet, []string{
			base("filter", "prerouting", "-200"), "ct zone set 5",
		})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add("ConntrackPriorityTies", "nft: at -200, state new does not match",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("filter", "prerouting", "-200"), "ct state new meta mark set 9"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("ConntrackPriorityTies", "nft: a zone at -200 takes effect at output",
		rulesetOf(chains(rules.Inet, []string{base("filter", "output", "-200"), "ct zone set 5"})),
		out(0, rules.TCP, "10.244.1.5:1000", "10.9.9.9:80"),
		"to 10.9.9.9:80 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add("HooksRunByPriority",
		"nft: of two postrouting chains at one priority, the chain created last runs first",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("filter", "postrouting", "110"), "meta mark != 9 drop"},
				[]string{base("filter", "postrouting", "110"), "meta mark set 9"},
			),
		),
		out(0, rules.TCP, "10.244.1.5:1000", "127.0.0.6:80"),
		"to 127.0.0.6:80 mark 0x9 connection mark 0x0 zone 0",
	)
	list.add("HooksRunByPriority", "nft: at -199, the state is new",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("filter", "prerouting", "-199"), "ct state new meta mark set 9"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 0",
	)
	list.add("ConntrackPriorityTies", "nft: notrack at -200 takes effect",
		rulesetOf(chains(rules.Inet, []string{base("filter", "prerouting", "-200"), "notrack"})),
		syn, "to 10.244.1.5:81 mark 0x0 untracked",
	)
	list.add("ConntrackPriorityTies",
		"nft: notrack at -200 has no effect on an invalid packet on lo that has a template",
		rulesetOf(chains(rules.Inet,
			[]string{base("filter", "prerouting", "-300"), "ct zone set 5"},
			[]string{base("filter", "prerouting", "-200"), "notrack"},
		)),
		with(out(0, rules.TCP, "192.0.2.9:1000", "127.0.0.6:80"), func(p *rules.Packet) {
			p.Flags, p.State = rules.FIN, rules.Invalid
		}),
		"to 127.0.0.6:80 mark 0x0",
	)
	list.add("ZoneAfterConntrackHasNoEffect", "nft: a zone after conntrack has no effect",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "ct zone set 5"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("NotrackNeedsNoConnection", "nft: notrack after conntrack has no effect",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "notrack"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("ZoneAfterConntrackHasNoEffect",
		"nft: a zone after conntrack has no effect on an invalid packet",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "ct zone set 5"})),
		with(syn, func(p *rules.Packet) { p.Flags, p.State = rules.RST, rules.Invalid }),
		"to 10.244.1.5:81 mark 0x0",
	)
	list.add("NotrackNeedsNoConnection",
		"nft: notrack after conntrack makes an invalid packet untracked",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "notrack"})),
		with(syn, func(p *rules.Packet) { p.Flags, p.State = rules.RST, rules.Invalid }),
		"to 10.244.1.5:81 mark 0x0 untracked",
	)
	list.add("TemplateIsNew", "nft: a zone after conntrack makes an invalid packet new",
		rulesetOf(chains(rules.Inet, []string{
			mangleNFT, "ct zone set 5",
			"ct state new meta mark set 9",
		})),
		with(syn, func(p *rules.Packet) { p.Flags, p.State = rules.RST, rules.Invalid }),
		"to 10.244.1.5:81 mark 0x9",
	)
	list.add("NFTReadsTemplateStateOnly",
		"nft: after a zone, ct mark 0 does not match an invalid packet",
		rulesetOf(chains(rules.Inet, []string{
			mangleNFT, "ct zone set 5", "ct mark 0 meta mark set 9",
		})),
		with(syn, func(p *rules.Packet) { p.Flags, p.State = rules.RST, rules.Invalid }),
		"to 10.244.1.5:81 mark 0x0",
	)
	return list
}

package kerneltest_test

import (
	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// beforeConntrackFacts returns facts about chains that run before conntrack.
func beforeConntrackFacts() (list factList) {
	for _, p := range []kerneltest.Program{legacy, iptablesNFT} {
		name := string(p)
		list.add(diff.NoConnectionBeforeConntrack, name+": in raw the state is INVALID",
			rulesetOf(xtables(p, "raw",
				"PREROUTING -m conntrack --ctstate INVALID -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 0",
		)
		list.add(diff.NoConnectionBeforeConntrack, name+": in raw the state is not UNTRACKED",
			rulesetOf(xtables(p, "raw",
				"PREROUTING -m conntrack --ctstate UNTRACKED -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add(diff.TemplateIsNew, name+": a zone in raw, then state NEW",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -m conntrack --ctstate NEW -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
		)
		list.add(diff.TemplateIsNew,
			name+": a zone in raw, then state NEW of an established connection",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -m conntrack --ctstate NEW -j MARK --set-mark 9",
				),
			),
			with(syn, established), "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
		)
		list.add(diff.NFTReadsTemplateStateOnly, name+": a zone in raw, then status NONE",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -m conntrack --ctstatus NONE -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
		)
		list.add(diff.NFTReadsTemplateStateOnly, name+": a zone in raw, then status CONFIRMED",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -m conntrack --ctstatus CONFIRMED -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
		)
		list.add(diff.StatusNeedsConnection,
			name+": in raw, status CONFIRMED negated without a connection",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -m conntrack ! --ctstatus CONFIRMED -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add(diff.StatusNeedsConnection, name+": in raw, ctdir without a connection",
			rulesetOf(xtables(p, "raw",
				"PREROUTING -m conntrack --ctdir ORIGINAL -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add(diff.NFTReadsTemplateStateOnly, name+": a zone in raw, then direction ORIGINAL",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -m conntrack --ctdir ORIGINAL -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
		)
		list.add(diff.NFTReadsTemplateStateOnly, name+": a zone in raw, then connection mark 0",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -m connmark --mark 0 -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
		)
		list.add(diff.MarkNeedsConnection, name+": in raw without a zone, connection mark 0",
			rulesetOf(xtables(p, "raw", "PREROUTING -m connmark --mark 0 -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add(diff.MarkNeedsConnection, name+": in raw without a zone, not connection mark 7",
			rulesetOf(xtables(p, "raw", "PREROUTING -m connmark ! --mark 7 -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add(diff.NFTReadsTemplateStateOnly, name+": a zone in raw, then restore",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j MARK --set-mark 9",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -j CONNMARK --restore-mark",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
		)
		list.add(diff.NFTReadsTemplateStateOnly, name+": a zone in raw, then save, then a match",
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
		list.add(diff.TemplateIsShared, name+": a mark set on the template, then restored",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --zone 5",
					"PREROUTING -j CONNMARK --set-mark 7",
					"PREROUTING -j CONNMARK --restore-mark",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x7 connection mark 0x0 zone 5",
		)
		list.add(diff.TemplateIsNew, name+": CT without options, then state NEW",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT",
					"PREROUTING -m conntrack --ctstate NEW -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 0",
		)
		list.add(diff.FirstTemplateStays, name+": CT without options, then zone 5",
			rulesetOf(xtables(p, "raw", "PREROUTING -j CT", "PREROUTING -j CT --zone 5")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add(diff.FirstTemplateStays, name+": zone 0, then zone 5",
			rulesetOf(xtables(p, "raw", "PREROUTING -j CT --zone 0", "PREROUTING -j CT --zone 5")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
		)
		list.add(diff.NFTZoneOfUntracked, name+": notrack, then zone 5",
			rulesetOf(xtables(p, "raw", "PREROUTING -j CT --notrack", "PREROUTING -j CT --zone 5")),
			syn, "to 10.244.1.5:81 mark 0x0 untracked",
		)
		list.add(diff.FirstTemplateStays, name+": zone 5, then notrack",
			rulesetOf(xtables(p, "raw", "PREROUTING -j CT --zone 5", "PREROUTING -j CT --notrack")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
		)
		list.add(diff.TemplateIsNew, name+": zone of the original direction only",
			rulesetOf(xtables(p, "raw", "PREROUTING -j CT --zone-orig 5")),
			syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
		)
		list.add(diff.NotrackNeedsNoConnection, name+": notrack, then state UNTRACKED",
			rulesetOf(
				xtables(p, "raw",
					"PREROUTING -j CT --notrack",
					"PREROUTING -m conntrack --ctstate UNTRACKED -j MARK --set-mark 9",
				),
			),
			syn, "to 10.244.1.5:81 mark 0x9 untracked",
		)
		list.add(diff.TemplateIsNew, name+": CT does not end the chain",
			rulesetOf(xtables(p, "raw",
				"PREROUTING -j CT --zone 5", "PREROUTING -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
		)
		list.add(diff.StatusNeedsConnection,
			name+": in raw, state DNAT negated without a connection",
			rulesetOf(xtables(p, "raw",
				"PREROUTING -m conntrack ! --ctstate DNAT -j MARK --set-mark 9")),
			syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 0",
		)
	}
	list.add(diff.TemplateIsNew, "nft: a zone in raw, then ct state new",
		rulesetOf(chains(rules.Inet, []string{
			rawNFT, "ct zone set 5", "ct state new meta mark set 9",
		})),
		syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
	)
	list.add(diff.NFTReadsTemplateStateOnly, "nft: a zone in raw, then ct mark 0",
		rulesetOf(chains(rules.Inet, []string{
			rawNFT, "ct zone set 5", "ct mark 0 meta mark set 9",
		})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add(diff.NoConnectionBeforeConntrack, "nft: in raw, ct state invalid",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct state invalid meta mark set 9"})),
		syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 0",
	)
	list.add(diff.MarkNeedsConnection, "nft: in raw, ct mark 0",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct mark 0 meta mark set 9"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add(diff.MarkNeedsConnection, "nft: in raw, ct mark != 7",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct mark != 7 meta mark set 9"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add(diff.NFTReadsTemplateStateOnly, "nft: a zone in raw, then ct mark set",
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
		list.add(diff.NeighborDiscoveryUntracked,
			string(p)+": a zone for neighbor discovery that arrives by lo",
			rulesetOf(table),
			with(out(0, rules.ICMPv6, "[fd00:10:0:2::1]:0",
				"[fd00:10:244:1::5]:0"), func(p *rules.Packet) {
				p.ICMPType, p.State = 135, rules.Untracked
			}),
			"to [fd00:10:244:1::5]:0 mark 0x0 untracked",
		)
	}
	list.add(diff.NFTZoneOfUntracked, "nft: notrack, then zone 5",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "notrack", "ct zone set 5"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add(diff.NFTZoneOfUntracked,
		"nft: notrack, then zone 5 on lo begins a connection, which NAT translates",
		rulesetOf(chains(rules.Inet,
			[]string{base("filter", "output", "-300"), "notrack"},
			[]string{rawNFT, "ct zone set 5"},
			[]string{base("nat", "prerouting", "-100"), "drop"},
		)),
		out(0, rules.Protocol(254), "10.244.1.5:0", "10.244.1.5:0"), "dropped",
	)
	list.add(diff.FirstTemplateStays, "nft: zone 5, then notrack",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct zone set 5", "notrack"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add(diff.FirstTemplateStays, "nft: zone 5, then zone 1",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct zone set 5", "ct zone set 1"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add(diff.FirstTemplateStays, "nft: zone 0, then zone 5",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct zone set 0", "ct zone set 5"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add(diff.NFTZoneOfUntracked, "xtables' notrack, then nft's zone 5",
		rulesetOf(
			xtables(legacy, "raw", "PREROUTING -j CT --notrack"),
			chains(rules.Inet, []string{base("filter", "prerouting", "-290"), "ct zone set 5"}),
		),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add(diff.TemplateIsNew, "nft: zone of the original direction only",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct original zone set 5"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add(diff.NFTReadsTemplateStateOnly, "nft: a zone in raw, then ct status confirmed",
		rulesetOf(
			chains(rules.Inet,
				[]string{rawNFT, "ct zone set 5", "ct status confirmed meta mark set 9"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add(diff.NFTReadsTemplateStateOnly, "nft: a zone in raw, then ct direction original",
		rulesetOf(
			chains(rules.Inet,
				[]string{rawNFT, "ct zone set 5", "ct direction original meta mark set 9"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add(diff.NFTReadsTemplateStateOnly, "nft: a zone in raw, then xtables' connection mark",
		rulesetOf(
			chains(rules.Inet, []string{base("filter", "prerouting", "-310"), "ct zone set 5"}),
			xtables(legacy, "raw", "PREROUTING -m connmark --mark 0/0 -j MARK --set-mark 9"),
		),
		syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5",
	)
	list.add(diff.NFTReadsTemplateStateOnly, "xtables' zone in raw, then nft's ct mark 0",
		rulesetOf(
			xtables(legacy, "raw", "PREROUTING -j CT --zone 5"),
			chains(rules.Inet,
				[]string{base("filter", "prerouting", "-290"), "ct mark 0 meta mark set 9"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list = append(list, factTest{
		of:   diff.TemplateIsShared,
		name: "legacy: an earlier packet set the mark of the template", listeners: true,
		want: "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 5", before: []rules.Packet{udp},
		packet: syn,
		ruleset: rulesetOf(xtables(legacy, "raw", "PREROUTING -j CT --zone 5",
			"PREROUTING -m connmark --mark 7 -j MARK --set-mark 9",
			"PREROUTING -p udp -j CONNMARK --set-mark 7")),
	})
	list.add(diff.MarkNeedsConnection,
		"nft: without a connection, a mark expression with ct mark ends the rule",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "meta mark set ct mark | 0x1 drop"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add(diff.MarkNeedsConnection,
		"nft: without a connection, a constant computed from ct mark ends the rule",
		rulesetOf(chains(rules.Inet, []string{
			rawNFT, "meta mark set 9", "meta mark set ct mark & 0x0",
		})),
		syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 0",
	)
	list.add(diff.TemplateIsNew, "nft: a zone after conntrack makes an invalid packet new",
		rulesetOf(chains(rules.Inet, []string{
			mangleNFT, "ct zone set 5",
			"ct state new meta mark set 9",
		})),
		with(syn, func(p *rules.Packet) { p.Flags, p.State = rules.RST, rules.Invalid }),
		"to 10.244.1.5:81 mark 0x9",
	)
	return list
}

// atConntrackFacts returns facts about chains at conntrack's priority, and about zones and notrack
// in chains after conntrack.
func atConntrackFacts() (list factList) {
	list.add(diff.ConntrackPriorityTies, "nft: zone at -200",
		rulesetOf(chains(rules.Inet, []string{
			base("filter", "prerouting", "-200"), "ct zone set 5",
		})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add(diff.ConntrackPriorityTies, "nft: state at -200",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("filter", "prerouting", "-200"), "ct state new meta mark set 9"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add(diff.ConntrackPriorityTies, "nft: zone at -200, output",
		rulesetOf(chains(rules.Inet, []string{base("filter", "output", "-200"), "ct zone set 5"})),
		out(0, rules.TCP, "10.244.1.5:1000", "10.9.9.9:80"),
		"to 10.9.9.9:80 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add(diff.HooksRunByPriority, "nft: of two postrouting chains at one priority, the chain created last runs first",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("filter", "postrouting", "110"), "meta mark != 9 drop"},
				[]string{base("filter", "postrouting", "110"), "meta mark set 9"},
			),
		),
		out(0, rules.TCP, "10.244.1.5:1000", "127.0.0.6:80"),
		"to 127.0.0.6:80 mark 0x9 connection mark 0x0 zone 0",
	)
	list.add(diff.HooksRunByPriority, "nft: state at -199",
		rulesetOf(
			chains(rules.Inet,
				[]string{base("filter", "prerouting", "-199"), "ct state new meta mark set 9"},
			),
		),
		syn, "to 10.244.1.5:81 mark 0x9 connection mark 0x0 zone 0",
	)
	list.add(diff.ConntrackPriorityTies, "nft: notrack at -200",
		rulesetOf(chains(rules.Inet, []string{base("filter", "prerouting", "-200"), "notrack"})),
		syn, "to 10.244.1.5:81 mark 0x0 untracked",
	)
	list.add(diff.ConntrackPriorityTies,
		"nft: notrack at -200 of an invalid packet on lo that has a template",
		rulesetOf(chains(rules.Inet,
			[]string{base("filter", "prerouting", "-300"), "ct zone set 5"},
			[]string{base("filter", "prerouting", "-200"), "notrack"},
		)),
		with(out(0, rules.TCP, "192.0.2.9:1000", "127.0.0.6:80"), func(p *rules.Packet) {
			p.Flags, p.State = rules.FIN, rules.Invalid
		}),
		"to 127.0.0.6:80 mark 0x0",
	)
	list.add(diff.ZoneAfterConntrackHasNoEffect, "nft: zone after conntrack is ignored",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "ct zone set 5"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add(diff.NotrackNeedsNoConnection, "nft: notrack after conntrack is ignored",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "notrack"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add(diff.ZoneAfterConntrackHasNoEffect, "nft: zone after conntrack for an invalid packet",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "ct zone set 5"})),
		with(syn, func(p *rules.Packet) { p.Flags, p.State = rules.RST, rules.Invalid }),
		"to 10.244.1.5:81 mark 0x0",
	)
	list.add(diff.NotrackNeedsNoConnection, "nft: notrack after conntrack for an invalid packet",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "notrack"})),
		with(syn, func(p *rules.Packet) { p.Flags, p.State = rules.RST, rules.Invalid }),
		"to 10.244.1.5:81 mark 0x0 untracked",
	)
	list.add(diff.NFTReadsTemplateStateOnly,
		"nft: connection mark after zone for an invalid packet",
		rulesetOf(chains(rules.Inet, []string{
			mangleNFT, "ct zone set 5", "ct mark 0 meta mark set 9",
		})),
		with(syn, func(p *rules.Packet) { p.Flags, p.State = rules.RST, rules.Invalid }),
		"to 10.244.1.5:81 mark 0x0",
	)
	return list
}

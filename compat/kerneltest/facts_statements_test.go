package kerneltest_test

import (
	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/rules"
)

// statementFacts returns facts about statements before matches, side effects of matches,
// rejections, and neighbor discovery.
func statementFacts() (list factList) {
	list.add("EffectsBeforeFailedMatch", "nft: notrack before a match that fails takes effect",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "notrack tcp dport 80 accept"})),
		udp, "to 10.244.1.5:81 mark 0x0 untracked",
	)
	list.add("EffectsBeforeFailedMatch", "nft: a mark before a match that fails is set",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "meta mark set 5 tcp dport 80 accept"})),
		syn, "to 10.244.1.5:81 mark 0x5 connection mark 0x0 zone 0",
	)
	list.add("EffectsBeforeFailedMatch",
		"nft: a connection mark before a match that fails is set",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "ct mark set 5 tcp dport 80 accept"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x5 zone 0",
	)
	list.add("EffectsBeforeFailedMatch", "nft: a port before a match that fails is set",
		rulesetOf(chains(rules.Inet, []string{
			mangleNFT,
			"tcp dport set 9090 ip saddr 192.0.2.9 accept",
		})),
		syn, "to 10.244.1.5:9090 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("MapMissEndsRule",
		"nft: setting a mark from a map without a matching element ends the rule",
		rulesetOf(chains(rules.Inet, []string{
			mangleNFT, "meta mark set tcp dport map { 80 : 7 } drop",
		})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("VerdictEndsRule", "nft: statements after a jump have no effect",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "jump { meta mark set 7; } drop"})),
		syn, "to 10.244.1.5:81 mark 0x7 connection mark 0x0 zone 0",
	)
	list.add("EffectsBeforeFailedMatch", "nft: a zone before a match that fails takes effect",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct zone set 5 tcp dport 80 accept"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 5",
	)
	list.add("MarkNeedsConnection", "nft: restoring a mark without a connection ends the rule",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "meta mark set ct mark drop"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("MarkNeedsConnection",
		"nft: saving a mark without a connection does not end the rule",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct mark set 5 drop"})),
		syn, "dropped",
	)
	for _, p := range []kerneltest.Program{legacy, iptablesNFT} {
		list.add("SocketMatchRestoresMark",
			string(p)+": the socket's mark is restored before a match that fails",
			rulesetOf(xtables(p, "mangle", "PREROUTING -p tcp -m socket --nowildcard "+
				"--restore-skmark -m mark --mark 0xdead -j DROP")),
			in("eth0", rules.TCP, "10.9.9.9:1000", "10.244.1.5:15006"),
			"to 10.244.1.5:15006 mark 0x100 connection mark 0x0 zone 0")
	}
	for _, c := range []struct{ source, destination string }{
		{"10.244.1.5:1000", "10.9.9.9:80"}, {"[fd00:1::2]:1000", "[2001:db8::9]:80"},
	} {
		reset := rulesetOf(chains(rules.Inet, []string{
			base("filter", "output", "0"), "reject with tcp reset",
		}))
		packet := out(0, rules.TCP, c.source, c.destination)
		list.add("ResetAnswersTCP", "a reset answers a TCP packet to "+c.destination, reset,
			packet, "dropped, answered with tcp reset")
		list.add("ResetAnswersTCP", "a reset does not answer a reset to "+c.destination, reset,
			with(packet, func(p *rules.Packet) {
				p.Flags, p.State = rules.RST, rules.Invalid
			}), "dropped")
	}
	for rejectWith, want := range map[string][2]string{
		"":                             {"icmp 3/3", "ipv6-icmp 1/4"},
		" with icmpx port-unreachable": {"icmp 3/3", "ipv6-icmp 1/4"},
		" with icmpx no-route":         {"icmp 3/0", "ipv6-icmp 1/0"},
		" with icmpx host-unreachable": {"icmp 3/1", "ipv6-icmp 1/3"},
		" with icmpx admin-prohibited": {"icmp 3/13", "ipv6-icmp 1/1"},
	} {
		rejecting := rulesetOf(chains(rules.Inet, []string{
			base("filter", "output", "0"), "reject" + rejectWith,
		}))
		list.add("RejectCodeDependsOnFamily", "reject"+rejectWith+" of an IPv4 packet", rejecting,
			out(0, rules.TCP, "10.244.1.5:1000", "10.9.9.9:80"), "dropped, answered with "+want[0])
		list.add("RejectCodeDependsOnFamily", "reject"+rejectWith+" of an IPv6 packet", rejecting,
			out(0, rules.TCP, "[fd00:1::2]:1000", "[2001:db8::9]:80"),
			"dropped, answered with "+want[1])
	}
	for _, c := range []struct {
		source, rejectWith string
		bound              bool
		want               string
	}{
		{"10.244.1.5:1000", "icmp port-unreachable", false, "dropped, answered with icmp 3/3"},
		{"11.0.0.1:1000", "icmp port-unreachable", false, "dropped"},
		{"11.0.0.1:1000", "icmp port-unreachable", true, "dropped, answered with icmp 3/3"},
		{"11.0.0.1:1000", "tcp reset", true, "dropped"},
	} {
		name := "a rejection with " + c.rejectWith +
			" of a packet redirected at output from " + c.source
		if c.bound {
			name += " by a bound socket"
		}
		list.add("RejectFromLoopbackNeedsLocalSource", name,
			rulesetOf(chains(rules.Inet,
				[]string{base("nat", "output", "-100"), "meta l4proto tcp redirect to :15001"},
				[]string{base("filter", "output", "0"), "reject with " + c.rejectWith},
			)),
			with(out(0, rules.TCP, c.source, "10.9.9.9:80"), func(p *rules.Packet) {
				p.Bound, p.OutInterface = c.bound, "eth0"
			}), c.want)
	}
	for rejectWith, want := range map[string]string{
		"tcp reset": "dropped", "icmp port-unreachable": "dropped, answered with icmp 3/3",
	} {
		reject := []string{mangleNFT, "meta l4proto tcp reject with " + rejectWith}
		list.add("RejectFromLoopbackNeedsLocalSource",
			"a rejection with "+rejectWith+" of a packet that arrives for a loopback address",
			rulesetOf(chains(rules.Inet, reject)),
			in("eth0", rules.TCP, "10.9.9.9:1000", "127.0.0.1:81"), want)
		list.add("RejectFromLoopbackNeedsLocalSource",
			"a rejection with "+rejectWith+" of a packet that arrives by lo from another source",
			rulesetOf(chains(rules.Inet,
				[]string{base("nat", "output", "-100"), "meta l4proto tcp redirect to :15001"},
				reject,
			)),
			out(0, rules.TCP, "11.0.0.1:1000", "10.9.9.9:80"), "dropped")
	}
	list.add("ICMPErrorNeedsLocalSource",
		"a rejection of a packet that a mark routes to this host is not answered",
		rulesetOf(chains(rules.Inet,
			[]string{base("route", "output", "-150"), "meta mark set 0x539"},
			[]string{base("filter", "output", "0"), "reject with icmp port-unreachable"},
		)), outgoing, "dropped")
	list.add("ICMPErrorNeedsLocalSource",
		"a rejection of a packet to the unspecified address from a socket bound to lo is answered",
		rulesetOf(chains(rules.Inet, []string{
			base("filter", "output", "0"), "reject with icmp port-unreachable",
		})),
		with(out(0, rules.UDP, "10.244.1.5:40000", "0.0.0.0:8080"), func(p *rules.Packet) {
			p.Bound, p.OutInterface = true, "lo"
		}),
		"dropped, answered with icmp 3/3")
	list.add("ICMPErrorNeedsLocalSource",
		"a rejection with a reset of a packet that a mark routes to this host is answered",
		rulesetOf(chains(rules.Inet,
			[]string{base("route", "output", "-150"), "meta mark set 0x539"},
			[]string{base("filter", "output", "0"), "reject with tcp reset"},
		)), outgoing, "dropped, answered with tcp reset")
	list.add("ICMPErrorNeedsLocalSource",
		"a rejection on lo of a packet that a mark routed to this host is not answered",
		rulesetOf(chains(rules.Inet,
			[]string{base("route", "output", "-150"), "meta mark set 0x539"},
			[]string{mangleNFT, "reject with icmp port-unreachable"},
		)), outgoing, "dropped")
	const unreachable, answer = "icmpv6 port-unreachable", "dropped, answered with ipv6-icmp 1/4"
	for _, c := range []struct{ source, rejectWith, want, wantOnLoopback string }{
		{"[fe80::9]:1000", unreachable, answer, "dropped"},
		{"[fe80::5]:1000", unreachable, answer, "dropped"}, // of this host
		{"[2001:db9::9]:1000", unreachable, answer, answer},
		{
			"[fe80::9]:1000", "tcp reset", "dropped, answered with tcp reset",
			"dropped, answered with tcp reset",
		},
	} {
		name := "a rejection with " + c.rejectWith + " of a packet from " + c.source
		packet := out(0, rules.TCP, c.source, "[2001:db9::1]:80")
		toThisHost := out(0, rules.TCP, c.source, "[fd00:10:244:1::5]:80")
		reject := []string{
			base("filter", "output", "0"), "meta l4proto tcp reject with " + c.rejectWith,
		}
		redirect := []string{base("nat", "output", "-100"), "meta l4proto tcp redirect to :15001"}
		marks := []string{base("route", "output", "-150"), "meta mark set 0x539"}
		list.add("LinkLocalErrorUsesRouteInterface", name, rulesetOf(chains(rules.Inet, reject)),
			packet, c.want)
		list.add("LinkLocalErrorUsesRouteInterface", name+" to this host",
			rulesetOf(chains(rules.Inet, reject)), toThisHost, c.want)
		list.add("LinkLocalErrorUsesRouteInterface", name+", redirected",
			rulesetOf(chains(rules.Inet, redirect, reject)), packet, c.wantOnLoopback)
		list.add("LinkLocalErrorUsesRouteInterface", name+", routed to this host by a mark",
			rulesetOf(chains(rules.Inet, marks, reject)), packet, c.wantOnLoopback)
	}
	solicitation := with(in("eth0", rules.ICMPv6, "[fd00:10:244:1::9]:0", "[fd00:10:244:1::5]:0"),
		func(p *rules.Packet) { p.ICMPType, p.State = 135, rules.Untracked })
	list.add("NeighborDiscoveryUntracked",
		"nft: neighbor discovery is untracked after conntrack",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "ct state untracked meta mark set 9"})),
		solicitation, "to [fd00:10:244:1::5]:0 mark 0x9 untracked")
	list.add("NeighborDiscoveryUntracked",
		"nft: neighbor discovery is not untracked before conntrack",
		rulesetOf(chains(rules.Inet, []string{rawNFT, "ct state untracked meta mark set 9"})),
		solicitation, "to [fd00:10:244:1::5]:0 mark 0x0 untracked")
	return list
}

// familyFacts returns facts about rules of inet tables that match one family.
func familyFacts() (list factList) {
	list.add("OtherFamilyFailsMatch", "nft: contradictory families match nothing",
		rulesetOf(chains(rules.Inet, []string{
			mangleNFT, "meta nfproto ipv4 meta nfproto ipv6 drop",
		})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("OtherFamilyFailsMatch",
		"nft: a negated IPv4 address does not match an IPv6 packet",
		rulesetOf(
			chains(rules.Inet,
				[]string{mangleNFT, "meta nfproto ipv6 goto b"},
				[]string{"", "ip saddr != 192.0.2.9 drop"},
			),
		),
		in("eth0", rules.TCP, "[2001:db8::9]:1000", "[fd00:1::2]:80"),
		"to [fd00:1::2]:80 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("OtherFamilyFailsMatch",
		"nft: a negated IPv6 address does not match an IPv4 packet",
		rulesetOf(chains(rules.Inet, []string{mangleNFT, "ip6 saddr != ::1 drop"})),
		syn, "to 10.244.1.5:81 mark 0x0 connection mark 0x0 zone 0",
	)
	list.add("OtherFamilyFailsMatch",
		"nft: a negated set of directions and families matches a combination that is not in the set",
		rulesetOf(chains(rules.Inet, []string{
			mangleNFT, "ct direction . meta nfproto != { original . ipv6, reply . ipv4 } drop",
		})),
		syn, "dropped",
	)
	return list
}

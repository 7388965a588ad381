package diff_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

func TestPossible(t *testing.T) {
	for _, tc := range []struct {
		name, packet string
		possible     bool
	}{
		{"a typical arriving packet", "in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0", true},
		{
			"a packet that arrives on lo, which is an output packet first",
			"in tcp 10.244.1.5:40000 > 10.244.1.5:80 dev lo",
			false,
		},
		{
			"a packet to its source address that leaves through lo",
			"out tcp 10.244.1.5:40000 > 10.244.1.5:80 dev lo uid 1000 gid 1000", true,
		},
		{
			"a packet from 127.0.0.0/8 that arrives on eth0",
			"in tcp 127.1.2.3:40000 > 10.244.1.5:80 dev eth0",
			false,
		},
		{
			"a packet to 127.0.0.1 that arrives on eth0, which a redirection may change",
			"in tcp 192.0.2.1:40000 > 127.0.0.1:80 dev eth0", true,
		},
		{
			"a packet from ::1 that arrives on eth0", "in tcp [::1]:40000 > [fd00::5]:80 dev eth0",
			false,
		},
		{
			"a packet to ::1 that arrives on eth0",
			"in tcp [2001:db8::1]:40000 > [::1]:80 dev eth0", false,
		},
		{
			"a packet to ::6 that arrives on eth0",
			"in tcp [2001:db8::1]:40000 > [::6]:80 dev eth0", true,
		},
		{
			"a packet from an IPv4 multicast address",
			"in udp 224.0.0.1:40000 > 10.244.1.5:80 dev eth0", false,
		},
		{
			"a packet from an IPv6 multicast address",
			"in udp [ff02::1]:40000 > [fd00::5]:80 dev eth0", false,
		},
		{
			"a packet to an IPv6 multicast address",
			"in udp [fe80::1]:5353 > [ff02::fb]:5353 dev eth0", true,
		},
		{
			"a socket sends from a foreign address",
			"out tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 uid 0 gid 0", true,
		},
		{
			"a socket sends to 127.0.0.1 through eth0",
			"out tcp 10.244.1.5:40000 > 127.0.0.1:80 dev eth0 uid 0 gid 0", true,
		},
		{
			"a socket sends to a remote address through lo",
			"out tcp 10.244.1.5:40000 > 192.0.2.1:80 dev lo uid 0 gid 0",
			true,
		},
		{
			"the kernel sends without a socket",
			"out tcp 10.244.1.5:40000 > 192.0.2.1:80 dev eth0 no-socket", true,
		},
		{
			"a packet arrives with a mark",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 mark 0x1", true,
		},
		{
			"a new TCP connection without SYN",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 flags ack", true,
		},
		{
			"a new TCP connection with ECN",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 flags syn,ecn,cwr", true,
		},
		{
			"a TCP connection that begins with SYN and FIN",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 state new flags syn,fin", false,
		},
		{
			"a TCP connection that begins with its second segment",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 state new flags syn,ack", false,
		},
		{
			"a TCP connection that begins with RST",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 state new flags rst", false,
		},
		{
			"SYN and FIN without a connection",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 flags syn,fin state invalid", true,
		},
		{
			"RST after SYN, before an answer",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 flags rst status confirmed", true,
		},
		{
			"no flags in a connection",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 flags none state established", false,
		},
		{
			"the end of a connection",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 flags fin,psh,ack state established", true,
		},
		{
			"a new connection has a mark from an earlier packet",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 ctmark 0x1", true,
		},
		{
			"a sent packet of a new connection has a mark from an earlier packet",
			"out tcp 10.244.1.5:40000 > 192.0.2.1:80 dev eth0 uid 0 gid 0 ctmark 0x1 " +
				"status confirmed", true,
		},
		{
			"a sent packet that begins a connection with a mark",
			"out tcp 10.244.1.5:40000 > 192.0.2.1:80 dev eth0 uid 0 gid 0 ctmark 0x1", false,
		},
		{"a new ping", "in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 8", true},
		{"a new ping of IPv6", "in ipv6-icmp fd00::1 > fd00::5 dev eth0 icmp 128", true},
		{
			"ICMP that begins a connection of IPv6",
			"in icmp fd00::1 > fd00::5 dev eth0 icmp 0 state new", false,
		},
		{
			"ICMP in an IPv6 packet without a connection",
			"in icmp fd00::1 > fd00::5 dev eth0 icmp 0 state invalid", true,
		},
		{
			"ICMPv6 that begins a connection of IPv4",
			"in ipv6-icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 0 state new", false,
		},
		{
			"an answer to a ping",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 0 state established reply", true,
		},
		{
			"a ping in reply direction",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 8 state established reply", false,
		},
		{
			"an answer that begins a connection",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 0 state new", false,
		},
		{
			"an error that begins a connection",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 3/1 state new", false,
		},
		{
			"an error of IPv6 that begins a connection",
			"in ipv6-icmp fd00::1 > fd00::5 dev eth0 icmp 1/3 state new", false,
		},
		{
			"an error about a connection",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 3/1 state related", true,
		},
		{
			"an error about no connection",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 3/1 state invalid", true,
		},
		{
			"an answer to a ping in state related",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 0 state related reply", false,
		},
		{
			"a ping that a program expects",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 8 state related", true,
		},
		{
			"a redirect of IPv6 about a connection",
			"in ipv6-icmp fe80::1 > fd00::5 dev eth0 icmp 137 state related", true,
		},
		{
			"a neighbor solicitation in state related",
			"in ipv6-icmp fe80::1 > fd00::5 dev eth0 icmp 135 state related", false,
		},
		{
			"a packet of an expected connection",
			"in udp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 state related", true,
		},
		{
			"a reply of an expected connection, which is established",
			"in udp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 state related reply", false,
		},
		{
			"a reset of an expected connection",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 state related flags rst", true,
		},
		{
			"a reset of another host with the connection of its packet",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 state related reply flags rst", false,
		},
		{
			"a reset of a reject rule",
			"out tcp 10.244.1.5:80 > 192.0.2.1:40000 dev eth0 no-socket state related reply flags rst",
			true,
		},
		{
			"a reset of a socket with the connection of its packet",
			"out tcp 10.244.1.5:80 > 192.0.2.1:40000 dev eth0 uid 0 gid 0 state related reply " +
				"flags rst", false,
		},
	} {
		p := must(rules.ParsePacket(tc.packet))
		if diff.Possible(p) != tc.possible {
			t.Errorf("%s: %s: possible is %t, want %t", tc.name, p, !tc.possible, tc.possible)
		}
	}
}

func TestFieldsThatDoNotApplyMakeAPacketImpossible(t *testing.T) {
	ordinary := must(rules.ParsePacket("in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0"))
	for name, change := range map[string]func(*rules.Packet){
		"ports of a protocol without ports": func(p *rules.Packet) {
			p.Protocol, p.Flags = rules.ICMP, 0
		},
		"flags of UDP": func(p *rules.Packet) { p.Protocol = rules.UDP },
		"a conntrack mark without a connection": func(p *rules.Packet) {
			p.State, p.ConntrackMark = rules.Invalid, 1
		},
		"a conntrack mark of an untracked packet": func(p *rules.Packet) {
			p.State, p.ConntrackMark = rules.Untracked, 1
		},
		"a socket owner of an arriving packet": func(p *rules.Packet) { p.Owner = &rules.Owner{} },
		"addresses of two families": func(p *rules.Packet) {
			p.Source = must(rules.ParsePacket("in tcp [::2]:1 > [::3]:1")).Source
		},
		"a hook other than prerouting and output": func(p *rules.Packet) { p.Hook = rules.Input },
	} {
		p := ordinary
		if change(&p); diff.Possible(p) {
			t.Errorf("%s is possible: %s, want impossible", name, p)
		}
	}
}

// must returns the value. It panics if there is an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// TestDomainContainsThePossiblePackets compares an empty ruleset with one that drops everything.
// The packets that differ are the whole domain.
func TestDomainContainsThePossiblePackets(t *testing.T) {
	drops := func(h rules.Hook) rules.Chain { return base(rules.Filter, h, -150, when(rules.Drop)) }
	everything := rules.Ruleset{Tables: []rules.Table{{
		Name: "t", Chains: []rules.Chain{drops(rules.Prerouting), drops(rules.Output)},
	}}}
	result := decide(everything, rules.Ruleset{})
	rapid.Check(t, func(t *rapid.T) {
		g := uniform(t)
		for range 50 {
			checkPacket(t, g.packet(), result, &everything, &rules.Ruleset{})
		}
	})
	if len(result.Classes) != 4 {
		t.Errorf("got the classes %v, want one for each family and hook", classes(result))
	}
}

// TestRelatedPacketsThatExist compares a rule that drops packets in state related with no rule. The
// rule makes a difference only if it matches packets that exist (ICMPStateFollowsType,
// RelatedFollowsOrigin).
func TestRelatedPacketsThatExist(t *testing.T) {
	related := rules.MatchState{States: rules.States(rules.Related)}
	original, reply := rules.MatchDirection{}, rules.MatchDirection{Reply: true}
	udp, reset := protocol(rules.UDP), rules.MatchTCPFlags{Mask: rules.RST, Value: rules.RST}
	noReset := rules.MatchTCPFlags{Mask: rules.RST}
	icmp := func(v6 bool, messageType uint16) rules.Match {
		values := []rules.Range[uint16]{{First: messageType << 8, Last: messageType<<8 | 0xff}}
		return rules.MatchICMP{V6: v6, Values: values}
	}
	ofIPv4 := func(messageType uint16) rules.Match { return icmp(false, messageType) }
	ofIPv6 := func(messageType uint16) rules.Match { return icmp(true, messageType) }
	ofUser := rules.MatchOwner{IDs: rules.Singles[uint32](1000)}
	notLoopback := rules.MatchInterface{Not: true, Names: []rules.InterfaceName{{Name: "lo"}}}
	arriving, sent := []rules.Hook{rules.Prerouting}, []rules.Hook{rules.Output}
	both := []rules.Hook{rules.Prerouting, rules.Output}
	resets := base(rules.Filter, rules.Input, 0, when(rules.Reject{With: "tcp reset"}, tcp))
	for _, tc := range []struct {
		name     string
		hooks    []rules.Hook
		priority int
		matches  []rules.Match // except the state
		want     diff.Verdict
	}{
		{"replies of UDP", both, -150, []rules.Match{udp, reply}, diff.Equivalent},
		{
			"replies of UDP that a user sends", sent, -150,
			[]rules.Match{udp, reply, ofUser},
			diff.Equivalent,
		},
		{"replies of TCP", both, -150, []rules.Match{tcp, reply, noReset}, diff.Equivalent},
		{
			"resets of other hosts", arriving, -150,
			[]rules.Match{tcp, reply, notLoopback},
			diff.Equivalent,
		},
		{
			"resets that a user sends", sent, -150,
			[]rules.Match{tcp, reply, ofUser},
			diff.Equivalent,
		},
		{"resets of reject rules", sent, -150, []rules.Match{tcp, reply}, diff.Different},
		{"expected connections of UDP", both, -150, []rules.Match{udp, original}, diff.Different},
		{"echo replies", both, -150, []rules.Match{ofIPv4(0)}, diff.Equivalent},
		{"expected echo requests", both, -150, []rules.Match{ofIPv4(8), original}, diff.Different},
		{"echo requests in the reply direction", both, -150, []rules.Match{ofIPv4(8), reply}, diff.Equivalent},
		{"echo requests before conntrack", sent, -310, []rules.Match{ofIPv4(8)}, diff.Equivalent},
		{"errors of IPv4", both, -150, []rules.Match{ofIPv4(3), reply}, diff.Different},
		{"errors about replies", both, -150, []rules.Match{ofIPv4(11), original}, diff.Different},
		{"errors before conntrack", sent, -310, []rules.Match{ofIPv4(3)}, diff.Different},
		{"router solicitations of IPv4", both, -150, []rules.Match{ofIPv4(10)}, diff.Equivalent},
		{"neighbor solicitations", both, -150, []rules.Match{ofIPv6(135)}, diff.Equivalent},
		{"errors of IPv6", both, -150, []rules.Match{ofIPv6(1), reply}, diff.Different},
		{"errors of IPv6 before conntrack", sent, -310, []rules.Match{ofIPv6(4)}, diff.Different},
		{"redirects of IPv6", both, -150, []rules.Match{ofIPv6(137)}, diff.Different},
		{
			"redirects of IPv6 before conntrack", sent, -310,
			[]rules.Match{ofIPv6(137)},
			diff.Equivalent,
		},
	} {
		for _, hook := range tc.hooks {
			drop := base(rules.Filter, hook, tc.priority,
				when(rules.Drop, append(tc.matches, related)...))
			with, without := ruleset(drop, resets), ruleset(resets)
			with.Tables[0].Family, without.Tables[0].Family = rules.Inet, rules.Inet
			r := decide(with, without)
			if got := r.StrictVerdict(); got != tc.want {
				t.Errorf("%s at %s: verdict %s, want %s; classes %v", tc.name, hook, got, tc.want,
					classes(r))
			}
			for _, c := range r.Classes {
				if !diff.Possible(c.Witness) {
					t.Errorf("%s at %s: the witness %s is not possible", tc.name, hook, c.Witness)
				}
			}
		}
	}
	for _, hook := range both {
		drop := base(rules.Filter, hook, -150, when(rules.Drop, reset, related, original))
		r := decide(ruleset(drop), ruleset())
		if got := r.StrictVerdict(); got != diff.Different {
			t.Errorf("resets of expected connections at %s, and no rule sends resets: verdict %s, want %s",
				hook, got, diff.Different)
		}
	}
	// The model evaluates NAT chains for these resets. In the kernel, the first packet of the
	// connection has already determined the mapping.
	redirecting := ruleset(base(rules.NAT, rules.Output, -100, when(redirect(15001), reset, related)))
	r := decide(redirecting, ruleset())
	if got := r.StrictVerdict(); got != diff.Different {
		t.Errorf("a redirection of resets of expected connections: verdict %s, want %s", got,
			diff.Different)
	}
	for _, c := range r.Classes {
		explained := diff.Explain(&redirecting, c.Witness).Outcome
		if explained != c.Outcome.Left.Outcome || explained.Redirect != 15001 {
			t.Errorf("%s: %s, in its class %s; want a redirection in both", c.Witness, explained,
				c.Outcome.Left.Outcome)
		}
	}
	nat := natIn(when(rules.Drop, reply))
	if r = decide(ruleset(nat), ruleset(natIn())); r.StrictVerdict() != diff.Equivalent {
		t.Errorf("replies in a NAT chain: verdict %s, want %s; classes %v", r.StrictVerdict(),
			diff.Equivalent, classes(r))
	}
}

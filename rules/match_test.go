package rules_test

import (
	"testing"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

func TestMatches(t *testing.T) {
	const (
		fromRoot = "out tcp 10.244.1.5:40000 > 10.9.9.9:80 uid 0"
		noSocket = "out tcp 10.244.1.5:40000 > 10.9.9.9:80 no-socket"
		ipv6     = "in udp [fd00::9]:53 > [fd00::5]:40000"
		ping     = "in icmp 10.1.1.1 > 10.244.1.5"
	)
	twoRanges := rules.AddrRanges(prefixSelection("10.0.0.0/8,12.0.0.0/8").Prefixes)
	syn := rules.MatchTCPFlags{Mask: rules.SYN | rules.ACK, Value: rules.SYN}
	for _, tc := range []struct {
		name    string
		match   rules.Match
		packet  string
		want    bool
		nftText string
	}{
		{
			"one of several names",
			rules.MatchInterface{Names: interfaceNames("eth0,eth1")},
			in,
			true, `iifname { "eth0", "eth1" }`,
		},
		{
			"an interface name pattern",
			rules.MatchInterface{Names: interfaceNames("et+")},
			in, true,
			`iifname "et*"`,
		},
		{
			"another name",
			rules.MatchInterface{Names: interfaceNames("et")},
			in, false,
			`iifname "et"`,
		},
		{
			"a negated name",
			rules.MatchInterface{Not: true, Names: interfaceNames("eth1")},
			in,
			true, `iifname != "eth1"`,
		},
		{
			"the output interface",
			rules.MatchInterface{Out: true, Names: interfaceNames("eth0")},
			out, true,
			`oifname "eth0"`,
		},
		{
			"the input interface of an outgoing packet",
			rules.MatchInterface{Names: interfaceNames("eth0")},
			out, false, `iifname "eth0"`,
		},
		{
			"a negated input interface of an outgoing packet matches, because its name is empty",
			rules.MatchInterface{Not: true, Names: interfaceNames("eth0")},
			out, true, `iifname != "eth0"`,
		},

		{"the family", rules.MatchFamily{Family: rules.IPv6}, ipv6, true, "meta nfproto ipv6"},
		{
			"another family",
			rules.MatchFamily{Family: rules.IPv4},
			ipv6, false,
			"meta nfproto ipv4",
		},
		{
			"a tuple of family and direction that is none of several tuples",
			rules.MatchTuple{Not: true, Alternatives: [][]rules.Match{
				{rules.MatchFamily{Family: rules.IPv4}, rules.MatchDirection{}},
				{rules.MatchFamily{Family: rules.IPv6}, rules.MatchDirection{Reply: true}},
			}},
			ipv6, true,
			"!= { meta nfproto ipv4 . ct direction original, meta nfproto ipv6 . ct direction reply }",
		},

		{
			"an address in a range",
			rules.MatchAddr{Side: rules.Destination, Ranges: twoRanges},
			in,
			true, "ip daddr { 10.0.0.0/8, 12.0.0.0/8 }",
		},
		{
			"an address in a named set",
			rules.MatchAddr{Ranges: twoRanges, Set: "s"},
			in, true,
			"ip saddr @s",
		},
		{
			"a negated range",
			rules.MatchAddr{Not: true, Ranges: twoRanges},
			"in icmp 11.0.0.0 > 10.0.0.0", true, "ip saddr != { 10.0.0.0/8, 12.0.0.0/8 }",
		},
		{
			"a range that is not a prefix",
			rules.MatchAddr{Ranges: []netipx.IPRange{netipx.MustParseIPRange("10.1.1.0-10.1.1.9")}},
			in, true,
			"ip saddr 10.1.1.0-10.1.1.9",
		},
		{
			"a list without ranges matches no address, even if negated",
			rules.MatchAddr{Not: true},
			in, false,
			"inet saddr != {  }",
		},
		{
			"an address of another family does not match a range",
			rules.MatchAddr{Ranges: twoRanges},
			ipv6, false,
			"ip saddr { 10.0.0.0/8, 12.0.0.0/8 }",
		},
		{
			"an address of another family does not match a negated range",
			rules.MatchAddr{Not: true, Ranges: twoRanges, Set: "s"},
			ipv6, false,
			"ip saddr != @s",
		},

		{
			"a protocol",
			rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}},
			in, true,
			"meta l4proto tcp",
		},
		{
			"not a protocol",
			rules.MatchProtocol{Not: true, Protocols: []rules.Protocol{rules.TCP, 47}},
			ping, true,
			"meta l4proto != { tcp, 47 }",
		},

		{
			"a port",
			rules.MatchPort{Side: rules.Destination, Ports: ports("80,8000-9000")},
			in,
			true, "th dport { 80, 8000-9000 }",
		},
		{"not a port", rules.MatchPort{Not: true, Ports: ports("80")}, in, true, "th sport != 80"},
		{
			"a protocol without ports does not match a negated port",
			rules.MatchPort{Not: true, Ports: ports("80")},
			ping, false, "th sport != 80",
		},

		{"a SYN", syn, in, true, "tcp flags & (syn | ack) == syn"},
		{"an answer to a SYN", syn, in + " flags syn,ack", false, "tcp flags & (syn | ack) == syn"},
		{
			"not a SYN",
			rules.MatchTCPFlags{Not: true, Mask: rules.SYN | rules.ACK, Value: rules.SYN},
			in + " flags none", true,
			"tcp flags & (syn | ack) != syn",
		},
		{
			"negated flags do not match a protocol without flags",
			rules.MatchTCPFlags{Not: true, Mask: rules.RST},
			ping,
			false, "tcp flags & (rst) != 0x0",
		},

		{"a user", rules.MatchOwner{IDs: ids("0")}, fromRoot, true, "meta skuid 0"},
		{
			"another group",
			rules.MatchOwner{Group: true, IDs: ids("1,2-3")},
			fromRoot, false,
			"meta skgid { 1, 2-3 }",
		},
		{
			"not a user",
			rules.MatchOwner{Not: true, IDs: ids("1337")},
			fromRoot, true,
			"meta skuid != 1337",
		},
		{
			"without a socket, a user does not match",
			rules.MatchOwner{IDs: ids("0")},
			noSocket, false,
			"meta skuid 0",
		},
		{
			"without a socket, a negated user does not match in nftables",
			rules.MatchOwner{Not: true, IDs: ids("1337")},
			noSocket,
			false, "meta skuid != 1337",
		},
		{
			"without a socket, a negated user matches in xtables",
			rules.MatchOwner{Not: true, Socketless: true, IDs: ids("1337")},
			noSocket, true, "meta skuid != 1337",
		},
		{
			"with a socket of the user, a negated user does not match in xtables",
			rules.MatchOwner{Not: true, Socketless: true, IDs: ids("0")},
			fromRoot, false,
			"meta skuid != 0",
		},
		{
			"without a socket, a user does not match in xtables",
			rules.MatchOwner{Socketless: true, IDs: ids("0")},
			noSocket, false, "meta skuid 0",
		},

		{
			"a mark",
			rules.MatchMark{Value: 0x539, Mask: ^uint32(0)},
			in + " mark 0x539", true,
			"meta mark 0x539",
		},
		{
			"some bits of a mark",
			rules.MatchMark{Value: 0x30, Mask: 0xf0},
			in + " mark 0x539",
			true, "meta mark & 0xf0 == 0x30",
		},
		{
			"negated bits of a mark",
			rules.MatchMark{Not: true, Value: 0x30, Mask: 0xf0},
			in + " mark 0x539", false, "meta mark & 0xf0 != 0x30",
		},
		{
			"the connection's mark",
			rules.MatchMark{Conntrack: true, Value: 1, Mask: ^uint32(0)},
			in + " ctmark 1", true, "ct mark 0x1",
		},
		{
			"a negated connection mark",
			rules.MatchMark{Conntrack: true, Not: true, Value: 1, Mask: ^uint32(0)},
			in, true,
			"ct mark != 0x1",
		},
		{
			"without a connection, a negated connection mark does not match",
			rules.MatchMark{Conntrack: true, Not: true, Value: 1, Mask: ^uint32(0)},
			in + " state invalid", false, "ct mark != 0x1",
		},

		{
			"one of several states",
			rules.MatchState{States: rules.States(rules.Established, rules.Related)},
			in + " state related", true,
			"ct state established,related",
		},
		{
			"several negated states",
			rules.MatchState{Not: true, States: rules.States(rules.New, rules.Untracked)},
			in,
			false, "ct state != new,untracked",
		},

		{"an unknown match", unknown, in, false, "unknown(xt string)"},
	} {
		p := packet(tc.packet)
		if got := isFulfilled(tc.match, p); got != tc.want {
			t.Errorf("%s: %s matches %s: %t, want %t", tc.name, tc.match, p, got, tc.want)
		}
		if tc.match.String() != tc.nftText {
			t.Errorf("%s: text %q, want %q", tc.name, tc.match, tc.nftText)
		}
	}
}

func TestActionText(t *testing.T) {
	for want, a := range map[string]rules.Action{
		"accept": rules.Accept, "drop": rules.Drop, "return": rules.Return,
		"jump c": rules.Jump{Chain: "c"}, "goto c": rules.Jump{Chain: "c", Goto: true},
		"redirect to :15001": redirect(15001), "tproxy to :15006": rules.TProxy{Port: 15006},
		"TPROXY redirect 0.0.0.0:15006 mark 0x539/0xffffffff": rules.TProxyDrop{
			Port: 15006, Value: 0x539, Mask: ^uint32(0),
		},
		"meta mark set 0x539":                         mark(0x539),
		"meta mark set meta mark & 0xffffff0f | 0x30": bits(0x30, 0xf0),
		"ct mark set meta mark":                       rules.SaveMark{},
		"meta mark set ct mark":                       rules.RestoreMark{},
		"ct zone set 2":                               rules.SetZone{Zone: 2},
		"counter":                                     rules.Count{}, "unknown(xt string)": unknown,
		"log": rules.NoEffect{Text: "log"},
	} {
		if a.String() != want {
			t.Errorf("%T: text %q, want %q", a, a, want)
		}
	}
}

func TestSortMatchesPutsCheapAndSelectiveMatchesFirst(t *testing.T) {
	matches := []rules.Match{
		unknown,
		rules.MatchState{States: rules.States(rules.New)},
		rules.MatchMark{Conntrack: true, Value: 1, Mask: 1},
		rules.MatchMark{Value: 1, Mask: 1},
		rules.MatchOwner{Group: true, IDs: ids("1")},
		rules.MatchOwner{IDs: ids("1")},
		rules.MatchTCPFlags{Mask: rules.SYN, Value: rules.SYN},
		rules.MatchPort{Side: rules.Destination, Ports: ports("2")},
		rules.MatchPort{Ports: ports("1")},
		rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}},
		rules.MatchAddr{
			Side: rules.Destination, Ranges: rules.AddrRanges(prefixSelection("::1/128").Prefixes),
		},
		rules.MatchAddr{Ranges: rules.AddrRanges(prefixSelection("::1/128").Prefixes)},
		rules.MatchFamily{Family: rules.IPv6},
		rules.MatchInterface{Names: interfaceNames("lo")},
	}
	rules.SortMatches(matches)
	rule := rules.Rule{Matches: matches, Actions: []rules.Action{rules.Accept}}
	const want = `iifname "lo" meta nfproto ipv6 ip6 saddr ::1 ip6 daddr ::1 tcp sport 1 tcp dport 2 tcp flags & (syn) == syn ` +
		`meta skuid 1 meta skgid 1 meta mark & 0x1 == 0x1 ct mark & 0x1 == 0x1 ct state new unknown(xt string) accept`
	if rule.String() != want {
		t.Errorf("got  %s\nwant %s", &rule, want)
	}
}

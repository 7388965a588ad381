package save_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// tableOf returns a table with the chain OUTPUT, and with a user-defined chain A that has the
// rules.
func tableOf(name string, list ...rules.Rule) rules.Table {
	return rules.Table{Family: rules.IPv4, Name: name, Chains: []rules.Chain{
		{Name: "OUTPUT", Base: save.Base(name, rules.Output, false)},
		{Name: "A", Rules: list},
	}}
}

// ruleOf returns a rule with the given matches and actions.
func ruleOf(parts ...any) rules.Rule {
	var r rules.Rule
	for _, p := range parts {
		switch p := p.(type) {
		case unknownAction:
			r.Actions = append(r.Actions, rules.Unknown{Text: string(p)})
		case rules.Match:
			r.Matches = append(r.Matches, p)
		case rules.Action:
			r.Actions = append(r.Actions, p)
		}
	}
	return r
}

var icmpOnly = rules.MatchProtocol{Protocols: []rules.Protocol{rules.ICMP}}

// unknownAction is the text of an unknown action. It is a type because rules.Unknown is both a
// rules.Match and a rules.Action.
type unknownAction string

func TestPrintNamesRulesThatIPTablesCannotExpress(t *testing.T) {
	tcp := rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}
	udp := rules.MatchProtocol{Protocols: []rules.Protocol{rules.UDP}}
	both := rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP, rules.UDP}}
	port := func(list ...uint16) rules.MatchPort {
		return rules.MatchPort{Ports: rules.Singles(list...)}
	}
	ranges := func(texts ...string) rules.MatchAddr {
		var m rules.MatchAddr
		for _, text := range texts {
			m.Ranges = append(m.Ranges, netipx.MustParseIPRange(text))
		}
		return m
	}
	named := func(names ...string) rules.MatchInterface {
		var m rules.MatchInterface
		for _, n := range names {
			m.Names = append(m.Names, rules.InterfaceName{Name: n})
		}
		return m
	}
	ids := func(not, socketless bool, ranges ...rules.IDRange) rules.MatchOwner {
		return rules.MatchOwner{Group: true, Not: not, Socketless: socketless, IDs: ranges}
	}
	for _, tc := range []struct {
		table string
		rule  rules.Rule
		want  string // after the position
	}{
		{
			"nat", ruleOf(rules.Accept, rules.Drop),
			"accept drop: an iptables rule has at most one action",
		},
		{"nat", ruleOf(rules.Count{}, rules.Count{}), "counter: iptables has no such target"},
		{"nat", ruleOf(rules.TProxy{Port: 1}), "tproxy to :1: iptables has no such target"},
		{"nat", ruleOf(unknownAction("-j X")), "unknown(-j X): iptables has no such target"},
		{"nat", ruleOf(rules.Jump{Chain: "B"}), "jump B: the table has no such chain"},
		{
			"nat", ruleOf(rules.RedirectTo{Port: 1}),
			"redirect to :1: the rule must match tcp or udp",
		},
		{
			"nat", ruleOf(both, rules.RedirectTo{Port: 1}),
			"meta l4proto { tcp, udp }: iptables compares one protocol, from 1 to 255",
		},
		{
			"nat", ruleOf(tcp, rules.RedirectTo{Last: 9}),
			"redirect to :0-9: port 0 keeps the port of the connection",
		},
		{"nat", ruleOf(tcp, rules.DNATPort{}), "dnat to : port 0 keeps the port of the connection"},
		{
			"nat", ruleOf(rules.DNATTo{Addr: netip.IPv6Loopback()}),
			"dnat ip6 to ::1: the address is not of the table's family",
		},
		{
			"nat", ruleOf(rules.DNATTo{Addr: netip.IPv4Unspecified(), Port: 1}),
			"dnat ip to 0.0.0.0:1: the rule must match tcp or udp",
		},
		{
			"mangle", ruleOf(rules.DNATTo{Addr: netip.IPv4Unspecified()}),
			"dnat ip to 0.0.0.0: this target is in table nat only",
		},
		{
			"mangle", ruleOf(rules.Reject{With: "icmp port-unreachable"}),
			"reject with icmp port-unreachable: this target is in table filter only",
		},
		{
			"filter", ruleOf(rules.Reject{With: "tcp reset"}),
			"reject with tcp reset: the rule must match tcp",
		},
		{"filter", ruleOf(rules.Reject{}), "reject: iptables has no such REJECT type in this family"},
		{"nat", ruleOf(rules.Notrack{}), "notrack: this target is in table raw only"},
		{
			"mangle", ruleOf(rules.MixMark{Conntrack: true, Mark: 1, Xor: 1}),
			"ct mark set meta mark & 0x1 ^ 0x1: iptables has no such target",
		},
		{
			"mangle", ruleOf(rules.MixMark{Mark: 1}),
			"meta mark set meta mark & 0x1: iptables has no such target",
		},
		{
			"mangle", ruleOf(rules.Require{Match: rules.MatchMark{}}, rules.Accept),
			"meta mark & 0x0 == 0x0 accept: an iptables rule has at most one action",
		},
		{
			"mangle", ruleOf(tcp, rules.RedirectTo{Port: 1}),
			"redirect to :1: this target is in table nat only",
		},
		{
			"mangle", ruleOf(tcp, rules.DNATPort{Port: 1}),
			"dnat to :1: this target is in table nat only",
		},
		{
			"mangle", ruleOf(rules.SetZone{Zone: 1}),
			"ct zone set 1: this target is in table raw only",
		},
		{
			"nat", ruleOf(tcp, rules.TProxyDrop{Port: 1}),
			"TPROXY redirect 0.0.0.0:1 mark 0x0/0x0: this target is in table mangle only",
		},
		{
			"mangle", ruleOf(tcp, rules.TProxyDrop{Port: 1, Addr: netip.IPv6Loopback()}),
			"TPROXY redirect [::1]:1 mark 0x0/0x0: the address is not of the table's family",
		},

		{"nat", ruleOf(named("a", "b")), `iifname { "a", "b" }: iptables compares one interface`},
		{
			"nat", ruleOf(named("a"), named("b")),
			`iifname "b": iptables compares this once in a rule`,
		},
		{"nat", ruleOf(named("a b")), `iifname "a b": iptables does not support this interface name`},
		{
			"nat", ruleOf(named("a234567890123456")),
			`iifname "a234567890123456": the name is longer than 15 bytes`,
		},
		{
			"nat", ruleOf(rules.MatchFamily{Family: rules.IPv4}),
			"meta nfproto ipv4: iptables has no such match",
		},
		{
			"nat", ruleOf(ranges("10.0.0.1-10.0.0.2", "10.0.0.5-10.0.0.6")),
			"ip saddr { 10.0.0.1-10.0.0.2, 10.0.0.5-10.0.0.6 }: iptables compares one range of addresses of the table's family",
		},
		{
			"nat", ruleOf(ranges("fd00::1-fd00::2")),
			"ip6 saddr fd00::1-fd00::2: iptables compares one range of addresses of the table's family",
		},
		{"nat", ruleOf(tcp, udp), "meta l4proto udp: iptables compares this once in a rule"},
		{
			"nat", ruleOf(rules.MatchProtocol{Protocols: []rules.Protocol{0}}),
			"meta l4proto 0: iptables compares one protocol, from 1 to 255",
		},
		{
			"nat", ruleOf(port(80)),
			"th sport 80: the rule must match a protocol with ports, such as tcp or udp",
		},
		{
			"nat", ruleOf(rules.MatchProtocol{Not: true, Protocols: tcp.Protocols}, port(80)),
			"th sport 80: the rule must match a protocol with ports, such as tcp or udp",
		},
		{
			"nat", ruleOf(tcp, port(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)),
			"th sport { 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 }: iptables compares 1 to 15 ports, of which a range counts as two",
		},
		{
			"nat", ruleOf(udp, rules.MatchTCPFlags{Mask: 2, Value: 2}),
			"tcp flags & (syn) == syn: the rule must match tcp",
		},
		{
			"nat", ruleOf(tcp, rules.MatchTCPFlags{Mask: 0x82}),
			"tcp flags & (syn | cwr) == 0x0: iptables has no names for ecn and cwr",
		},
		{
			"nat", ruleOf(ids(false, true, rules.Single[uint32](5))),
			"meta skgid 5: iptables compares one range of ids",
		},
		{
			"nat", ruleOf(ids(false, false, rules.Single[uint32](5), rules.Single[uint32](7))),
			"meta skgid { 5, 7 }: iptables compares one range of ids",
		},
		{
			"nat", ruleOf(ids(false, false, rules.IDRange{Last: 1<<32 - 1})),
			"meta skgid 0-4294967295: iptables compares ids from 0 to 4294967294",
		},
		{"nat", ruleOf(rules.MatchState{}), "ct state : iptables needs at least one state"},
		{
			"nat", ruleOf(rules.MatchStatus{Status: rules.StatusDNAT}),
			"ct status dnat: iptables matches snat and dnat as states, not as status bits",
		},
		{
			"nat", ruleOf(rules.MatchAddrType{}),
			"fib saddr type {  }: iptables compares one type or more",
		},
		{
			"nat", ruleOf(rules.MatchSocket{Not: true}),
			"socket transparent 0: iptables has no such match",
		},
		{
			"nat", ruleOf(rules.MatchSocket{Kind: "x"}),
			"socket transparent 1 (x): iptables has no such match",
		},
		{
			"nat", ruleOf(rules.MatchReversePath{Kind: "x"}),
			"fib saddr . iif oif exists (x): iptables has no such match",
		},
		{
			"nat", ruleOf(rules.MatchICMP{Values: []rules.Range[uint16]{{First: 1, Last: 1}}}),
			"icmp type . code 0 . 1: the rule must match icmp in a table of ip",
		},
		{
			"nat",
			ruleOf(icmpOnly, rules.MatchICMP{Values: []rules.Range[uint16]{{First: 1, Last: 5}}}),
			"icmp type . code 0 . 1-0 . 5: iptables compares one type, with all of its codes or with one",
		},
		{
			"nat",
			ruleOf(icmpOnly, rules.MatchICMP{Values: []rules.Range[uint16]{{
				First: 255 << 8, Last: 255 << 8,
			}}}),
			"icmp type . code 255 . 0: iptables compares one type, with all of its codes or with one",
		},
		{"nat", ruleOf(tcp, rules.MatchTuple{}), "{ }: iptables has no such match"},
		{
			"nat", ruleOf(rules.MatchMarkRange{Values: rules.Singles[uint32](1)}),
			"meta mark 1: iptables has no such match",
		},
		{"nat", ruleOf(rules.Unknown{Text: "-m x"}), "unknown(-m x): iptables has no such match"},
		{"nat", rules.Rule{Comment: strings.Repeat("x", 256)}, `comment "` +
			strings.Repeat("x", 256) +
			`": want at most 255 bytes without control characters`},
		{
			"nat",
			rules.Rule{Comment: "a\nb"},
			`comment "a\nb": want at most 255 bytes without control characters`,
		},
	} {
		var b strings.Builder
		err := save.Print(&b, []rules.Table{tableOf(tc.table, ruleOf(), tc.rule)})
		want := "table ip " + tc.table + " chain A rule 2: " + tc.want
		if err == nil || err.Error() != want {
			t.Errorf("\n got %v\nwant %s", err, want)
		}
		if b.Len() > 0 {
			t.Errorf("want no output if there is an error, got:\n%s", b.String())
		}
	}
}

func TestPrintNamesTablesAndChainsThatIPTablesLacks(t *testing.T) {
	in := rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}}
	natWith := func(chain rules.Chain) rules.Table {
		return rules.Table{Family: rules.IPv6, Name: "nat", Chains: []rules.Chain{chain}}
	}
	for _, tc := range []struct {
		table rules.Table
		want  string
	}{
		{
			rules.Table{Family: rules.IPv4, Name: "sluice"},
			"table ip sluice: iptables has no such table",
		},
		{
			rules.Table{Family: rules.Inet, Name: "nat"},
			"table inet nat: iptables has no such table",
		},
		{
			natWith(rules.Chain{Name: "a b"}),
			"table ip6 nat chain a b: iptables does not allow this chain name",
		},
		{natWith(rules.Chain{Name: "LOG"}), "table ip6 nat chain LOG: a target has the same name"},
		{
			natWith(rules.Chain{Name: "A", Base: save.Base("nat", rules.Output, false)}),
			"table ip6 nat chain A: only built-in chains have a hook",
		},
		{
			natWith(rules.Chain{
				Name: "OUTPUT",
				Base: &rules.Base{Type: rules.NAT, Hook: rules.Output, Priority: -110},
			}),
			"table ip6 nat chain OUTPUT: type nat hook output priority -110; policy accept;: iptables has type nat hook output priority -100; policy accept;",
		},
		{
			natWith(rules.Chain{Name: "OUTPUT"}),
			"table ip6 nat chain OUTPUT: no hook: iptables has type nat hook output priority -100; policy accept;",
		},
		{
			natWith(rules.Chain{
				Name: "OUTPUT", Base: save.Base("nat", rules.Output, false),
				Rules: []rules.Rule{ruleOf(in)},
			}),
			`table ip6 nat chain OUTPUT rule 1: iifname "lo": at output there is no such interface`,
		},
	} {
		err := save.Print(&strings.Builder{}, []rules.Table{tc.table})
		if err == nil || err.Error() != tc.want {
			t.Errorf("\n got %v\nwant %s", err, tc.want)
		}
	}
}

func TestPrintWritesOneFamily(t *testing.T) {
	other := rules.Table{Family: rules.IPv6, Name: "raw"}
	err := save.Print(&strings.Builder{}, []rules.Table{tableOf("nat"), other})
	if err == nil || err.Error() != "table ip6 raw: want family ip, like the first table" {
		t.Errorf("error %v, want an error about the second family", err)
	}
}

// A chain that was read from a namespace has an order relative to other chains of the same
// priority.
func TestPrintIgnoresTheOrderOfChains(t *testing.T) {
	table := tableOf("nat")
	want := printed(t, []rules.Table{table})
	table.Chains[0].Base.Order = 7
	if got := printed(t, []rules.Table{table}); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestPrintReportsTheFirstErrorsAndCountsTheOthers(t *testing.T) {
	var list []rules.Rule
	for range 25 {
		list = append(list, ruleOf(rules.TProxy{Port: 1}))
	}
	err := save.Print(&strings.Builder{}, []rules.Table{tableOf("nat", list...)})
	if err == nil || strings.Count(err.Error(), "\n") != 20 ||
		!strings.HasSuffix(err.Error(), "\n5 more errors") {
		t.Errorf("error %v, want 20 errors and the number of further errors", err)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestPrintReturnsTheErrorOfTheWriter(t *testing.T) {
	broken := errors.New("broken")
	if err := save.Print(brokenWriter{broken}, []rules.Table{tableOf("nat")}); !errors.Is(err,
		broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}

// iptables-restore limits the number of words of a rule. It accepts the longest rules that Print
// writes. For longer rules, Print returns an error.
func TestPrintKeepsRulesShortEnoughToLoad(t *testing.T) {
	ports := rules.MatchPort{}
	for i := range 7 {
		first := uint16(10000 + 100*i)
		ports.Ports = append(ports.Ports, rules.PortRange{First: first, Last: first + 50})
	}
	many := func(n int, m rules.Match) rules.Rule {
		r := ruleOf(rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}, rules.Return)
		for range n {
			r.Matches = append(r.Matches, m)
		}
		return r
	}
	counted := func(r rules.Rule) rules.Rule {
		r.Hits = rules.Hits{Packets: 1, Bytes: 2}
		return r
	}
	mark := rules.MatchMark{Value: 1, Mask: ^uint32(0)}
	ns := netnstest.New(t)
	for _, tc := range []struct {
		name string
		rule rules.Rule
		want string // empty if the rule can be printed
	}{
		{"61 matches", many(61, mark), ""},
		{"62 matches", many(62, mark), "254 words: iptables-restore takes at most 251"},
		{"60 matches with a counter", counted(many(60, mark)), ""},
		{
			"61 matches with a counter", counted(many(61, mark)),
			"250 words: iptables-restore takes at most 248",
		},
		{"60 matches of many ports", many(60, ports), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tables := []rules.Table{tableOf("nat", tc.rule)}
			var b strings.Builder
			err := save.Print(&b, tables)
			if tc.want == "" && err == nil {
				istiotest.Run(t, ns, b.String(), "iptables-legacy-restore", "--counters")
			} else if want := "table ip nat chain A rule 1: " + tc.want; err == nil ||
				err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

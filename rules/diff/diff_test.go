package diff_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// Abbreviations for the tables below.

func ruleset(chains ...rules.Chain) rules.Ruleset {
	return rules.Ruleset{Tables: []rules.Table{{Family: rules.IPv4, Name: "t", Chains: chains}}}
}

func chain(name string, list ...rules.Rule) rules.Chain {
	return rules.Chain{Name: name, Rules: list}
}

func base(t rules.ChainType, h rules.Hook, priority int, list ...rules.Rule) rules.Chain {
	return rules.Chain{
		Name: fmt.Sprintf("%s-%s", t, h), Base: &rules.Base{Type: t, Hook: h, Priority: priority},
		Rules: list,
	}
}

func natIn(list ...rules.Rule) rules.Chain {
	return base(rules.NAT, rules.Prerouting, -100, list...)
}

func mangleIn(list ...rules.Rule) rules.Chain {
	return base(rules.Filter, rules.Prerouting, -150, list...)
}

func mangleOut(list ...rules.Rule) rules.Chain {
	return base(rules.Route, rules.Output, -150, list...)
}

func when(action rules.Action, matches ...rules.Match) rules.Rule {
	return rules.Rule{Matches: matches, Actions: []rules.Action{action}}
}

func protocol(p rules.Protocol) rules.Match {
	return rules.MatchProtocol{Protocols: []rules.Protocol{p}}
}

func toPort(ports ...uint16) rules.Match {
	return rules.MatchPort{Side: rules.Destination, Ports: rules.Singles(ports...)}
}

func to(prefixes ...string) rules.MatchAddr {
	return rules.MatchAddr{
		Side: rules.Destination, Ranges: rules.NormalizeAddrs(ranges(prefixes...)),
	}
}

func marked(value, mask uint32) rules.Match { return rules.MatchMark{Value: value, Mask: mask} }

func setMark(value, mask uint32) rules.Action { return rules.SetMark{Value: value, Mask: mask} }

func redirect(port uint16) rules.Action { return rules.RedirectTo{Port: port} }

var tcp = protocol(rules.TCP)

const everyBit = ^uint32(0)

// countUp changes mark 0 to 1, and mark 1 to 2.
var countUp = chain("c",
	when(setMark(2, everyBit), marked(1, everyBit)), when(rules.Return, marked(2, everyBit)),
	when(setMark(1, everyBit), marked(0, everyBit)))

// decide compares rulesets without routes.
func decide(left, right rules.Ruleset) diff.Result {
	return diff.Decide(diff.Side{Ruleset: left}, diff.Side{Ruleset: right}, diff.Options{})
}

// describe returns the conditions of a class as one line.
func describe(c diff.Class) string {
	var conditions []string
	for _, condition := range c.Packets {
		conditions = append(conditions, condition.String())
	}
	return strings.Join(conditions, "; ")
}

// classes returns the descriptions of all classes of a result.
func classes(r diff.Result) []string {
	var texts []string
	for _, c := range r.Classes {
		texts = append(texts, describe(c))
	}
	return texts
}

func TestEquivalentRulesets(t *testing.T) {
	drop, accept := rules.Drop, rules.Accept
	for _, tc := range []struct {
		name        string
		left, right rules.Ruleset
	}{
		{"no chain and an empty chain", ruleset(), ruleset(natIn())},
		{
			"one rule for each port, and one for all",
			ruleset(mangleIn(when(drop, tcp, toPort(80)), when(drop, tcp, toPort(443)))),
			ruleset(mangleIn(when(drop, tcp, toPort(80, 443)))),
		},
		{
			"two adjacent prefixes and their union",
			ruleset(mangleIn(when(drop, to("10.0.0.0/9")), when(drop, to("10.128.0.0/9")))),
			ruleset(mangleIn(when(drop, to("10.0.0.0/8")))),
		},
		{
			"the order of rules that match disjoint packets",
			ruleset(mangleIn(when(drop, tcp, toPort(80)), when(accept, tcp, toPort(443)))),
			ruleset(mangleIn(when(accept, tcp, toPort(443)), when(drop, tcp, toPort(80)))),
		},
		{
			"a rule that is shadowed by an earlier rule",
			ruleset(mangleIn(when(drop, tcp), when(setMark(1, 1), tcp, toPort(80)))),
			ruleset(mangleIn(when(drop, tcp))),
		},
		{
			"a mark that is set in two steps",
			ruleset(mangleIn(when(setMark(0x500, 0xffffff00)), when(setMark(0x39, 0xff)))),
			ruleset(mangleIn(when(setMark(0x539, everyBit)))),
		},
		{
			"a mark that the packet already has",
			ruleset(mangleIn(when(setMark(0x539, everyBit), marked(0x539, everyBit)))), ruleset(),
		},
		{
			"a mark that was saved and restored",
			ruleset(mangleIn(when(rules.SaveMark{}), when(setMark(7, everyBit)),
				when(rules.RestoreMark{}))),
			ruleset(mangleIn(when(rules.SaveMark{}),
				when(setMark(7, everyBit),
					rules.MatchState{States: rules.States(rules.Invalid, rules.Untracked)}))),
		},
		{
			"the mark of a dropped packet",
			ruleset(mangleIn(when(setMark(1, 1), tcp), when(drop))), ruleset(mangleIn(when(drop))),
		},
		{
			"NAT rules for established connections",
			ruleset(natIn(when(redirect(1),
				rules.MatchState{States: rules.States(rules.Established)}))), ruleset(),
		},
		{
			"NAT rules at prerouting for packets from lo",
			ruleset(natIn(when(redirect(1),
				rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}}))), ruleset(),
		},
		{
			"the socket owner of an arriving packet",
			ruleset(mangleIn(when(drop, rules.MatchOwner{IDs: []rules.IDRange{{Last: everyBit}}}))),
			ruleset(),
		},
		{
			"the conntrack state before conntrack",
			ruleset(base(rules.Filter, rules.Prerouting, -300,
				when(drop, to("10.244.1.5/32"), rules.MatchAddrType{
					Side: rules.Destination, Types: rules.AddrTypes(rules.Local),
				},
					rules.MatchInterface{Not: true, Names: []rules.InterfaceName{{Name: "lo"}}},
					rules.MatchState{States: rules.States(rules.New)}))),
			ruleset(),
		},
		{
			"later chains at output match the new destination of a redirected packet",
			ruleset(base(rules.NAT, rules.Output, -100, when(redirect(9), tcp)),
				base(rules.Filter, rules.Output, 0,
					when(drop, tcp, toPort(9), to("127.0.0.1/32")))),
			ruleset(base(rules.NAT, rules.Output, -100, when(redirect(9), tcp)),
				base(rules.Filter, rules.Output, 0,
					when(drop, tcp, rules.MatchState{States: rules.States(rules.New,
						rules.Related)},
						// NAT does not translate later packets
						rules.MatchStatus{Not: true, Status: rules.StatusConfirmed},
						// NAT does not translate resets
						rules.MatchTCPFlags{Mask: rules.RST}),
					when(drop, tcp, rules.MatchState{States: rules.States(rules.New)},
						rules.MatchStatus{Not: true, Status: rules.StatusConfirmed}),
					when(drop, tcp, rules.MatchState{States: rules.States(rules.Related)},
						rules.MatchTCPFlags{Mask: rules.RST}),
					when(drop, tcp, toPort(9), to("127.0.0.1/32")))),
		},
		{
			"two jumps to a chain that changes the packet: the second jump applies to the changed packet",
			ruleset(mangleIn(when(rules.Jump{Chain: "c"}, tcp),
				when(rules.Jump{Chain: "c"}, tcp, toPort(80))), countUp),
			ruleset(mangleIn(when(setMark(2, everyBit), tcp, toPort(80), marked(0, everyBit)),
				when(setMark(2, everyBit), tcp, toPort(80), marked(1, everyBit)),
				when(setMark(2, everyBit), tcp, marked(1, everyBit)),
				when(setMark(1, everyBit), tcp,
					rules.MatchPort{
						Not: true, Side: rules.Destination, Ports: rules.Singles[uint16](80),
					}, marked(0, everyBit)))),
		},
		{
			"the order of two drop rules, one of which matches a mark",
			ruleset(mangleIn(when(drop, marked(1, everyBit)), when(drop, tcp))),
			ruleset(mangleIn(when(drop, tcp), when(drop, marked(1, everyBit)))),
		},
		{
			"a chain at input, which is not compared",
			ruleset(base(rules.Filter, rules.Input, 0, when(drop))), ruleset(),
		},
	} {
		if r := decide(tc.left, tc.right); r.StrictVerdict() != diff.Equivalent {
			t.Errorf("%s: verdict %s, want %s: classes %v, undecided %v", tc.name, r.StrictVerdict(),
				diff.Equivalent, classes(r), r.Undecided)
		}
	}
}

func TestDescriptionsOfDifferences(t *testing.T) {
	drop := rules.Drop
	in := func(matches ...rules.Match) rules.Ruleset {
		return ruleset(mangleIn(when(drop, matches...)))
	}
	out := func(matches ...rules.Match) rules.Ruleset {
		return ruleset(mangleOut(when(drop, matches...)))
	}
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("10.%d.%d.0/24", i>>7, i<<1&255))
	}
	interfaceIs := func(names ...rules.InterfaceName) rules.Match {
		return rules.MatchInterface{Names: names}
	}
	not := func(m rules.MatchAddr) rules.Match { m.Not = true; return m }
	const arrives, leaves = "hook prerouting; family IPv4; ", "hook output; family IPv4; "
	for _, tc := range []struct {
		rs   rules.Ruleset
		want []string
	}{
		{in(tcp, toPort(15008)), []string{arrives + "protocol tcp; destination port 15008"}},
		{
			in(rules.MatchProtocol{Not: true, Protocols: []rules.Protocol{rules.TCP}}),
			[]string{arrives + "protocol not tcp"},
		},
		{in(to("10.0.0.0/8", "192.0.2.1/32")), []string{arrives +
			"destination 10.0.0.0/8, 192.0.2.1"}},
		{in(not(to("10.0.0.0/8"))), []string{arrives + "destination not 10.0.0.0/8"}},
		{in(to(many...)), []string{arrives +
			"destination 10.0.0.0/24, 10.0.2.0/24, 10.0.4.0/24 and 997 more"}},
		{in(not(to(many...))), []string{arrives +
			"destination not 10.0.0.0/24, 10.0.2.0/24, 10.0.4.0/24 and 997 more"}},
		{in(marked(0x539, everyBit)), []string{arrives + "mark 0x539"}},
		{in(marked(0x39, 0xff)), []string{arrives + "mark & 0xff == 0x39"}},
		{in(rules.MatchMark{Not: true, Value: 1, Mask: 1}), []string{arrives +
			"mark & 0x1 == 0x0"}},
		{in(rules.MatchMark{Not: true, Value: 3, Mask: 3}), []string{arrives +
			"mark & 0x3 != 0x3"}},
		{
			in(rules.MatchTCPFlags{Mask: rules.SYN | rules.ACK, Value: rules.SYN}),
			[]string{arrives + "flags & (syn | ack) == syn"},
		},
		{in(rules.MatchState{States: rules.States(rules.Invalid)}), []string{arrives +
			"state invalid"}},
		{
			ruleset(mangleIn(when(drop, rules.MatchState{States: rules.States(rules.Established,
				rules.Related, rules.Invalid)}),
				when(drop, rules.MatchStatus{Status: rules.StatusConfirmed}))),
			[]string{arrives + "state established, related, invalid, new but not the first packet"},
		},
		{in(interfaceIs(rules.InterfaceName{Name: "eth0"})), []string{arrives + "interface eth0"}},
		{
			in(rules.MatchInterface{Not: true, Names: []rules.InterfaceName{{Name: "eth0"}}}),
			[]string{arrives + "interface not eth0"},
		},
		{in(interfaceIs(rules.InterfaceName{Name: "eth", Prefix: true})), []string{arrives +
			"interface eth*"}},
		{out(rules.MatchOwner{IDs: rules.Singles[uint32](1337)}), []string{leaves + "user 1337"}},
		{
			out(rules.MatchOwner{Group: true, IDs: []rules.IDRange{{First: 1, Last: 5}}}),
			[]string{leaves + "group 1-5"},
		},
		{
			out(rules.MatchOwner{Not: true, IDs: rules.Singles[uint32](1337), Socketless: true}),
			[]string{leaves + "user not 1337"},
		},
		{out(rules.MatchOwner{IDs: []rules.IDRange{{Last: everyBit}}}), []string{leaves +
			"user any"}},
		{
			in(rules.MatchReversePath{Not: true}),
			[]string{arrives + "the route to the source uses the input interface no"},
		},
		{
			ruleset(mangleIn(when(rules.TProxyDrop{Port: 9, Value: 1, Mask: everyBit}, tcp))),
			[]string{arrives + "protocol tcp; listener listens", arrives +
				"protocol tcp; listener none listens"},
		},
	} {
		got := slices.DeleteFunc(classes(decide(tc.rs, ruleset())), overLoopback)
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s(-want +got)\n%s", tc.rs, d)
		}
	}
	if got := classes(decide(out(rules.MatchOwner{IDs: []rules.IDRange{{Last: everyBit}}}),
		out())); !slices.Equal(got, []string{leaves + "user no socket"}) {
		t.Errorf("a drop of packets with a socket, and of all packets: classes %q, "+
			"want one of packets without a socket", got)
	}
}

// overLoopback reports whether the packets of a class match a rule only at prerouting, after they
// were sent over lo.
func overLoopback(class string) bool {
	return strings.HasPrefix(class, "hook output; family IPv4; ") &&
		strings.Contains(class, "interface lo")
}

// addrTypes returns the condition that an address has one of the types.
func addrTypes(side rules.Side, types ...rules.AddrType) rules.Match {
	return rules.MatchAddrType{Side: side, Types: rules.AddrTypes(types...)}
}

func TestWitnessesAreTypicalPackets(t *testing.T) {
	drop := rules.Drop
	for _, tc := range []struct {
		rs   rules.Ruleset
		want string
	}{
		{ruleset(mangleIn(when(drop))), "in tcp 192.0.2.10:40000 > 10.244.1.5:8080 dev eth0"},
		{
			ruleset(mangleOut(when(drop))),
			"out tcp 10.244.1.5:40000 > 192.0.2.10:8080 dev eth0 uid 1000 gid 1000",
		},
		{
			ruleset(mangleOut(when(drop, to("127.0.0.1/32")))),
			"out tcp 10.244.1.5:40000 > 127.0.0.1:8080 dev lo uid 1000 gid 1000",
		},
		{
			ruleset(mangleOut(when(drop, rules.MatchInterface{
				Out: true, Names: []rules.InterfaceName{{Name: "lo"}},
			}))),
			"out tcp 10.244.1.5:40000 > 10.244.1.5:8080 dev lo uid 1000 gid 1000",
		},
		{
			ruleset(mangleIn(when(drop, to("10.96.0.0/12")))),
			"in tcp 192.0.2.10:40000 > 10.96.0.1:8080 dev eth0",
		},
		{
			ruleset(mangleIn(when(drop, tcp,
				rules.MatchState{States: rules.States(rules.Established)}))),
			"in tcp 192.0.2.10:40000 > 10.244.1.5:8080 dev eth0 state established",
		},
		{
			// The redirection does not change a packet to the interface's own address.
			ruleset(natIn(when(redirect(8080), tcp, toPort(8080)))),
			"in tcp 192.0.2.10:40000 > 10.244.1.5:8080 dev eth0 in-address 10.244.1.6",
		},
		{
			ruleset(mangleIn(when(drop, addrTypes(rules.Destination, rules.Local)))),
			"in tcp 192.0.2.10:40000 > 10.244.1.5:8080 dev eth0 dst-type local",
		},
		{
			ruleset(mangleOut(when(drop, rules.MatchInterface{
				Out: true, Names: []rules.InterfaceName{{Name: "lo"}},
			}, addrTypes(rules.Destination, rules.Unicast)))),
			"out tcp 10.244.1.5:40000 > 10.244.1.5:8080 dev lo uid 1000 gid 1000 dst-type unicast",
		},
		{
			ruleset(mangleIn(when(drop, protocol(rules.SCTP)))),
			"in sctp 192.0.2.10:40000 > 10.244.1.5:8080 dev eth0",
		},
	} {
		r := decide(tc.rs, ruleset())
		if !slices.ContainsFunc(r.Classes, func(c diff.Class) bool {
			return c.Witness.String() == tc.want
		}) {
			t.Errorf("%sclasses %v, want the witness %s", tc.rs, r.Classes, tc.want)
		}
	}
}

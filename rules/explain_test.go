package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// ruleset returns a table of the family with the chains.
func ruleset(f rules.Family, chains ...rules.Chain) rules.Ruleset {
	return rules.Ruleset{Tables: []rules.Table{{Family: f, Name: "t", Chains: chains}}}
}

func base(t rules.ChainType, h rules.Hook, priority int, list ...rules.Rule) rules.Chain {
	name := strings.Join([]string{t.String(), h.String()}, "-")
	return rules.Chain{
		Name: name, Base: &rules.Base{Type: t, Hook: h, Priority: priority}, Rules: list,
	}
}

func chain(name string, list ...rules.Rule) rules.Chain {
	return rules.Chain{Name: name, Rules: list}
}

// do returns a rule for every packet.
func do(actions ...rules.Action) rules.Rule { return rules.Rule{Actions: actions} }

// when returns a rule with matches.
func when(action rules.Action, matches ...rules.Match) rules.Rule {
	return rules.Rule{Matches: matches, Actions: []rules.Action{action}}
}

func mark(n uint32) rules.SetMark { return rules.SetMark{Value: n, Mask: ^uint32(0)} }

func bits(value, mask uint32) rules.SetMark { return rules.SetMark{Value: value, Mask: mask} }

func redirect(port uint16) rules.RedirectTo { return rules.RedirectTo{Port: port} }

func dnat(port uint16) rules.DNATPort { return rules.DNATPort{Port: port} }

var unknown = rules.Unknown{Text: "xt string", Effect: rules.Reads}

const in, out = "in tcp 10.1.1.1:1 > 10.244.1.5:80", "out tcp 10.244.1.5:1 > 10.9.9.9:80"

func TestEvaluationOfChains(t *testing.T) {
	filter, drop := rules.Filter, rules.Drop
	pre, output := rules.Prerouting, rules.Output
	for _, tc := range []struct {
		name   string
		rs     rules.Ruleset
		packet string
		want   rules.Outcome
	}{
		{
			"chains run in the order of their priority",
			ruleset(rules.Inet, base(filter, pre, 10, do(mark(2))),
				base(filter, pre, -10, do(mark(1)))), in,
			rules.Outcome{Mark: 2},
		},
		{
			"chains of equal priority run in the order of the text",
			ruleset(rules.Inet, base(filter, pre, 0, do(mark(1))),
				base(filter, pre, 0, do(mark(2)))), in,
			rules.Outcome{Mark: 2},
		},
		{
			"a chain of another hook does not run",
			ruleset(rules.Inet, base(filter, output, 0, do(drop))), in,
			rules.Outcome{},
		},
		{
			"a chain in a table of the packet's family runs", ruleset(rules.IPv4, base(filter, pre, 0, do(drop))),
			in,
			rules.Outcome{Dropped: true},
		},
		{
			"a chain in a table of another family does not run", ruleset(rules.IPv6, base(filter, pre, 0, do(drop))), in,
			rules.Outcome{},
		},
		{
			"a chain without callers does not run",
			ruleset(rules.Inet, base(filter, pre, 0), chain("c", do(drop))), in,
			rules.Outcome{},
		},
		{
			"accept ends the chain, but not the next one",
			ruleset(rules.Inet, base(filter, pre, 0, do(mark(1)), do(rules.Accept), do(mark(2))),
				base(filter, pre, 1, do(bits(4, 4)))),
			in,
			rules.Outcome{Mark: 5},
		},
		{
			"accept in a called chain ends the base chain",
			ruleset(rules.Inet, base(filter, pre, 0, do(rules.Jump{Chain: "c"}), do(mark(2))),
				chain("c", do(rules.Accept))),
			in,
			rules.Outcome{},
		},
		{
			"drop ends the evaluation of all chains",
			ruleset(rules.Inet, base(filter, pre, 0, do(mark(1)), do(drop)),
				base(filter, pre, 1, do(mark(2)))),
			in,
			rules.Outcome{Dropped: true, Mark: 1},
		},
		{
			"return continues after the jump",
			ruleset(rules.Inet, base(filter, pre, 0, do(rules.Jump{Chain: "c"}), do(bits(2, 2))),
				chain("c", do(bits(1, 1)), do(rules.Return), do(drop))),
			in,
			rules.Outcome{Mark: 3},
		},
		{
			"the end of a chain continues after the jump",
			ruleset(rules.Inet, base(filter, pre, 0, do(rules.Jump{Chain: "c"}), do(bits(2, 2))),
				chain("c", do(bits(1, 1)))),
			in,
			rules.Outcome{Mark: 3},
		},
		{
			"the end of a chain does not continue after a goto",
			ruleset(rules.Inet,
				base(filter, pre, 0, do(rules.Jump{Chain: "c", Goto: true}), do(drop)),
				chain("c", do(mark(1)))),
			in,
			rules.Outcome{Mark: 1},
		},
		{
			"the end of a chain after a goto continues after the last jump",
			ruleset(rules.Inet, base(filter, pre, 0, do(rules.Jump{Chain: "a"}), do(bits(2, 2))),
				chain("a", do(rules.Jump{Chain: "b", Goto: true}), do(drop)),
				chain("b", do(bits(1, 1)), do(rules.Return), do(drop))),
			in,
			rules.Outcome{Mark: 3},
		},
		{
			"return in a base chain applies its policy",
			ruleset(rules.Inet, dropping(base(filter, pre, 0, do(rules.Return), do(rules.Accept)))),
			in,
			rules.Outcome{Dropped: true},
		},
		{
			"the end of a base chain applies its policy",
			ruleset(rules.Inet, dropping(base(filter, pre, 0))), in,
			rules.Outcome{Dropped: true},
		},
		{
			"accept takes precedence over the policy",
			ruleset(rules.Inet, dropping(base(filter, pre, 0, do(rules.Accept)))), in,
			rules.Outcome{},
		},
		{
			"a rule without a verdict continues with the next rule",
			ruleset(rules.Inet, base(filter, pre, 0, do(rules.Count{}), do(drop))), in, dropped,
		},
		{
			"the next rule matches the changed mark",
			ruleset(rules.Inet,
				base(filter, pre, 0, do(mark(6)), when(drop, rules.MatchMark{
					Value: 4, Mask: 4,
				}))), in,
			rules.Outcome{Dropped: true, Mark: 6},
		},
		{
			"a mark is set in the bits of the mask",
			ruleset(rules.Inet, base(filter, pre, 0, do(bits(0x10, 0xf0)))), in + " mark 0x2f",
			rules.Outcome{Mark: 0x1f},
		},
	} {
		checkRows(t, tc.rs, []row{{tc.name, tc.packet, tc.want}})
	}
}

// dropping returns the chain with the policy drop.
func dropping(c rules.Chain) rules.Chain {
	c.Base.Drop = true
	return c
}

func TestEvaluationOfNAT(t *testing.T) {
	two := ruleset(rules.Inet, base(rules.NAT, rules.Prerouting, -100, do(redirect(1))),
		base(rules.NAT, rules.Prerouting, -90, do(redirect(2))))
	secondOnly := ruleset(rules.Inet, base(rules.NAT, rules.Prerouting, -100),
		base(rules.NAT, rules.Prerouting, -90, do(redirect(2))))
	dropsLater := ruleset(rules.Inet, base(rules.NAT, rules.Prerouting, -100, do(redirect(1))),
		base(rules.Filter, rules.Prerouting, 0, do(rules.Drop)))
	overLo := ruleset(rules.Inet, base(rules.NAT, rules.Output, -100),
		base(rules.NAT, rules.Prerouting, -100, do(redirect(1))))
	checkRows(t, two, []row{
		{"only the first chain translates a new connection", in, rules.Outcome{Redirect: 1}},
		{"a related connection is translated", in + " state related", rules.Outcome{Redirect: 1}},
		{"an established connection is not translated", in + " state established", uncaptured},
		{"an invalid packet is not translated", in + " state invalid", uncaptured},
		{"an untracked packet is not translated", in + " state untracked", uncaptured},
	})
	checkRows(t, secondOnly, []row{{
		"the next chain translates a connection that the first did not", in,
		rules.Outcome{Redirect: 2},
	}})
	checkRows(t, dropsLater, []row{{
		"a translated packet still traverses the other chains", in,
		rules.Outcome{Redirect: 1, Dropped: true},
	}})
	checkRows(t, overLo, []row{
		{
			"NAT at prerouting skips a packet on lo, because NAT at output has seen its connection",
			"out tcp 10.244.1.5:1 > 10.244.1.5:80", uncaptured,
		},
	})
}

func TestEvaluationOfDNATToAPort(t *testing.T) {
	toPort := func(action rules.Action, port string) rules.Rule {
		return when(action, rules.MatchPort{Side: rules.Destination, Ports: ports(port)})
	}
	pre, output := rules.Prerouting, rules.Output
	first := ruleset(rules.Inet, base(rules.NAT, pre, -100, do(dnat(9)), do(rules.Drop)),
		base(rules.NAT, pre, -90, do(redirect(8))))
	checkRows(t, first, []row{
		{
			"a new connection goes to another port, and later NAT chains do not run", in,
			rules.Outcome{DNATPort: 9},
		},
		{"an established connection is not translated", in + " state established", uncaptured},
	})
	sent := ruleset(rules.Inet, base(rules.NAT, output, -100, do(dnat(9))),
		base(rules.Filter, pre, -150, toPort(rules.Drop, "9")))
	checkRows(t, sent, []row{
		{"a packet sent over eth0 does not arrive at this host", out, rules.Outcome{DNATPort: 9}},
		{
			"a packet sent over lo arrives at the new port", "out tcp 127.0.0.1:1 > 127.0.0.1:80",
			rules.Outcome{Dropped: true, DNATPort: 9},
		},
	})
	// The kernel rejects a redirection in a filter chain, but a text may contain one.
	misplaced := ruleset(rules.Inet, base(rules.Filter, pre, -150, do(redirect(1))),
		base(rules.Filter, pre, 0, do(dnat(2))),
		base(rules.NAT, output, -100, do(dnat(9))))
	checkRows(t, misplaced, []row{
		{"a connection is translated once", in, rules.Outcome{Redirect: 1}},
		{
			"a connection on lo is translated once", "out tcp 127.0.0.1:1 > 127.0.0.1:80",
			rules.Outcome{DNATPort: 9},
		},
	})
	trace := diff.Explain(&sent, packet("out tcp 127.0.0.1:1 > 127.0.0.2:80"))
	if got, want := trace.Passes[1].Packet.Destination.String(), "127.0.0.2:9"; got != want {
		t.Errorf("the packet arrives at %s, want %s", got, want)
	}
}

func TestLaterChainsMatchTheNewDestination(t *testing.T) {
	after := func(h rules.Hook, action rules.Action, port, address string) rules.Ruleset {
		prefix := must(rules.ParsePrefixes(address))
		return ruleset(rules.Inet, base(rules.NAT, h, -100, do(action)),
			base(rules.Filter, h, 0, when(rules.Drop,
				rules.MatchPort{Side: rules.Destination, Ports: ports(port)},
				rules.MatchAddr{Side: rules.Destination, Ranges: rules.AddrRanges(prefix)})))
	}
	pre, output := rules.Prerouting, rules.Output
	for _, tc := range []struct {
		name   string
		rs     rules.Ruleset
		packet string
		want   rules.Outcome
	}{
		{
			"a redirection at output changes the destination to the loopback address",
			after(output, redirect(9), "9", "127.0.0.1/32"), out,
			rules.Outcome{Dropped: true, Redirect: 9},
		},
		{
			"a redirection at output in IPv6",
			after(output, redirect(9), "9", "::1/128"), "out tcp [fd00::5]:1 > [fd00::9]:80",
			rules.Outcome{Dropped: true, Redirect: 9},
		},
		{
			"the old destination does not match", after(output, redirect(9), "80", "10.9.9.9/32"),
			out,
			rules.Outcome{Redirect: 9},
		},
		{
			"a redirection at prerouting changes the port",
			after(pre, redirect(9), "9", "10.244.1.5/32"),
			in + " in-address 10.244.1.5",
			rules.Outcome{Dropped: true, Redirect: 9},
		},
		{
			"a redirection at prerouting changes the destination to the interface's address",
			after(pre, redirect(9), "9", "10.244.1.5/32"), in + " in-address 10.244.1.4",
			rules.Outcome{Redirect: 9},
		},
		{
			"a redirection to an interface without an address drops the packet", after(pre, redirect(9), "9", "10.9.9.9/32"),
			in + " in-address none",
			rules.Outcome{Dropped: true},
		},
		{
			"a translation of the destination port", after(output, dnat(9), "9", "10.9.9.9/32"),
			out,
			rules.Outcome{Dropped: true, DNATPort: 9},
		},
	} {
		checkRows(t, tc.rs, []row{{tc.name, tc.packet, tc.want}})
	}
	// The trace contains the packet as it entered.
	rs := after(output, redirect(9), "80", "10.9.9.9/32")
	if got, want := diff.Explain(&rs, packet(out)).Passes[0].Packet,
		packet(out); got.String() != want.String() {
		t.Errorf("the entering packet is %s, want %s", got, want)
	}
}

func TestStepsContainTheirBaseChain(t *testing.T) {
	rs := ruleset(rules.Inet,
		base(rules.Filter, rules.Prerouting, -150, do(rules.Jump{Chain: "c"})),
		base(rules.NAT, rules.Prerouting, -100, do(rules.Jump{Chain: "c"})),
		chain("c", do(rules.Count{})),
		base(rules.Filter, rules.Prerouting, 0, when(rules.Drop, rules.Unknown{Text: "xt string"})),
		base(rules.Filter, rules.Input, 0, do(rules.SaveMark{}))) // enables conntrack
	var types []string
	for _, s := range diff.Explain(&rs, packet(in)).Passes[0].Steps {
		types = append(types, fmt.Sprint(s.Base.Type, s.Base.Priority))
	}
	if got, want := strings.Join(types, " "),
		"filter -150 filter -150 nat -100 nat -100 filter 0"; got != want {
		t.Errorf("the base chains of the steps are %q, want %q", got, want)
	}
}

func TestEvaluationBeforeAndAfterConntrack(t *testing.T) {
	zone := func(n uint16) rules.Rule { return do(rules.SetZone{Zone: n}) }
	state := func(s rules.State) rules.MatchState {
		return rules.MatchState{States: rules.States(s)}
	}
	markIf := func(m rules.Match) rules.Rule { return when(mark(1), m) }
	connection := rules.MatchMark{Conntrack: true, Not: true, Value: 5, Mask: 0xff}
	const early, late = -300, -150
	for _, tc := range []struct {
		name     string
		priority int
		rules    []rules.Rule
		packet   string
		want     rules.Outcome
	}{
		{
			"before conntrack a packet is not new",
			early,
			[]rules.Rule{markIf(state(rules.New))},
			in, uncaptured,
		},
		{
			"before conntrack a packet is invalid",
			early,
			[]rules.Rule{markIf(state(rules.Invalid))},
			in,
			rules.Outcome{Mark: 1},
		},
		{
			"an untracked packet is untracked before conntrack",
			early,
			[]rules.Rule{markIf(state(rules.Untracked))},
			in + " state untracked",
			rules.Outcome{Mark: 1},
		},
		{
			"after conntrack the state is known",
			late,
			[]rules.Rule{markIf(state(rules.New))},
			in,
			rules.Outcome{Mark: 1},
		},
		{
			"before conntrack a negated connection mark does not match",
			early,
			[]rules.Rule{markIf(connection)},
			in, uncaptured,
		},
		{
			"a new connection has the mark 0",
			late,
			[]rules.Rule{markIf(connection)},
			in,
			rules.Outcome{Mark: 1},
		},
		{
			"an invalid packet has no connection",
			late,
			[]rules.Rule{markIf(connection)},
			in + " state invalid", uncaptured,
		},
		{
			"an untracked packet has no connection",
			late,
			[]rules.Rule{markIf(connection)},
			in + " state untracked", uncaptured,
		},
		{
			"the first zone applies",
			early,
			[]rules.Rule{zone(1), zone(2)},
			in,
			rules.Outcome{Zone: 1},
		},
		{
			"the first zone applies even if it is the default",
			early,
			[]rules.Rule{zone(0), zone(2)},
			in, uncaptured,
		},
		{
			"a zone after conntrack has no effect",
			late,
			[]rules.Rule{zone(1)},
			in, uncaptured,
		},
		{
			"a mark cannot be saved before conntrack",
			early,
			[]rules.Rule{do(rules.SaveMark{})},
			in + " mark 7",
			rules.Outcome{Mark: 7},
		},
		{
			"a mark can be saved after conntrack",
			late,
			[]rules.Rule{do(rules.SaveMark{})},
			in + " mark 7",
			rules.Outcome{Mark: 7, ConntrackMark: 7},
		},
		{
			"the mark of an invalid packet cannot be saved",
			late,
			[]rules.Rule{do(rules.SaveMark{})},
			in + " mark 7 state invalid",
			rules.Outcome{Mark: 7},
		},
		{
			"a mark cannot be restored before conntrack, and the rule ends",
			early,
			[]rules.Rule{do(rules.RestoreMark{}, rules.Drop)},
			in + " ctmark 7 state established",
			rules.Outcome{ConntrackMark: 7},
		},
		{
			"a mark can be restored after conntrack",
			late,
			[]rules.Rule{do(rules.RestoreMark{})},
			in + " ctmark 7 state established",
			rules.Outcome{Mark: 7, ConntrackMark: 7},
		},
	} {
		rs := ruleset(rules.Inet,
			base(rules.Filter, rules.Prerouting, tc.priority, tc.rules...))
		checkRows(t, rs, []row{{tc.name, tc.packet, tc.want}})
	}
	nat := ruleset(rules.Inet,
		base(rules.NAT, rules.Prerouting, early, when(redirect(9), state(rules.New))))
	checkRows(t, nat, []row{{
		"NAT runs after conntrack at every priority", in, rules.Outcome{Redirect: 9},
	}})
	combined := ruleset(rules.Inet,
		base(rules.Filter, rules.Output, early, zone(1)),
		base(rules.Filter, rules.Prerouting, early, zone(2), when(mark(1), state(rules.New))))
	checkRows(t, combined, []row{
		{
			"on lo a packet keeps its zone and connection, so that its state is known before conntrack",
			"out tcp 127.0.0.1:1 > 127.0.0.1:80",
			rules.Outcome{Zone: 1, Mark: 1},
		},
	})
}

func TestEvaluationOfTProxy(t *testing.T) {
	port := rules.TProxy{Port: 9}
	nft := ruleset(rules.Inet,
		base(rules.Filter, rules.Prerouting, -150, do(port, mark(1), rules.Accept), do(mark(2))))
	xtables := ruleset(rules.Inet,
		base(rules.Filter, rules.Prerouting, -150,
			do(rules.TProxyDrop{Port: 9, Value: 1, Mask: 0xf}), do(mark(2))))
	checkRows(t, nft, []row{
		{
			"nft assigns the packet to the listener, and the rule continues", in,
			rules.Outcome{TProxy: 9, Mark: 1},
		},
		{
			"without a listener, nft's rule ends and the next rule runs", in + " no-listener",
			rules.Outcome{Mark: 2},
		},
	})
	checkRows(t, xtables, []row{
		{
			"xtables assigns the packet to the listener with the mark, and the chain ends",
			in + " mark 0x20",
			rules.Outcome{TProxy: 9, Mark: 0x21},
		},
		{
			"without a listener, xtables drops the packet without the mark",
			in + " mark 0x20 no-listener",
			rules.Outcome{Dropped: true, Mark: 0x20},
		},
	})
	trace := diff.Explain(&nft, packet(in+" no-listener"))
	steps := trace.Passes[0].Steps
	if len(steps) != 2 || steps[0].Stopped != port || steps[1].Stopped != nil {
		t.Errorf("want two steps, the first one stopped at %v and the second one not stopped:\n%s",
			port, decisions(trace))
	}
}

// The first rule in this test has a condition after an action. The kernel does not report such a
// rule as a match if the packet does not meet the condition.
func TestStepsOfRulesThatEndEarly(t *testing.T) {
	later := rules.Require{Match: rules.MatchPort{Side: rules.Destination, Ports: ports("443")}}
	rs := ruleset(rules.Inet, base(rules.Filter, rules.Prerouting, 0,
		do(mark(2), later, rules.Accept), do(rules.Count{})))
	for text, want := range map[string]rules.Action{
		"in tcp 10.1.1.1:1 > 10.244.1.5:80":  later,
		"in tcp 10.1.1.1:1 > 10.244.1.5:443": nil,
	} {
		trace := diff.Explain(&rs, packet(text))
		steps := trace.Passes[0].Steps
		if len(steps) == 0 || !cmp.Equal(steps[0].Stopped, want) || trace.Outcome.Mark != 2 {
			t.Errorf("%s: want the mark 2, and the first rule stopped at %v (nil: not stopped):\n%s",
				text, want, decisions(trace))
		}
	}
}

// The conditions in this test do not affect the outcome, but they decide whether a rule matches.
func TestUncertainNamesUnknownConditionsOfReachedRules(t *testing.T) {
	condition := rules.Unknown{Text: "ct status other", Effect: rules.Reads}
	for name, tc := range map[string]struct {
		rules []rules.Rule
		want  []string
	}{
		"an unknown condition of a rule that counts": {
			[]rules.Rule{when(rules.Count{}, condition)}, []string{"ct status other"},
		},
		"an unknown condition of a rule that accepts": {
			[]rules.Rule{when(rules.Accept, condition), do(rules.Accept)},
			[]string{"ct status other"},
		},
		"a rule that is not reached": {
			[]rules.Rule{do(rules.Accept), when(rules.Accept, condition)}, nil,
		},
	} {
		rs := ruleset(rules.Inet, base(rules.Filter, rules.Prerouting, 0, tc.rules...))
		if got := diff.Explain(&rs, packet(in)).Uncertain; !slices.Equal(got, tc.want) {
			t.Errorf("%s: Uncertain is %q, want %q", name, got, tc.want)
		}
	}
}

// TestAssumedPropertiesOfTheHost checks that the defaults of properties that rules depend on are
// listed.
func TestAssumedPropertiesOfTheHost(t *testing.T) {
	udp := rules.MatchProtocol{Protocols: []rules.Protocol{rules.UDP}}
	path := rules.MatchReversePath{Not: true, Kind: "saddr . iif"}
	const valid = "the route to the source uses the input interface: yes"
	for name, tc := range map[string]struct {
		rules  []rules.Rule
		packet string
		want   []string
	}{
		"a reverse path": {[]rules.Rule{when(rules.Drop, path)}, in, []string{valid}},
		"both properties": {
			[]rules.Rule{when(rules.Drop, rules.MatchSocket{}), when(rules.Drop, path)},
			in,
			[]string{"the host has a transparent socket for the packet: no", valid},
		},
		"a reverse path that the packet states": {
			[]rules.Rule{when(rules.Drop, path)}, in + " no-reverse-path", nil,
		},
		"a socket that the packet states": {
			[]rules.Rule{when(rules.Drop, rules.MatchSocket{})}, in + " transparent-socket", nil,
		},
		"the receiver that the packet states does not matter at output": {
			[]rules.Rule{when(rules.Drop, rules.MatchSocket{Kind: rules.NFTSocket})},
			"out tcp 10.244.1.5:1 > 10.96.0.1:443 transparent-socket",
			[]string{"the socket that sends the packet is transparent: no"},
		},
		"another match of the rule fails": {[]rules.Rule{when(rules.Drop, udp, path)}, in, nil},
		"the rule is not reached":         {[]rules.Rule{do(rules.Accept), when(rules.Drop, path)}, in, nil},
	} {
		rs := ruleset(rules.Inet, base(rules.Filter, packet(tc.packet).Hook, 0, tc.rules...))
		if got := diff.Explain(&rs, packet(tc.packet)).Assumed; !slices.Equal(got, tc.want) {
			t.Errorf("%s: Assumed is %q, want %q", name, got, tc.want)
		}
	}
}

func TestUnknownConditionsMatterOnlyIfReached(t *testing.T) {
	undecided := rules.Outcome{Undecided: "xt string"}
	before := ruleset(rules.Inet, base(rules.Filter, rules.Prerouting, 0,
		when(rules.Accept, rules.MatchProtocol{Protocols: []rules.Protocol{rules.UDP}}),
		when(rules.Drop, unknown, rules.MatchPort{Side: rules.Destination, Ports: ports("80")})))
	checkRows(t, before, []row{
		{"the rule is reached and all other conditions match", in, undecided},
		{"the rule is not reached", "in udp 10.1.1.1:1 > 10.244.1.5:80", uncaptured},
		{
			"a later condition does not match",
			"in tcp 10.1.1.1:1 > 10.244.1.5:81", uncaptured,
		},
	})
	anything := rules.Unknown{Text: "xt string"}
	action := ruleset(rules.Inet,
		base(rules.Filter, rules.Prerouting, 0, when(anything, rules.MatchMark{Value: 1, Mask: 1}),
			do(mark(2))))
	checkRows(t, action, []row{
		{"an unknown action of a rule that matches", in + " mark 1", undecided},
		{"an unknown action of a rule that does not match", in, rules.Outcome{Mark: 2}},
	})
	later := ruleset(rules.Inet, base(rules.Filter, rules.Output, 0, when(rules.Drop, anything)))
	if trace := diff.Explain(&later,
		packet("out tcp 127.0.0.1:1 > 127.0.0.1:80")); len(trace.Passes) != 1 {
		t.Errorf("%d passes, want one, because the packet is undecided at output:\n%s",
			len(trace.Passes), decisions(trace))
	}
	for name, chains := range map[string][]rules.Chain{
		"jump nowhere": {base(rules.Filter, rules.Prerouting, 0, do(rules.Jump{Chain: "nowhere"}))},
		"jump a": {
			base(rules.Filter, rules.Prerouting, 0, do(rules.Jump{Chain: "a"})),
			chain("a", do(rules.Jump{Chain: "b"})), chain("b", do(rules.Jump{Chain: "a"})),
		},
	} {
		rs := ruleset(rules.Inet, chains...)
		checkRows(t, rs, []row{{
			"a text may contain jumps to missing chains, or a loop", in,
			rules.Outcome{Undecided: name},
		}})
	}
}

func TestPathsOverLoopback(t *testing.T) {
	routes := rules.Routing{Policies: []rules.PolicyRoute{{
		Family: rules.IPv4, Mark: 1, Table: 133, Priority: 133,
	}}}
	// arrives sets bit 0x100 of the mark of packets that arrive on lo.
	arrives := base(rules.Filter, rules.Prerouting, -150,
		when(bits(0x100, 0x100), rules.MatchInterface{Names: interfaceNames("lo")}))
	with := func(chains ...rules.Chain) rules.Ruleset {
		rs := ruleset(rules.Inet, append(chains, arrives)...)
		rs.Routing = routes
		return rs
	}
	route, filter := rules.Route, rules.Filter
	for _, tc := range []struct {
		name   string
		rs     rules.Ruleset
		packet string
		want   rules.Outcome
	}{
		{
			"a packet sent over eth0 does not arrive at this host", with(), out, rules.Outcome{},
		},
		{
			"a packet sent over lo arrives", with(), "out tcp 127.0.0.1:1 > 127.0.0.1:80",
			rules.Outcome{Mark: 0x100},
		},
		{
			"a redirected connection arrives at this host",
			with(base(rules.NAT, rules.Output, -100, do(redirect(9)))), out,
			rules.Outcome{Redirect: 9, Mark: 0x100},
		},
		{
			"a mark with a local route routes a packet to this host",
			with(base(route, rules.Output, -150, do(mark(1)))), out,
			rules.Outcome{Mark: 0x101, Rerouted: true},
		},
		{
			"a mark with a local route does not change a packet on lo",
			with(base(route, rules.Output, -150, do(mark(1)))),
			"out tcp 127.0.0.1:1 > 127.0.0.1:80",
			rules.Outcome{Mark: 0x101},
		},
		{
			"a mark with a local route does not change a redirected connection",
			with(base(route, rules.Output, -150, do(mark(1))),
				base(rules.NAT, rules.Output, -100, do(redirect(9)))),
			out,
			rules.Outcome{Redirect: 9, Mark: 0x101},
		},
		{
			"a mark without a local route does not route a packet to this host",
			with(base(route, rules.Output, -150, do(mark(2)))), out,
			rules.Outcome{Mark: 2},
		},
		{
			"a mark without a local route of the family does not route a packet to this host",
			with(base(route, rules.Output, -150, do(mark(1)))),
			"out tcp [fd00::5]:1 > [fd00::9]:80",
			rules.Outcome{Mark: 1},
		},
		{
			"the mark of the socket does not change the route, which was looked up before", with(),
			out + " mark 1",
			rules.Outcome{Mark: 1},
		},
		{
			"a mark set in a filter chain does not change the route: only route chains route again",
			with(base(filter, rules.Output, -150, do(mark(1)))), out,
			rules.Outcome{Mark: 1},
		},
		{
			"a later filter chain does not change the route",
			with(base(route, rules.Output, -150, do(mark(1))),
				base(filter, rules.Output, 0, do(mark(2)))), out,
			rules.Outcome{Mark: 0x102, Rerouted: true},
		},
		{
			"a later route chain changes the route",
			with(base(route, rules.Output, -150, do(mark(1))),
				base(route, rules.Output, 0, do(mark(2)))), out,
			rules.Outcome{Mark: 2},
		},
		{
			"a dropped packet does not arrive", with(base(filter, rules.Output, 0, do(rules.Drop))),
			"out tcp 127.0.0.1:1 > 127.0.0.1:80", dropped,
		},
		{
			"a dropped packet with a mark does not arrive",
			with(base(route, rules.Output, -150, do(mark(1), rules.Drop))), out,
			rules.Outcome{Dropped: true, Mark: 1},
		},
	} {
		checkRows(t, tc.rs, []row{{tc.name, tc.packet, tc.want}})
	}
}

func TestTraceOverLoopback(t *testing.T) {
	rs := compile(t, typical(tproxyMode, ipv6))
	trace := diff.Explain(&rs, packet("out tcp [fd00::5]:40000 > [fd00::5]:8080 uid 1337"))
	if len(trace.Passes) != 2 {
		t.Fatalf("%d passes, want 2:\n%s", len(trace.Passes), decisions(trace))
	}
	want := packet("in tcp [fd00::5]:40000 > [::1]:15006 dev lo mark 0x53a")
	if got := trace.Passes[1].Packet; got != want {
		t.Errorf("the packet arrives as %s, want %s", got, want)
	}
	const first = "inet sluice mangle-output #3: oifname \"lo\" ip6 daddr != ::1 meta l4proto tcp meta skuid 1337 meta mark set 0x53a"
	if got := trace.Passes[0].Steps[0].String(); got != first {
		t.Errorf("first step %q, want %q", got, first)
	}
	if rule := trace.Passes[0].Steps[0].Rule(); rule.Comment != "the proxy calls its own pod" {
		t.Errorf("the comment of the first step's rule is %q, want %q", rule.Comment,
			"the proxy calls its own pod")
	}
	if trace.Passes[0].Outcome.TProxy != 0 || trace.Passes[0].Outcome.Redirect != 15006 {
		t.Errorf("outcome of the first pass: %s, want only a redirection to port 15006",
			trace.Passes[0].Outcome)
	}
}

// TestDelivery verifies for which packets that tproxy assigned to a listener the delivery is known.
func TestDelivery(t *testing.T) {
	compiled := compile(t, typical(tproxyMode, ipv6))
	others := compiled
	others.Routing.Policies = []rules.PolicyRoute{
		{Family: rules.IPv4, Mark: 0x39, Mask: 0xff, Table: 7},
		{Family: rules.IPv6, Mark: 0x500, Table: 8},
	}
	unrouted := compiled
	unrouted.Routing = rules.Routing{}
	const from4, from6 = "in tcp 10.9.9.9:1 > 10.244.1.5:8080", "in tcp [fd00::9]:1 > [fd00::5]:8080"
	for _, tc := range []struct {
		name   string
		rs     rules.Ruleset
		packet string
		want   rules.Delivery
	}{
		{"a policy route selects the mark", compiled, from4, rules.Delivered},
		{"a policy route for IPv6", compiled, from6, rules.Delivered},
		{"a masked mark", others, from4, rules.Delivered},
		{"a policy route of another mark", others, from6, rules.DeliveryUnknown},
		{"no policy route", unrouted, from4, rules.DeliveryUnknown},
		{"no policy route, to a local address", unrouted, from4 + " dst-type local", rules.Delivered},
		{"no policy route, to another address", unrouted, from4 + " dst-type unicast", rules.DeliveryUnknown},
		{"no listener", compiled, from4 + " no-listener", rules.DeliveryUnknown},
	} {
		trace := diff.Explain(&tc.rs, packet(tc.packet))
		if trace.Delivery != tc.want {
			t.Errorf("%s: delivery %d, want %d: %s", tc.name, trace.Delivery, tc.want, trace.Outcome)
		}
	}
}

func TestOutcomeTextAndCapture(t *testing.T) {
	for want, outcome := range map[string]rules.Outcome{
		"goes to its destination, not captured": uncaptured,
		"dropped":                               dropped,
		"redirected to port 15053 of this host, conntrack zone 2":        toAgentInZone,
		"assigned to the transparent listener on port 15006, mark 0x539": toTransparent,
		"goes to its destination, not captured, mark 0x539, connection mark 0x539": {
			Mark: 0x539, ConntrackMark: 0x539,
		},
		"undecided: xt string is not known to this model": {
			Undecided: "xt string", Mark: 1,
		},
		"assigned to the transparent listener on port 15006, mark 0x53a": {
			Redirect: 15001, TProxy: 15006, Mark: 0x53a,
		},
		"dropped, with a reply to its sender: reject with tcp reset": {
			Dropped: true, Rejected: "reject with tcp reset",
		},
		"routed back to this host, not captured, mark 0x1":  {Rerouted: true, Mark: 1},
		"redirected to port 15001 of this host, mark 0x539": {Redirect: 15001, Mark: 0x539},
		"goes to port 9 of its destination, not captured":   {DNATPort: 9},
	} {
		if outcome.String() != want {
			t.Errorf("%+v: %q, want %q", outcome, outcome, want)
		}
		captured := strings.HasPrefix(want, "redirected") || strings.HasPrefix(want, "assigned")
		if outcome.Captured() != captured {
			t.Errorf("%s: captured is %t, want %t", outcome, outcome.Captured(), captured)
		}
	}
}

func TestDroppedPacketIsNotCaptured(t *testing.T) {
	dropped := rules.Outcome{Dropped: true, Redirect: 15001, TProxy: 15006}
	if dropped.Captured() {
		t.Errorf("%+v: captured is true, want false", dropped)
	}
}

func TestEqualOutcomes(t *testing.T) {
	redirected, unknown := rules.Outcome{Redirect: 1}, rules.Outcome{Undecided: "xt string"}
	for _, tc := range []struct {
		name string
		a, b rules.Outcome
		same bool
	}{
		{"both not captured", uncaptured, uncaptured, true},
		{"another port", redirected, rules.Outcome{Redirect: 2}, false},
		{"another mark", uncaptured, rules.Outcome{Mark: 1}, false},
		{"another zone", uncaptured, rules.Outcome{Zone: 1}, false},
		{"dropped or not", dropped, uncaptured, false},
		{
			"changes of a packet before it was dropped", dropped,
			rules.Outcome{Dropped: true, Mark: 1, Redirect: 1, Zone: 1},
			true,
		},
		{
			"changes of the connection before the packet was dropped", dropped,
			rules.Outcome{Dropped: true, ConntrackMark: 1},
			false,
		},
		{"two undecided outcomes", unknown, unknown, false},
		{"an undecided and another outcome", redirected, unknown, false},
	} {
		if tc.a.Same(tc.b) != tc.same || tc.b.Same(tc.a) != tc.same {
			t.Errorf("%s: Same is %t, want %t", tc.name, !tc.same, tc.same)
		}
	}
}

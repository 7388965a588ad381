package diff_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// position names a rule by its chain and number. It returns an empty string for nil.
func position(s *rules.Step) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s #%d", s.Chain.Name, s.Index+1)
}

func TestDecidingRule(t *testing.T) {
	zone := func(n uint16) rules.Action { return rules.SetZone{Zone: n} }
	raw := func(list ...rules.Rule) rules.Chain {
		return base(rules.Filter, rules.Prerouting, -300, list...)
	}
	count := when(rules.Count{})
	for _, tc := range []struct {
		name, left, right string
		rulesets          [2]rules.Ruleset
	}{
		{
			"a redirection, and a return before the redirection of the other side",
			"nat-prerouting #1", "nat-prerouting #2",
			[2]rules.Ruleset{
				ruleset(natIn(when(redirect(15006), tcp))),
				ruleset(mangleIn(when(rules.Accept)),
					natIn(count, when(rules.Return, tcp, toPort(8080)),
						when(redirect(15006), tcp))),
			},
		},
		{
			"a redirection, and no rule on the side where none matches",
			"nat-prerouting #1", "",
			[2]rules.Ruleset{
				ruleset(natIn(when(redirect(15006), tcp))), ruleset(mangleIn(when(rules.Accept))),
			},
		},
		{
			"a rule in a chain that is jumped to",
			"c #2", "",
			[2]rules.Ruleset{
				ruleset(natIn(when(rules.Jump{Chain: "c"})),
					chain("c", count, when(redirect(1), tcp))),
				ruleset(),
			},
		},
		{
			"a drop after a changed mark",
			"filter-prerouting #2", "filter-prerouting #1",
			[2]rules.Ruleset{
				ruleset(mangleIn(when(setMark(1, 1)), when(rules.Drop))),
				ruleset(mangleIn(when(rules.Accept))),
			},
		},
		{
			"the last rule that set the mark",
			"filter-prerouting #2", "",
			[2]rules.Ruleset{
				ruleset(mangleIn(when(setMark(1, 1)), when(setMark(2, 2)), count)), ruleset(),
			},
		},
		{
			"the first rule that set the zone",
			"filter-prerouting #2", "filter-prerouting #1",
			[2]rules.Ruleset{
				ruleset(raw(count, when(zone(1)), when(zone(2)))), ruleset(raw(when(zone(2)))),
			},
		},
		{
			"the rule that saved the mark, if only the connection's mark differs",
			"filter-prerouting #2", "",
			[2]rules.Ruleset{
				ruleset(mangleIn(when(setMark(1, everyBit)), when(rules.SaveMark{}))),
				ruleset(base(rules.Filter, rules.Prerouting, -150, when(setMark(1, everyBit)))),
			},
		},
		{
			"a translation of the destination port",
			"nat-prerouting #1", "nat-prerouting #1",
			[2]rules.Ruleset{
				ruleset(natIn(when(rules.DNATPort{Port: 1}, tcp))),
				ruleset(natIn(when(rules.DNATPort{Port: 2}, tcp))),
			},
		},
		{
			"a transparent redirection",
			"filter-prerouting #1", "filter-prerouting #2",
			[2]rules.Ruleset{
				ruleset(mangleIn(when(rules.TProxy{Port: 1}, tcp))),
				ruleset(mangleIn(when(rules.TProxy{Port: 2}, tcp, toPort(1)),
					when(rules.TProxyDrop{Port: 2}, tcp))),
			},
		},
	} {
		const witness = "in tcp 192.0.2.10:40000 > 10.244.1.5:8080 dev eth0"
		r := decide(tc.rulesets[0], tc.rulesets[1])
		found := false
		for _, c := range r.Classes {
			if c.Witness.String() != witness {
				continue
			}
			found = true
			if left, right := position(c.Outcome.Left.Decided),
				position(c.Outcome.Right.Decided); left != tc.left || right != tc.right {
				t.Errorf("%s: decided by %q and %q, want %q and %q", tc.name, left, right, tc.left,
					tc.right)
			}
		}
		if !found {
			t.Errorf("%s: classes %v, want one with the witness %s", tc.name, r.Classes, witness)
		}
	}
}

func TestUndecidedPackets(t *testing.T) {
	unknown := rules.Unknown{Text: "xt strange"}
	condition := rules.Unknown{Text: "xt string", Effect: rules.Reads}
	rs := ruleset(mangleIn(
		when(rules.Accept, protocol(rules.UDP)), // packets that an earlier rule accepts are decided
		when(rules.Drop, condition, tcp, toPort(80)),
		when(rules.Jump{Chain: "nowhere"}, tcp, toPort(81)),
		when(unknown, tcp, toPort(82)),
		when(rules.Count{}, condition, tcp),               // has no effect
		when(rules.NoEffect{Text: "log"}, condition, tcp), // has no effect
		when(unknown, protocol(rules.UDP)),                // never reached
		when(setMark(1, 1), toPort(83)),
	))
	r := decide(ruleset(), rs)
	var got []string
	for _, u := range r.Undecided {
		got = append(got, fmt.Sprintf("%t %s %s %s", u.Right, u.Text, position(&u.Step), u.Witness))
	}
	want := []string{
		"true jump nowhere filter-prerouting #3 out tcp 10.244.1.5:40000 > 10.244.1.5:81 dev lo uid 1000 gid 1000",
		"true xt strange filter-prerouting #4 out tcp 10.244.1.5:40000 > 10.244.1.5:82 dev lo uid 1000 gid 1000",
		"true xt string filter-prerouting #2 out tcp 10.244.1.5:40000 > 10.244.1.5:80 dev lo uid 1000 gid 1000",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("undecided conditions (-want +got)\n%s", d)
	}
	for _, c := range r.Classes {
		if port := c.Witness.Destination.Port(); port != 83 {
			t.Errorf("a class with the witness %s, want only port 83: others are undecided",
				c.Witness)
		}
	}
	if v := r.Verdict(); v != diff.Different {
		t.Errorf("verdict %s, want %s: no unknown rule applies to port 83", v, diff.Different)
	}
	loop := ruleset(mangleIn(when(rules.Jump{Chain: "a"}, tcp)),
		chain("a", when(rules.Jump{Chain: "a"}), when(rules.Jump{Chain: "a"})))
	if r := decide(loop, loop); r.StrictVerdict() != diff.Undecidable ||
		r.Undecided[0].Text != "jump a" {
		t.Errorf("a loop of jumps: %s because of %v, want %s because of jump a",
			r.StrictVerdict(), r.Undecided, diff.Undecidable)
	}
}

func TestChainsThatNoPacketReaches(t *testing.T) {
	jump := func(name string) rules.Action { return rules.Jump{Chain: name} }
	rs := ruleset(
		natIn(when(jump("from nat"), tcp), when(rules.Accept), when(jump("after an accept"))),
		mangleIn(when(jump("for impossible packets"), rules.MatchFamily{Family: rules.IPv6})),
		base(rules.Filter, rules.Input, 0, when(jump("from input"))),
		chain("from nat"), chain("after an accept"), chain("from input", when(jump("from there"))),
		chain("from there"),
		chain("for impossible packets", when(rules.Unknown{Text: "strange"})),
		chain("unused", when(jump("from an unused chain"))), chain("from an unused chain"),
	)
	r := decide(rs, ruleset())
	var got []string
	for _, c := range r.Unreachable.Left {
		got = append(got, c.Table.Name+" "+c.Chain.Name)
	}
	if d := cmp.Diff([]string{
		"t after an accept", "t for impossible packets", "t unused", "t from an unused chain",
	}, got); d != "" {
		t.Errorf("unreachable chains (-want +got)\n%s", d)
	}
	if len(r.Unreachable.Right) > 0 || r.StrictVerdict() != diff.Equivalent {
		t.Errorf("%s, unreachable on the right %v, undecided %v, want %s and no chains",
			r.StrictVerdict(), r.Unreachable.Right, r.Undecided, diff.Equivalent)
	}
	// If packets are undecided, it is unknown which chains they reach.
	strange := ruleset(mangleIn(when(jump("c"), rules.Unknown{Text: "strange"}), when(jump("d"))),
		chain("c"), chain("d"))
	if r := decide(rs, strange); len(r.Unreachable.Left) != 4 || len(r.Unreachable.Right) > 0 {
		t.Errorf("unreachable chains on the left %v, want 4; on the right %v, want none",
			r.Unreachable.Left, r.Unreachable.Right)
	}
	// Equal unsupported rules are equivalent, but it is unknown to which chains they jump.
	action := ruleset(mangleIn(when(rules.Unknown{Text: "strange"}), when(jump("c"))), chain("c"))
	r = decide(action, action)
	if len(r.Unreachable.Left)+len(r.Unreachable.Right) > 0 || r.StrictVerdict() != diff.Equivalent {
		t.Errorf("same unsupported rules: %s, unreachable chains %v, want %s and no chains",
			r.StrictVerdict(), r.Unreachable, diff.Equivalent)
	}
	// An evaluation that ended early has not reached all chains.
	r = diff.Decide(diff.Side{Ruleset: rs}, diff.Side{Ruleset: rs},
		diff.Options{Budget: diff.Budget{Memory: 1}})
	if r.Exhausted == "" || len(r.Unreachable.Left)+len(r.Unreachable.Right) > 0 {
		t.Errorf("exhausted budget %q: unreachable chains %v, want none", r.Exhausted, r.Unreachable)
	}
}

// TestChainsAtOtherHooksAreListed compares rulesets with chains at hooks that Decide does not
// evaluate. These chains do not affect the verdict, but the result lists them, except chains
// without rules whose policy is accept.
func TestChainsAtOtherHooksAreListed(t *testing.T) {
	rs := ruleset(
		base(rules.Filter, rules.Input, 0, when(rules.Drop, tcp)),
		base(rules.Filter, rules.Forward, 0), natIn(when(redirect(1), tcp)),
		base(rules.NAT, rules.Postrouting, 100, when(rules.Accept)),
	)
	rs.Tables[0].Family = rules.Inet
	dropping := base(rules.Filter, rules.Forward, 10)
	dropping.Base.Drop = true
	ipv6 := ruleset(dropping, chain("c", when(rules.Drop)),
		mangleIn(when(rules.Jump{Chain: "c"}, tcp)))
	ipv6.Tables[0].Family = rules.IPv6
	ipv6.Tables[0].Name = "t6"
	combined := rules.Ruleset{Tables: append(slices.Clone(rs.Tables), ipv6.Tables...)}
	for _, tc := range []struct {
		families []rules.Family
		want     []string
		verdict  diff.Verdict
	}{
		{nil, []string{"t filter-input", "t nat-postrouting", "t6 filter-forward"}, diff.Different},
		{
			[]rules.Family{rules.IPv6},
			[]string{"t filter-input", "t nat-postrouting", "t6 filter-forward"},
			diff.Different,
		},
		{
			[]rules.Family{rules.IPv4},
			[]string{"t filter-input", "t nat-postrouting"},
			diff.Equivalent,
		},
	} {
		r := diff.Decide(diff.Side{Ruleset: combined}, diff.Side{Ruleset: rs},
			diff.Options{Families: tc.families})
		var got []string
		for _, c := range r.OtherHooks.Left {
			got = append(got, c.Table.Name+" "+c.Chain.Name)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("families %v (-want +got)\n%s", tc.families, d)
		}
		if len(r.Unreachable.Left) > 0 || r.StrictVerdict() != tc.verdict {
			t.Errorf("families %v: %s, unreachable %v, want %s and no chains", tc.families,
				r.StrictVerdict(), r.Unreachable.Left, tc.verdict)
		}
	}
}

func TestRouting(t *testing.T) {
	policy := func(mark uint32, priority int) rules.Routing {
		return rules.Routing{Policies: []rules.PolicyRoute{{
			Family: rules.IPv4, Mark: mark, Table: 133, Priority: priority,
		}}}
	}
	// A packet that leaves with mark 1 is dropped at prerouting if a policy route sends it to lo.
	marks := func(routing rules.Routing) rules.Ruleset {
		rs := ruleset(mangleOut(when(setMark(1, everyBit))),
			mangleIn(when(rules.Drop, marked(1, everyBit))))
		rs.Routing = routing
		return rs
	}
	// Only a chain of type route repeats the route lookup, and only if it changes the mark.
	before := ruleset(base(rules.Filter, rules.Output, -300, when(setMark(1, everyBit))),
		mangleOut(), mangleIn(when(rules.Drop, marked(1, everyBit))))
	before.Routing = policy(1, 133)
	notRerouted := ruleset(base(rules.Filter, rules.Output, -300, when(setMark(1, everyBit))),
		mangleIn(
			when(rules.Drop, rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}}),
			when(rules.Drop, marked(1, everyBit))))
	notRerouted.Routing = policy(1, 133)
	routing := ruleset(mangleOut(when(setMark(1, everyBit))))
	filtering := ruleset(base(rules.Filter, rules.Output, -150, when(setMark(1, everyBit))))
	routing.Routing, filtering.Routing = policy(1, 133), policy(1, 133)
	twice := policy(1, 32765)
	twice.Policies = append(twice.Policies, policy(1, 32764).Policies...)
	withoutRouting := func(rs rules.Ruleset) diff.Side { return diff.Side{Ruleset: rs} }
	for _, tc := range []struct {
		name        string
		left, right diff.Side
		// packetsDiffer reports whether packets differ, and routingCompared whether the routing is
		// compared.
		packetsDiffer, routingCompared bool
		differences                    int // number of differences of the routing
	}{
		{
			"the same routes", withRouting(marks(policy(1, 133))), withRouting(marks(policy(1, 133))), false,
			true, 0,
		},
		{
			"different priorities, and a duplicate policy rule",
			withRouting(marks(policy(1, 133))), withRouting(marks(twice)), false, true, 0,
		},
		{
			"a policy rule without effect, because it follows the rule of the main table",
			withRouting(marks(policy(1, 133))), withRouting(marks(policy(1, 40000))), false, true, 2,
		},
		{
			"both policy rules after the rule of the main table", withRouting(marks(policy(1, 40000))),
			withRouting(marks(policy(1, 40001))), false, true, 0,
		},
		{
			"another mark: the routes and the packets differ", withRouting(marks(policy(1, 133))),
			withRouting(marks(policy(2, 133))), true, true, 2,
		},
		{
			"no policy rule on one side", withRouting(marks(policy(1, 133))), withRouting(marks(rules.Routing{})),
			true, true, 1,
		},
		{
			"a file, which contains no routes, on the right", withRouting(marks(policy(1, 133))),
			withoutRouting(marks(rules.Routing{})), false, false, 0,
		},
		{
			"a file, which contains no routes, on the left", withoutRouting(marks(rules.Routing{})),
			withRouting(marks(policy(1, 133))), false, false, 0,
		},
		{
			"a mark that was set before the chain of type route", withRouting(before),
			withRouting(notRerouted), false, true, 0,
		},
		{
			"only a chain of type route repeats the route lookup", withRouting(routing), withRouting(filtering),
			true, true, 0,
		},
		{"two files", withoutRouting(marks(policy(1, 133))), withoutRouting(marks(rules.Routing{})), false, false, 0},
	} {
		r := diff.Decide(tc.left, tc.right, diff.Options{})
		if (len(r.Classes) > 0) != tc.packetsDiffer || r.RoutingCompared != tc.routingCompared ||
			len(r.Routing) != tc.differences {
			t.Errorf("%s: classes %v, routing compared %t, differences %v, "+
				"want packets to differ %t, routing compared %t, %d differences",
				tc.name, classes(r), r.RoutingCompared, r.Routing, tc.packetsDiffer,
				tc.routingCompared, tc.differences)
		}
		want := diff.Equivalent
		if tc.packetsDiffer || tc.differences > 0 {
			want = diff.Different
		}
		if got := r.StrictVerdict(); got != want {
			t.Errorf("%s: verdict %s, want %s", tc.name, got, want)
		}
	}
}

func TestMaxClasses(t *testing.T) {
	// The rules mark every second TCP port and drop another protocol. Each port and the other
	// protocol have two classes: packets that arrive, and packets that are sent over lo.
	var odd []uint16
	for port := uint16(1); port < 200; port += 2 {
		odd = append(odd, port)
	}
	var list []rules.Rule
	for _, port := range odd {
		list = append(list, when(setMark(uint32(port), everyBit), tcp, toPort(port)))
	}
	rs := ruleset(mangleIn(append(list, when(rules.Drop, protocol(rules.UDP)))...))
	for _, tc := range []struct {
		limit, want int
		more        bool
	}{
		{7, 7, true}, {0, diff.DefaultMaxClasses, true}, {1000, 2*len(odd) + 2, false},
	} {
		r := diff.Decide(diff.Side{Ruleset: rs}, diff.Side{},
			diff.Options{MaxClasses: tc.limit})
		if len(r.Classes) != tc.want || r.More != tc.more {
			t.Errorf("MaxClasses %d: %d classes, more %t, want %d, more %t", tc.limit,
				len(r.Classes), r.More, tc.want, tc.more)
		}
	}
}

// TestPacketsWithUnknownMarks explains packets whose mark, or the mark of their connection, is
// unknown. The explanation must say so, or list alternatives.
func TestPacketsWithUnknownMarks(t *testing.T) {
	five := rules.SetMark{Value: 5, Mask: ^uint32(0)}
	toHost := when(rules.DNATTo{Addr: netip.MustParseAddr("10.244.1.5")}, protocol(rules.TCP))
	for name, rs := range map[string]rules.Ruleset{
		"set in a chain of type route": ruleset(base(rules.Route, rules.Output, -150,
			when(five, rules.Unknown{Text: "rt mtu", Effect: rules.Reads}))),
		"saved in the connection of a dropped packet": ruleset(mangleOut(
			when(five, rules.Unknown{Text: "rt mtu", Effect: rules.Reads}),
			when(rules.SaveMark{}), when(rules.Drop))),
		"of a packet with a zone that NAT may send to this host": ruleset(
			base(rules.Filter, rules.Output, -300, when(rules.SetZone{Zone: 1})),
			base(rules.NAT, rules.Output, -100, toHost),
			base(rules.Filter, rules.Prerouting, -300, when(five))),
	} {
		p := must(rules.ParsePacket("out tcp 10.244.1.5:1000 > 192.0.2.1:80 dev eth0"))
		if strings.Contains(name, "dropped") {
			p.State = rules.Established // the drop of a new packet ends its connection
		}
		trace := diff.Explain(&rs, p)
		if outcome := trace.Outcome; outcome.UnknownMarks == "" && outcome.Undecided == "" &&
			len(trace.Alternatives) == 0 {
			t.Errorf("%s: %s, want unknown marks, an undecided outcome or alternatives", name,
				outcome)
		}
	}
}

// TestReversePathWithAMark explains a packet whose source is reached through its interface. A
// reverse path condition that includes the packet's mark is undecided, because policy routes may
// route packets with the mark elsewhere.
func TestReversePathWithAMark(t *testing.T) {
	for kind, decided := range map[string]bool{"": true, "mark": false} {
		rs := ruleset(mangleIn(when(rules.Drop, rules.MatchReversePath{Not: true, Kind: kind})))
		p := must(rules.ParsePacket("in tcp 192.0.2.1:1000 > 10.244.1.5:80 mark 5"))
		if outcome := diff.Explain(&rs, p).Outcome; (outcome.Undecided == "") != decided {
			t.Errorf("kind %q: %s, want decided %t", kind, outcome, decided)
		}
		p.Mark = 0
		if outcome := diff.Explain(&rs, p).Outcome; outcome.Undecided != "" {
			t.Errorf("kind %q, packet without a mark: %s, want a decided outcome", kind, outcome)
		}
	}
}

// TestMarksOfConnectionsFromOtherHooks compares rulesets with a chain at input that marks
// connections, and a chain at output that drops the packets of marked connections. The outcome of a
// packet at output depends on the mark that the chain at input gave to the connection.
func TestMarksOfConnectionsFromOtherHooks(t *testing.T) {
	five := rules.MatchMark{Conntrack: true, Value: 5, Mask: ^uint32(0)}
	saves := base(rules.Filter, rules.Input, 0, when(rules.MixMark{Conntrack: true, Xor: 5}, tcp))
	drops := mangleOut(when(rules.Drop, five))
	dropsLate := base(rules.Filter, rules.Postrouting, 0, when(rules.Drop, five))
	savesFrom := func(m rules.Match) rules.Chain {
		return base(rules.Filter, rules.Input, 0, when(rules.MixMark{Conntrack: true, Xor: 5}, m))
	}
	inSet := func(members string) rules.Match {
		m := to(members)
		m.Set = "s"
		return m
	}
	const state = "set ip t l"
	list := func(contents string) rules.Match {
		return rules.MatchListed{List: "@l", Parts: "ip saddr", State: state, Contents: contents}
	}
	adds := rules.Unknown{
		Text: "add @l { ip saddr }", Effect: rules.Writes, State: state, Ignores: rules.AllInputs,
	}
	inOrder := func(first, second int) rules.Ruleset {
		late := base(rules.Filter, rules.Input, 0, when(rules.MixMark{Conntrack: true, Xor: 6}))
		late.Name = "late"
		rs := ruleset(saves, late, drops)
		bases := [2]rules.Base{*saves.Base, *late.Base}
		bases[0].Order, bases[1].Order = first, second
		rs.Tables[0].Chains[0].Base, rs.Tables[0].Chains[1].Base = &bases[0], &bases[1]
		return rs
	}
	unread := rules.Unknown{Text: "x", Effect: rules.Reads, Data: rules.NoData}
	restores := rules.Unknown{Text: "-j CONNMARK", Effect: rules.WritesMark}
	reads := rules.Unknown{Text: "x", Effect: rules.Reads}
	ignores := rules.Unknown{Text: "x", Effect: rules.Reads, Ignores: rules.AllInputs}
	limit := rules.Unknown{Text: "limit", Effect: rules.ReadsVarying}
	requires := func(m rules.Match) rules.Rule {
		return rules.Rule{Actions: []rules.Action{rules.Require{Match: m}, rules.Drop}}
	}
	for _, tc := range []struct {
		name        string
		left, right rules.Ruleset
		equivalent  bool
	}{
		{"one side writes, both sides read", ruleset(saves, drops), ruleset(drops), false},
		{"both sides write and read", ruleset(saves, drops), ruleset(saves, drops), true},
		{"one side writes, no side reads", ruleset(saves), ruleset(), true},
		{
			"both sides write, one for more packets", ruleset(saves, drops),
			ruleset(base(rules.Filter, rules.Input, 0, when(rules.MixMark{
				Conntrack: true, Xor: 5,
			})), drops), false,
		},
		{
			"an unknown expression may write",
			ruleset(base(rules.Filter, rules.Forward, 0, when(rules.Unknown{Text: "x"})), drops),
			ruleset(drops), false,
		},
		{
			"sets of the rules that write differ", ruleset(savesFrom(inSet("10.0.0.0/8")), drops),
			ruleset(savesFrom(inSet("11.0.0.0/8")), drops), false,
		},
		{
			"sets of the rules that write are equal", ruleset(savesFrom(inSet("10.0.0.0/8")), drops),
			ruleset(savesFrom(inSet("10.0.0.0/8")), drops), true,
		},
		{
			"lists of the rules that write differ", ruleset(savesFrom(list("1")), drops),
			ruleset(savesFrom(list("2")), drops), false,
		},
		{
			"the rules that write depend on data that was not read",
			ruleset(savesFrom(unread), drops), ruleset(savesFrom(unread), drops), false,
		},
		{
			"the rules that write read a list that one side changes",
			ruleset(mangleIn(when(adds)), savesFrom(list("1")), drops),
			ruleset(mangleIn(), savesFrom(list("1")), drops), false,
		},
		{
			"the rules that write read a list that both sides change",
			ruleset(mangleIn(when(adds)), savesFrom(list("1")), drops),
			ruleset(mangleIn(when(adds)), savesFrom(list("1")), drops), true,
		},
		{"the chains that write run in another order", inOrder(1, 2), inOrder(2, 1), false},
		{"the chains that write run in the same order", inOrder(1, 2), inOrder(1, 2), true},
		{
			"a rule at postrouting reads", ruleset(saves, dropsLate), ruleset(dropsLate), false,
		},
		{
			"an unknown action reads", ruleset(saves, mangleOut(when(restores))),
			ruleset(mangleOut(when(restores))), false,
		},
		{
			"an unknown match reads", ruleset(saves, mangleOut(when(rules.Drop, reads))),
			ruleset(mangleOut(when(rules.Drop, reads))), false,
		},
		{
			"an unknown required match reads", ruleset(saves, mangleOut(requires(reads))),
			ruleset(mangleOut(requires(reads))), false,
		},
		{
			"an unknown match does not read", ruleset(saves, mangleOut(when(rules.Drop, ignores))),
			ruleset(mangleOut(when(rules.Drop, ignores))), true,
		},
		{
			"a random match does not read", ruleset(saves, mangleOut(when(rules.Drop, limit))),
			ruleset(mangleOut(when(rules.Drop, limit))), true,
		},
	} {
		r := diff.Decide(diff.Side{Ruleset: tc.left}, diff.Side{Ruleset: tc.right}, diff.Options{})
		if got := r.StrictVerdict(); (got == diff.Equivalent) != tc.equivalent {
			t.Errorf("%s: %s, want equivalent %t", tc.name, got, tc.equivalent)
		}
	}
}

// TestReasonWithoutRule verifies that a decision names the reason if no rule determined an outcome.
func TestReasonWithoutRule(t *testing.T) {
	drops := natIn(when(redirect(15006), tcp))
	drops.Base.Drop = true
	raw := func(r rules.Rule) rules.Ruleset {
		return ruleset(base(rules.Filter, rules.Prerouting, -300, r))
	}
	for _, tc := range []struct {
		left, right rules.Ruleset
		drops       bool
		reason      string // of the outcomes on the left side with this value of Dropped
	}{
		{ruleset(drops), ruleset(), true, "chain ip t nat-prerouting drops by its policy"},
		{
			raw(when(rules.Count{})), raw(when(rules.Notrack{}, tcp)), false,
			"no rule disables conntrack for it; the policy is accept in ip t filter-prerouting",
		},
	} {
		r := decide(tc.left, tc.right)
		found := false
		for _, c := range r.Classes {
			if o := c.Outcome.Left; o.Outcome.Dropped == tc.drops {
				found = true
				if o.Reason != tc.reason {
					t.Errorf("%s: %q, want %q", c.Witness, o.Reason, tc.reason)
				}
			}
		}
		if !found {
			t.Errorf("classes %v, want one with the reason %q", r.Classes, tc.reason)
		}
	}
}

// TestConditionsOnTheDestinationAfterTranslation verifies that a condition on the destination may
// have another result after NAT than before it, because NAT translates packets like earlier packets
// of their connection (NATMappingPersists). Two equal rules after NAT are equivalent. Without a NAT
// chain of the family, the kernel translates no packets (TranslationNeedsNATChain).
func TestConditionsOnTheDestinationAfterTranslation(t *testing.T) {
	natTable := func(f rules.Family) rules.Table {
		return rules.Table{
			Family: f, Name: "nat", Chains: []rules.Chain{base(rules.NAT, rules.Output, -100)},
		}
	}
	for _, tc := range []struct {
		name   string
		m      rules.Match
		tables []rules.Table // of both sides
		want   diff.Verdict  // of a rule before NAT and the same rule after NAT
	}{
		{
			"type",
			rules.MatchAddrType{Side: rules.Destination, Types: rules.AddrTypes(rules.Local)},
			[]rules.Table{natTable(rules.IPv4)},
			diff.Undecidable,
		},
		{"socket", rules.MatchSocket{}, []rules.Table{natTable(rules.Inet)}, diff.Undecidable},
		{"address", to("10.9.9.9/32"), []rules.Table{natTable(rules.IPv4)}, diff.Different},
		{
			"address, NAT of IPv6 only", to("10.9.9.9/32"),
			[]rules.Table{natTable(rules.IPv6)},
			diff.Equivalent,
		},
		{"address, no NAT", to("10.9.9.9/32"), nil, diff.Equivalent},
		{"socket, no NAT", rules.MatchSocket{}, nil, diff.Equivalent},
	} {
		for _, hook := range []rules.Hook{rules.Prerouting, rules.Output} {
			at := func(priority int) diff.Side {
				rs := ruleset(base(rules.Filter, hook, priority, when(setMark(1, 1), tc.m)))
				rs.Tables = append(rs.Tables, tc.tables...)
				return diff.Side{Ruleset: rs}
			}
			r := diff.Decide(at(-150), at(0), diff.Options{})
			if got := r.StrictVerdict(); got != tc.want {
				t.Errorf("%s, %s, before and after NAT: %s, want %s", tc.name, hook, got, tc.want)
			}
			r = diff.Decide(at(-50), at(0), diff.Options{})
			if got := r.StrictVerdict(); got != diff.Equivalent {
				t.Errorf("%s, %s, after NAT: %s, want %s", tc.name, hook, got, diff.Equivalent)
			}
		}
	}
}

// TestTranslatedPacketsMayLeaveLoopback verifies that it is unknown whether a later packet of a
// translated connection arrives on lo, even if the packet was first routed to lo
// (NATMappingPersists, DNATAtOutputReroutes).
func TestTranslatedPacketsMayLeaveLoopback(t *testing.T) {
	rs := ruleset(base(rules.NAT, rules.Output, -100),
		base(rules.Filter, rules.Prerouting, 0, when(rules.Drop,
			rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}})))
	const packet = "out udp 10.244.1.5:4000 > 10.244.1.5:53 dev lo state new status confirmed"
	for _, tc := range []struct {
		text               string
		dropped, undecided bool
	}{
		{packet, true, false}, {packet + ",dnat", false, true},
	} {
		p := must(rules.ParsePacket(tc.text))
		o := diff.Explain(&rs, p).Outcome
		if o.Dropped != tc.dropped || (o.Undecided != "") != tc.undecided {
			t.Errorf("%s: %s, want dropped %t, undecided %t", tc.text, o, tc.dropped, tc.undecided)
		}
	}
}

// TestConditionsOnTheSourceAfterTranslation verifies that one rule for several sources and one rule
// for each source are equivalent after NAT too: the source to which earlier packets of a connection
// were translated is unknown, but the same for all rules (NATMappingPersists). Without a NAT chain,
// the kernel translates no packets (TranslationNeedsNATChain).
func TestConditionsOnTheSourceAfterTranslation(t *testing.T) {
	addresses := func(list ...string) rules.Match {
		m := rules.MatchAddr{Side: rules.Source}
		for _, prefix := range list {
			m.Ranges = append(m.Ranges, netipx.RangeOfPrefix(netip.MustParsePrefix(prefix)))
		}
		return m
	}
	ports := func(list ...uint16) rules.Match {
		return rules.MatchPort{Side: rules.Source, Ports: rules.Singles(list...)}
	}
	types := func(list ...rules.AddrType) rules.Match {
		return rules.MatchAddrType{Side: rules.Source, Types: rules.AddrTypes(list...)}
	}
	flips := rules.MixMark{Mark: 0xffffffff, Xor: 1}
	for _, tc := range []struct {
		name             string
		both, one, other rules.Match
	}{
		{
			"addresses", addresses("10.0.0.0/8", "127.0.0.6/32"), addresses("10.0.0.0/8"),
			addresses("127.0.0.6/32"),
		},
		{"ports", ports(53, 15001), ports(53), ports(15001)},
		{"types", types(rules.Local, rules.Unicast), types(rules.Local), types(rules.Unicast)},
	} {
		filter := func(priority int, list ...rules.Rule) rules.Chain {
			return base(rules.Filter, rules.Postrouting, priority, list...)
		}
		at := func(priority int, list ...rules.Rule) diff.Side {
			nat := base(rules.NAT, rules.Postrouting, 100)
			return diff.Side{Ruleset: ruleset(nat, filter(priority, list...))}
		}
		both, each := when(flips, tc.both), []rules.Rule{when(flips, tc.one), when(flips, tc.other)}
		r := diff.Decide(at(110, both), at(110, each...), diff.Options{})
		if got := r.StrictVerdict(); got != diff.Equivalent {
			t.Errorf("%s in one rule and in two after NAT: %s, want %s", tc.name, got, diff.Equivalent)
		}
		r = diff.Decide(at(110, both), at(110, each[0]), diff.Options{})
		if got := r.StrictVerdict(); got == diff.Equivalent {
			t.Errorf("%s: one rule for all and one for a part, after NAT: %s, want another",
				tc.name, got)
		}
		r = diff.Decide(at(90, both), at(110, both), diff.Options{})
		if got := r.StrictVerdict(); got != diff.Undecidable {
			t.Errorf("%s before and after NAT: %s, want %s", tc.name, got, diff.Undecidable)
		}
		r = decide(ruleset(filter(90, both)), ruleset(filter(110, both)))
		if got := r.StrictVerdict(); got != diff.Equivalent {
			t.Errorf("%s without NAT: %s, want %s", tc.name, got, diff.Equivalent)
		}
	}
}

// TestRouteAwayFromLoopback compares rules that remove the mark that routes a packet to lo. Only a
// chain of type route routes the packet again (MarkChangeReroutesLoopback).
func TestRouteAwayFromLoopback(t *testing.T) {
	side := func(c rules.Chain) diff.Side {
		rs := ruleset(c)
		rs.Routing.Policies = []rules.PolicyRoute{{
			Family: rules.IPv4, Mark: 1337, Table: 133, Priority: 100,
		}}
		return diff.Side{Ruleset: rs, RoutingKnown: true}
	}
	unmarks := when(setMark(0, ^uint32(0)), marked(1337, ^uint32(0)), tcp)
	route, filter := side(mangleOut(unmarks)), side(base(rules.Filter, rules.Output, -150, unmarks))
	r := diff.Decide(route, filter, diff.Options{})
	if got := r.StrictVerdict(); got != diff.Different {
		t.Fatalf("verdict %s, want %s", got, diff.Different)
	}
	for _, c := range r.Classes {
		if w := c.Witness; w.OutInterface != "lo" || w.Mark != 1337 {
			t.Errorf("witness %s, want a packet on lo with the mark 1337", w)
		}
		left, right := c.Outcome.Left.Outcome, c.Outcome.Right.Outcome
		if !left.LeavesLoopback || right.LeavesLoopback {
			t.Errorf("%s: left %s, right %s, want that it leaves lo on the left side", c.Witness, left,
				right)
		}
	}
	if got := diff.Decide(route, route, diff.Options{}); got.StrictVerdict() != diff.Equivalent {
		t.Errorf("equal rules: verdict %s, want %s", got.StrictVerdict(), diff.Equivalent)
	}
}

// TestLevelOfCgroup compares rules that match the same number of a cgroup at two levels. Only at
// its own level does a cgroup match (nft_socket_eval in net/netfilter/nft_socket.c).
func TestLevelOfCgroup(t *testing.T) {
	cgroup := func(path string, level uint8, id uint64) rules.Match {
		return rules.MatchCgroup{Path: path, Level: level, ID: id}
	}
	for _, tc := range []struct {
		name        string
		left, right rules.Match
		want        diff.Verdict
	}{
		{"another level", cgroup("a/b", 2, 7), cgroup("", 1, 7), diff.Different},
		{"the same level", cgroup("a/b", 2, 7), cgroup("", 2, 7), diff.Equivalent},
		{"another number", cgroup("a/b", 2, 7), cgroup("", 2, 8), diff.Different},
		{"the path only", cgroup("a/b", 2, 7), cgroup("a/b", 2, 0), diff.Equivalent},
		{"two numbers of a path", cgroup("a/b", 2, 7), cgroup("a/b", 2, 8), diff.Different},
	} {
		left := ruleset(mangleOut(when(rules.Drop, tc.left)))
		r := decide(left, ruleset(mangleOut(when(rules.Drop, tc.right))))
		if got := r.StrictVerdict(); got != tc.want {
			t.Errorf("%s: verdict %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestRepliesOfRejectRules compares reject rules of an inet table with reject rules of ip and ip6
// tables.
func TestRepliesOfRejectRules(t *testing.T) {
	table := func(f rules.Family, with string) rules.Table {
		return rules.Table{
			Family: f, Name: "t", Chains: []rules.Chain{
				base(rules.Filter, rules.Output, 0, when(rules.Reject{With: with}, tcp)),
			},
		}
	}
	for _, tc := range []struct {
		both, ipv4, ipv6 string
		want             diff.Verdict
	}{
		{"", "icmp port-unreachable", "icmpv6 port-unreachable", diff.Equivalent},
		{"icmpx port-unreachable", "icmp port-unreachable", "", diff.Equivalent},
		{"icmpx no-route", "icmp net-unreachable", "icmpv6 no-route", diff.Equivalent},
		{"icmpx host-unreachable", "icmp host-unreachable", "icmpv6 addr-unreachable", diff.Equivalent},
		{"icmpx admin-prohibited", "icmp admin-prohibited", "icmpv6 admin-prohibited", diff.Equivalent},
		{"icmpx admin-prohibited", "icmp host-prohibited", "icmpv6 admin-prohibited", diff.Different},
		{"tcp reset", "tcp reset", "tcp reset", diff.Equivalent},
		{"tcp reset", "tcp reset", "", diff.Different},
	} {
		left := rules.Ruleset{Tables: []rules.Table{table(rules.Inet, tc.both)}}
		right := rules.Ruleset{
			Tables: []rules.Table{table(rules.IPv4, tc.ipv4), table(rules.IPv6, tc.ipv6)},
		}
		r := diff.Decide(diff.Side{Ruleset: left}, diff.Side{Ruleset: right}, diff.Options{})
		if got := r.StrictVerdict(); got != tc.want {
			t.Errorf("%q | %q and %q: verdict %s, want %s", tc.both, tc.ipv4, tc.ipv6, got, tc.want)
		}
	}
}

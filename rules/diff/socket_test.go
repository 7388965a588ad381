package diff_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestSocketsBeforeConntrack verifies that a decision does not assume that the kernel finds the
// same socket before and after conntrack. For a reply to a translated source, the kernel finds the
// socket by the connection, even if there is no NAT chain any more.
func TestSocketsBeforeConntrack(t *testing.T) {
	at := func(priority int) rules.Ruleset {
		return ruleset(base(rules.Filter, rules.Prerouting, priority,
			when(rules.Drop, rules.MatchSocket{Kind: rules.NFTSocket})))
	}
	if r := decide(at(-300), at(-150)); r.StrictVerdict() == diff.Equivalent {
		t.Errorf("a socket match before conntrack and one after it: verdict %s, want another",
			diff.Equivalent)
	}
	if r := decide(at(-160), at(-150)); r.StrictVerdict() != diff.Equivalent {
		t.Errorf("two socket matches after conntrack: verdict %s, want %s", r.StrictVerdict(),
			diff.Equivalent)
	}
}

// TestListenerBeforeTranslation verifies that a decision does not assume that tproxy assigns the
// same socket before and after NAT has translated the destination of later packets: it prefers the
// socket of an established connection with the packet's addresses.
func TestListenerBeforeTranslation(t *testing.T) {
	for _, row := range []struct {
		name        string
		left, right int // the priorities of tproxy
		withoutNAT  bool
		want        diff.Verdict
	}{
		{"before and after NAT", -150, -90, false, diff.Undecidable},
		{"before and after the place of NAT", -150, -90, true, diff.Equivalent},
		{"twice before NAT", -160, -150, false, diff.Equivalent},
		{"twice after NAT", -90, -80, false, diff.Equivalent},
	} {
		for name, rule := range map[string]rules.Rule{
			"nft": {Matches: []rules.Match{tcp}, Actions: []rules.Action{rules.TProxy{Port: 15001}}},
			"xtables": {
				XTables: true, Matches: []rules.Match{tcp},
				Actions: []rules.Action{rules.TProxyDrop{Port: 15001}},
			},
		} {
			at := func(priority int) rules.Ruleset {
				chains := []rules.Chain{base(rules.Filter, rules.Prerouting, priority, rule)}
				if !row.withoutNAT {
					chains = append(chains, base(rules.NAT, rules.Prerouting, -100,
						when(redirect(15001), tcp)))
				}
				return ruleset(chains...)
			}
			r := decide(at(row.left), at(row.right))
			if got := r.StrictVerdict(); got != row.want {
				t.Errorf("%s, %s: verdict %s, want %s", row.name, name, got, row.want)
			}
			for _, u := range r.Undecided {
				if u.Step.Chain != nil {
					t.Errorf("%s, %s: the answer depends on %s, want no rule", row.name, name, u.Step)
				}
			}
		}
	}
	// The consequences of a NAT chain of one side are not compared.
	early := base(rules.Filter, rules.Prerouting, -150,
		rules.Rule{Matches: []rules.Match{tcp}, Actions: []rules.Action{rules.TProxy{Port: 15001}}})
	r := decide(ruleset(early, base(rules.NAT, rules.Prerouting, -100)), ruleset(early))
	if got := r.StrictVerdict(); got != diff.Equivalent {
		t.Errorf("an empty NAT chain on one side: verdict %s, want %s", got, diff.Equivalent)
	}
}

// TestListenersAreIndependent verifies that a decision does not assume that either all listeners of
// tproxy rules exist or none.
func TestListenersAreIndependent(t *testing.T) {
	xtables := func(port uint16) rules.Rule {
		return rules.Rule{
			XTables: true, Matches: []rules.Match{tcp},
			Actions: []rules.Action{rules.TProxyDrop{Port: port}},
		}
	}
	tproxy := func(port uint16, others ...rules.Action) rules.Rule {
		return rules.Rule{
			Matches: []rules.Match{tcp},
			Actions: append([]rules.Action{rules.TProxy{Port: port}}, others...),
		}
	}
	toAddr := rules.Rule{
		Matches: []rules.Match{tcp},
		Actions: []rules.Action{
			rules.TProxy{Addr: netip.MustParseAddr("127.0.0.1"), Port: 15006}, rules.Accept,
		},
	}
	inbound := func(list ...rules.Rule) rules.Ruleset { return ruleset(mangleIn(list...)) }
	dropMarked := when(rules.Drop, marked(1, everyBit))
	dropTunnel := when(rules.Drop, tcp, toPort(15008))
	for _, row := range []struct {
		name        string
		left, right rules.Ruleset
		want        diff.Verdict
		missing     string // in the first witness
	}{
		{
			"a second listener",
			inbound(tproxy(15006, rules.Accept), tproxy(15008, rules.Accept)),
			inbound(tproxy(15006, rules.Accept)),
			diff.Different, "15006",
		},
		{
			"an earlier listener that is replaced",
			inbound(tproxy(15006), tproxy(15001, rules.Accept)),
			inbound(tproxy(15001, rules.Accept)),
			diff.Different, "15001",
		},
		{
			"different listeners of packets that are dropped",
			inbound(tproxy(15006, setMark(1, everyBit)), dropMarked),
			inbound(tproxy(15008, setMark(1, everyBit)), dropMarked),
			diff.Different, "15008",
		},
		{
			"a listener on one address",
			inbound(toAddr, tproxy(15006, rules.Accept)),
			inbound(toAddr),
			diff.Different, "127.0.0.1:15006",
		},
		{
			"the packet's own port, before its listener",
			inbound(tproxy(0, rules.Accept), tproxy(15008, rules.Accept)),
			inbound(tproxy(0, rules.Accept)),
			diff.Different, "0",
		},
		{
			"the packet's own port is the port of another rule",
			inbound(tproxy(0, rules.Accept), dropTunnel, tproxy(15008)),
			inbound(
				when(rules.TProxy{Port: 15008}, tcp, toPort(15008)), dropTunnel,
				tproxy(0, rules.Accept), tproxy(15008),
			),
			diff.Different, "",
		},
		{
			"the same two listeners",
			inbound(tproxy(15006, rules.Accept), tproxy(15008, rules.Accept)),
			inbound(tproxy(15006, rules.Accept), tproxy(15008, rules.Accept)),
			diff.Equivalent, "",
		},
		{
			"TPROXY of xtables, and tproxy of nft with a drop rule",
			inbound(tproxy(15006, rules.Accept), when(rules.Drop, tcp), tproxy(15008)),
			inbound(xtables(15006), xtables(15008)),
			diff.Equivalent, "",
		},
		{
			"a repeated rule",
			inbound(tproxy(15006, rules.Accept), tproxy(15006, rules.Accept)),
			inbound(tproxy(15006, rules.Accept)), diff.Equivalent, "",
		},
		{
			"different listeners", inbound(tproxy(15006, rules.Accept)),
			inbound(tproxy(15008, rules.Accept)), diff.Different, "",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := decide(row.left, row.right)
			if r.StrictVerdict() != row.want {
				t.Errorf("verdict %s, want %s", r.StrictVerdict(), row.want)
			}
			if len(r.Classes) == 0 {
				return
			}
			witness := r.Classes[0].Witness
			if string(witness.MissingListeners) != row.missing {
				t.Errorf("witness %s, want the missing listeners %q", witness, row.missing)
			}
			l, right := diff.Explain(&row.left, witness).Outcome, diff.Explain(&row.right, witness).Outcome
			if !isUndecided(l) && !isUndecided(right) && l.Same(right) {
				t.Errorf("both outcomes of the witness %s are %s", witness, l)
			}
		})
	}
}

// TestKindsOfSocketsInClasses verifies that a class has different fields for a socket that xtables
// finds and for a socket that nft finds: xtables may find a socket that nft does not find.
func TestKindsOfSocketsInClasses(t *testing.T) {
	left := ruleset(mangleIn(when(rules.Accept, rules.MatchSocket{Kind: rules.NFTSocket}),
		when(rules.Drop, rules.MatchSocket{})))
	r := decide(left, ruleset())
	if len(r.Classes) == 0 {
		t.Fatal("no classes, want packets with a socket that only xtables finds")
	}
	for _, c := range r.Classes {
		seen := map[string]bool{}
		for _, condition := range c.Packets {
			if seen[condition.Field] {
				t.Errorf("%s: several conditions with the field %q", describe(c), condition.Field)
			}
			seen[condition.Field] = true
		}
	}
}

// TestCgroupOfTheReceiver verifies that a decision does not assume that nft compares only the
// cgroup of the sender. At prerouting nft looks up the socket that receives the packet.
func TestCgroupOfTheReceiver(t *testing.T) {
	cgroup := rules.MatchCgroup{Path: "a", Level: 1}
	in := func(xtables bool, h rules.Hook, priority int, others ...rules.Match) rules.Ruleset {
		rule := when(rules.Drop, append(others, cgroup)...)
		rule.XTables = xtables
		return ruleset(base(rules.Filter, h, priority, rule))
	}
	afterDNAT := func(priority int) rules.Ruleset {
		dnat := base(rules.NAT, rules.Prerouting, -100,
			when(rules.DNATTo{Addr: netip.MustParseAddr("10.0.0.1")}, tcp))
		return ruleset(append(in(false, rules.Prerouting, priority).Tables[0].Chains, dnat)...)
	}
	onLoopback := rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}}
	for _, row := range []struct {
		name        string
		left, right rules.Ruleset
		want        diff.Verdict
	}{
		{"nft at prerouting", in(false, rules.Prerouting, -150), ruleset(), diff.Different},
		{
			"nft for packets on lo", in(false, rules.Prerouting, -150, onLoopback), ruleset(),
			diff.Different,
		},
		{"xtables at prerouting", in(true, rules.Prerouting, -150), ruleset(), diff.Equivalent},
		{
			"the same rule", in(false, rules.Prerouting, -150), in(false, rules.Prerouting, -150),
			diff.Equivalent,
		},
		{
			"the same rule at two priorities", in(false, rules.Prerouting, -160),
			in(false, rules.Prerouting, -150), diff.Equivalent,
		},
		{
			"the same rule before and after a translation", afterDNAT(-150), afterDNAT(-50),
			diff.Undecidable,
		},
		{"nft at output", in(false, rules.Output, -150), ruleset(), diff.Different},
		{
			"the sender at output and the receiver on lo", in(false, rules.Output, -150),
			in(false, rules.Prerouting, -150, onLoopback), diff.Different,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			if r := decide(row.left, row.right); r.StrictVerdict() != row.want {
				t.Errorf("verdict %s, want %s", r.StrictVerdict(), row.want)
			}
		})
	}
}

// TestSocketsOfSenderAndReceiver verifies that a decision does not assume that both sockets of a
// packet on lo are transparent or neither is: nft reads the sender at output, and looks up the
// receiver at prerouting.
func TestSocketsOfSenderAndReceiver(t *testing.T) {
	transparent := rules.MatchSocket{Kind: rules.NFTSocket}
	onLoopback := rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}}
	withoutSocket := rules.MatchOwner{Not: true, Socketless: true, IDs: []rules.IDRange{{Last: 1<<32 - 1}}}
	out := func(list ...rules.Rule) rules.Chain {
		return base(rules.Filter, rules.Output, 0, list...)
	}
	in := func(list ...rules.Rule) rules.Chain {
		return base(rules.Filter, rules.Prerouting, 0, list...)
	}
	dropTranslated := when(rules.Drop, rules.MatchState{States: rules.States(rules.SNAT, rules.DNAT)})
	fromTransparent := out(dropTranslated, when(rules.Accept, transparent), when(rules.Drop))
	toOther := in(when(rules.Accept, onLoopback, transparent), when(rules.Drop, onLoopback))
	for _, row := range []struct {
		name        string
		left, right rules.Ruleset
		want        diff.Verdict
		witness     string // the end of the first witness
	}{
		{
			"packets to other sockets are dropped", ruleset(fromTransparent, toOther),
			ruleset(fromTransparent), diff.Different, " transparent-sender",
		},
		{
			"packets of transparent sockets to transparent sockets",
			ruleset(fromTransparent, in(when(rules.Drop, onLoopback, transparent))),
			ruleset(fromTransparent), diff.Different, " transparent-socket transparent-sender",
		},
		{
			"packets of transparent sockets", ruleset(out(when(rules.Drop, transparent))), ruleset(),
			diff.Different, " transparent-sender",
		},
		{
			"packets of closed TCP sockets",
			ruleset(out(when(rules.Drop, transparent, tcp, withoutSocket))), ruleset(),
			diff.Different, " no-socket transparent-sender",
		},
		{
			"UDP packets without a socket",
			ruleset(out(when(rules.Drop, transparent, protocol(rules.UDP), withoutSocket))),
			ruleset(), diff.Equivalent, "",
		},
		{
			"the same rules", ruleset(fromTransparent, toOther), ruleset(fromTransparent, toOther),
			diff.Equivalent, "",
		},
		{
			"two priorities", ruleset(out(when(rules.Drop, transparent))),
			ruleset(base(rules.Filter, rules.Output, -300, when(rules.Drop, transparent))),
			diff.Equivalent, "",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := decide(row.left, row.right)
			if r.StrictVerdict() != row.want {
				t.Fatalf("verdict %s, want %s: %v", r.StrictVerdict(), row.want, classes(r))
			}
			if len(r.Classes) == 0 {
				return
			}
			p := r.Classes[0].Witness
			if !strings.HasSuffix(p.String(), row.witness) {
				t.Errorf("witness %s, want one that ends with %q", p, row.witness)
			}
			left, right := diff.Explain(&row.left, p).Outcome, diff.Explain(&row.right, p).Outcome
			if left.Same(right) || isUndecided(left) || isUndecided(right) {
				t.Errorf("the witness %s has the outcomes %s and %s", p, left, right)
			}
		})
	}
}

// TestCgroupOfClosedSockets verifies that a decision does not assume that packets without an owner
// are in no cgroup: the socket of a closed connection keeps its cgroup.
func TestCgroupOfClosedSockets(t *testing.T) {
	cgroup := rules.MatchCgroup{Path: "a", Level: 1}
	exists := rules.MatchOwner{IDs: []rules.IDRange{{Last: 1<<32 - 1}}}
	missing := exists
	missing.Not, missing.Socketless = true, true
	drop := func(xtables bool, matches ...rules.Match) rules.Ruleset {
		rule := when(rules.Drop, matches...)
		rule.XTables = xtables
		return ruleset(base(rules.Filter, rules.Output, 0, rule))
	}
	for _, row := range []struct {
		name        string
		left, right rules.Ruleset
		want        diff.Verdict
	}{
		{"no owner", drop(true, missing, cgroup), ruleset(), diff.Different},
		{
			"an owner, or any socket", drop(true, exists, cgroup), drop(true, cgroup), diff.Different,
		},
		{"an owner of nft, or any socket", drop(false, exists, cgroup), drop(false, cgroup), diff.Different},
		{
			"UDP has no closed sockets", drop(true, protocol(rules.UDP), missing, cgroup), ruleset(),
			diff.Equivalent,
		},
		{"the same rule", drop(true, missing, cgroup), drop(true, missing, cgroup), diff.Equivalent},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := decide(row.left, row.right)
			if r.StrictVerdict() != row.want {
				t.Errorf("verdict %s, want %s", r.StrictVerdict(), row.want)
			}
			for _, c := range r.Classes {
				if o := c.Outcome; o.Left.Outcome.Same(o.Right.Outcome) {
					t.Errorf("witness %s: both outcomes are %s", c.Witness, o.Left.Outcome)
				}
			}
		})
	}
}

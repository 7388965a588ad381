package compat_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// tcp is the match of most rules.
var tcp = rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}

// outputOf returns a ruleset with one chain at output, and chains that it may jump to. The chain
// with index 1 is named "c1".
func outputOf(t rules.ChainType, priority int, chains ...[]rules.Rule) rules.Ruleset {
	table := rules.Table{Name: "test"}
	for i, list := range chains {
		c := rules.Chain{Name: fmt.Sprint("c", i), Rules: list}
		if i == 0 {
			c.Name, c.Base = "out", &rules.Base{Type: t, Hook: rules.Output, Priority: priority}
		}
		table.Chains = append(table.Chains, c)
	}
	return rules.Ruleset{Tables: []rules.Table{table}}
}

// natOf is outputOf for a NAT chain.
func natOf(chains ...[]rules.Rule) rules.Ruleset {
	return outputOf(rules.NAT, rules.NATPriority, chains...)
}

// rule returns a rule with the matches and actions.
func rule(matches []rules.Match, actions ...rules.Action) rules.Rule {
	rules.SortMatches(matches)
	return rules.Rule{Matches: matches, Actions: actions}
}

// listing returns the rules of the family's tables, each with its table and chain.
func listing(l compat.Legacy, f rules.Family) []string {
	var list []string
	for _, table := range l.Tables {
		if table.Family != f {
			continue
		}
		for _, c := range table.Chains {
			for i := range c.Rules {
				list = append(list, table.Name+" "+c.Name+": "+c.Rules[i].String())
			}
		}
	}
	return list
}

func TestTranslateRules(t *testing.T) {
	redirect := rules.RedirectTo{Port: 15001}
	addrs := func(not bool, texts string) rules.MatchAddr {
		return rules.MatchAddr{
			Side: rules.Destination, Not: not, Ranges: rules.AddrRanges(prefixList(texts)),
		}
	}
	manyPorts := rules.MatchPort{
		Side: rules.Destination, Ports: portRanges("1,3,5,7,9,11,13,15,17,19,21,23,25,27-28,30"),
	}
	manyNot := manyPorts
	manyNot.Not = true
	for _, tc := range []struct {
		name string
		in   rules.Ruleset
		want []string // without the jump in the built-in chain
	}{
		{
			"prefixes, port lists and protocols become separate rules", natOf([]rules.Rule{
				rule([]rules.Match{addrs(false, "10.0.0.0/8,192.0.2.0/24"), rules.MatchPort{
					Side: rules.Destination, Ports: portRanges("80"),
				}, rules.MatchProtocol{Protocols: []rules.Protocol{
					rules.TCP, rules.UDP,
				}}}, redirect),
			}),
			[]string{
				"nat SLUICE_OUT: ip daddr 10.0.0.0/8 tcp dport 80 redirect to :15001",
				"nat SLUICE_OUT: ip daddr 192.0.2.0/24 tcp dport 80 redirect to :15001",
				"nat SLUICE_OUT: ip daddr 10.0.0.0/8 udp dport 80 redirect to :15001",
				"nat SLUICE_OUT: ip daddr 192.0.2.0/24 udp dport 80 redirect to :15001",
			},
		},
		{
			"an address range becomes prefixes", natOf([]rules.Rule{
				rule([]rules.Match{
					tcp,
					rules.MatchAddr{
						Ranges: []netipx.IPRange{netipx.MustParseIPRange("10.0.0.1-10.0.0.4")},
					},
				}, redirect),
			}),
			[]string{
				"nat SLUICE_OUT: ip saddr 10.0.0.1 meta l4proto tcp redirect to :15001",
				"nat SLUICE_OUT: ip saddr 10.0.0.2/31 meta l4proto tcp redirect to :15001",
				"nat SLUICE_OUT: ip saddr 10.0.0.4 meta l4proto tcp redirect to :15001",
			},
		},
		{
			"all addresses need no match, and addresses of the other family no rule",
			natOf([]rules.Rule{
				rule([]rules.Match{tcp, addrs(false, "::/0")}, redirect),
				rule([]rules.Match{tcp, addrs(false, "0.0.0.0/0")}, redirect),
			}),
			[]string{"nat SLUICE_OUT: meta l4proto tcp redirect to :15001"},
		},
		{
			"a rule has up to 15 ports, and a range counts as two",
			natOf([]rules.Rule{rule([]rules.Match{tcp, manyPorts}, redirect)}),
			[]string{
				"nat SLUICE_OUT: tcp dport { 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27-28 } redirect to :15001",
				"nat SLUICE_OUT: tcp dport 30 redirect to :15001",
			},
		},
		{
			"negated ports become one rule",
			natOf([]rules.Rule{rule([]rules.Match{tcp, manyNot}, redirect)}),
			[]string{
				"nat SLUICE_OUT: tcp dport != { 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27-28 } tcp dport != 30 redirect to :15001",
			},
		},
		{
			"interfaces become separate rules, unless one includes another",
			natOf([]rules.Rule{
				rule([]rules.Match{
					rules.MatchInterface{Out: true, Names: interfaceNames("eth0,eth+,lo,lo")}, tcp,
				}, redirect),
			}),
			[]string{
				`nat SLUICE_OUT: oifname "eth*" meta l4proto tcp redirect to :15001`,
				`nat SLUICE_OUT: oifname "lo" meta l4proto tcp redirect to :15001`,
			},
		},
		{
			"several negated values become a chain that continues after the rule",
			natOf([]rules.Rule{
				rule([]rules.Match{
					rules.MatchInterface{Out: true, Not: true, Names: interfaceNames("eth0,lo")},
					tcp, addrs(true, "10.0.0.0/8,11.0.0.0/16"),
				}, redirect),
				rule([]rules.Match{tcp}, rules.RedirectTo{Port: 15006}),
			}),
			[]string{
				"nat SLUICE_OUT: meta l4proto tcp goto SLUICE_OUT_DO",
				"nat SLUICE_OUT: goto SLUICE_OUT_REST",
				"nat SLUICE_OUT_REST: meta l4proto tcp redirect to :15006",
				`nat SLUICE_OUT_DO: oifname "eth0" goto SLUICE_OUT_REST`,
				`nat SLUICE_OUT_DO: oifname "lo" goto SLUICE_OUT_REST`,
				"nat SLUICE_OUT_DO: ip daddr 10.0.0.0/8 goto SLUICE_OUT_REST",
				"nat SLUICE_OUT_DO: ip daddr 11.0.0.0/16 goto SLUICE_OUT_REST",
				"nat SLUICE_OUT_DO: meta l4proto tcp redirect to :15001",
				"nat SLUICE_OUT_DO: goto SLUICE_OUT_REST",
			},
		},
		{
			"owners become separate rules, and negated owners one rule", natOf([]rules.Rule{
				rule([]rules.Match{rules.MatchOwner{IDs: idRanges("5,7-9")}}, rules.Return),
				rule([]rules.Match{
					tcp, rules.MatchOwner{Group: true, Not: true, IDs: idRanges("5,7-9")},
				}, redirect),
			}),
			[]string{
				"nat SLUICE_OUT: meta skuid 5 return",
				"nat SLUICE_OUT: meta skuid 7-9 return",
				"nat SLUICE_OUT: meta l4proto tcp meta skgid != 5 meta skgid != 7-9 redirect to :15001",
			},
		},
		{
			"several actions become several rules",
			outputOf(rules.Route, rules.ManglePriority, []rules.Rule{
				rule([]rules.Match{tcp}, rules.SetMark{Value: 1, Mask: 1}, rules.SaveMark{},
					rules.Accept),
				rule(nil, rules.SetMark{Value: 2, Mask: 2}),
			}),
			[]string{
				"mangle SLUICE_OUT: meta l4proto tcp meta mark set meta mark & 0xfffffffe | 0x1",
				"mangle SLUICE_OUT: meta l4proto tcp ct mark set meta mark",
				"mangle SLUICE_OUT: meta l4proto tcp return",
				"mangle SLUICE_OUT: meta mark set meta mark & 0xfffffffd | 0x2",
			},
		},
		{
			"actions that change a field that the rule matches become a chain",
			outputOf(rules.Route, rules.ManglePriority, []rules.Rule{
				rule([]rules.Match{rules.MatchMark{Conntrack: true, Value: 5, Mask: 15}},
					rules.SaveMark{}, rules.Accept),
				rule([]rules.Match{rules.MatchMark{Value: 5, Mask: 15}},
					rules.SetMark{Value: 1, Mask: 1}, rules.SetMark{Value: 2, Mask: 2}),
			}),
			[]string{
				"mangle SLUICE_OUT: ct mark & 0xf == 0x5 goto SLUICE_OUT_DO_2",
				"mangle SLUICE_OUT: goto SLUICE_OUT_REST",
				"mangle SLUICE_OUT_REST: meta mark & 0xf == 0x5 goto SLUICE_OUT_DO",
				"mangle SLUICE_OUT_DO: meta mark set meta mark & 0xfffffffe | 0x1",
				"mangle SLUICE_OUT_DO: meta mark set meta mark & 0xfffffffd | 0x2",
				"mangle SLUICE_OUT_DO_2: ct mark set meta mark",
				"mangle SLUICE_OUT_DO_2: return",
			},
		},
		{
			"notrack changes the state that the rule matches",
			outputOf(rules.Filter, rules.RawPriority, []rules.Rule{
				rule([]rules.Match{rules.MatchState{States: rules.States(rules.Invalid)}},
					rules.Notrack{}, rules.Accept),
			}),
			[]string{
				"raw SLUICE_OUT: ct state invalid goto SLUICE_OUT_DO",
				"raw SLUICE_OUT_DO: notrack",
			},
		},
		{
			"a rule that matches and changes the connection mark becomes a chain",
			outputOf(rules.Route, rules.ManglePriority, []rules.Rule{
				rule([]rules.Match{rules.MatchMark{Conntrack: true, Value: 5, Mask: 15}},
					rules.MixMark{Conntrack: true, ConntrackMark: 0xff, Xor: 0x100},
					rules.MixMark{ConntrackMark: 0xf00}),
				rule([]rules.Match{rules.MatchMark{Value: 5, Mask: 15}},
					rules.MixMark{Conntrack: true, ConntrackMark: 0xff, Xor: 0x100},
					rules.SetMark{Value: 2}),
			}),
			[]string{
				"mangle SLUICE_OUT: ct mark & 0xf == 0x5 goto SLUICE_OUT_DO",
				"mangle SLUICE_OUT: goto SLUICE_OUT_REST",
				"mangle SLUICE_OUT_REST: meta mark & 0xf == 0x5 ct mark set ct mark & 0xff ^ 0x100",
				"mangle SLUICE_OUT_REST: meta mark & 0xf == 0x5 meta mark set meta mark & 0xffffffff ^ 0x2",
				"mangle SLUICE_OUT_DO: ct mark set ct mark & 0xff ^ 0x100",
				"mangle SLUICE_OUT_DO: meta mark set ct mark & 0xf00",
				"mangle SLUICE_OUT_DO: goto SLUICE_OUT_REST",
			},
		},
		{
			"return continues after the jump, and accept leaves the base chain", natOf(
				[]rules.Rule{
					rule([]rules.Match{tcp}, rules.Jump{Chain: "c1"}),
					rule([]rules.Match{tcp}, redirect),
				},
				[]rules.Rule{
					rule([]rules.Match{addrs(false, "10.0.0.0/8")}, rules.Return),
					rule([]rules.Match{addrs(false, "11.0.0.0/8")}, rules.Accept),
				},
			),
			[]string{
				"nat SLUICE_OUT: meta l4proto tcp goto SLUICE_C1",
				"nat SLUICE_OUT: goto SLUICE_OUT_REST",
				"nat SLUICE_OUT_REST: meta l4proto tcp redirect to :15001",
				"nat SLUICE_C1: ip daddr 10.0.0.0/8 goto SLUICE_OUT_REST",
				"nat SLUICE_C1: ip daddr 11.0.0.0/8 return",
				"nat SLUICE_C1: goto SLUICE_OUT_REST",
			},
		},
		{
			"return after a goto continues after the last jump", natOf(
				[]rules.Rule{
					rule([]rules.Match{tcp}, rules.Jump{Chain: "c1"}),
					rule([]rules.Match{tcp}, redirect),
				},
				[]rules.Rule{
					rule([]rules.Match{addrs(false,
						"10.0.0.0/8")}, rules.Jump{Chain: "c2", Goto: true}),
					rule(nil, rules.Accept),
				},
				[]rules.Rule{rule([]rules.Match{addrs(false, "10.1.0.0/16")}, rules.Accept)},
			),
			[]string{
				"nat SLUICE_OUT: meta l4proto tcp goto SLUICE_C1",
				"nat SLUICE_OUT: goto SLUICE_OUT_REST",
				"nat SLUICE_OUT_REST: meta l4proto tcp redirect to :15001",
				"nat SLUICE_C1: ip daddr 10.0.0.0/8 goto SLUICE_C2",
				"nat SLUICE_C1: return",
				"nat SLUICE_C2: ip daddr 10.1.0.0/16 return",
				"nat SLUICE_C2: goto SLUICE_OUT_REST",
			},
		},
		{
			"a chain with two callers is duplicated", natOf(
				[]rules.Rule{
					rule([]rules.Match{tcp}, rules.Jump{Chain: "c1"}),
					rule(nil, rules.Jump{Chain: "c1", Goto: true}),
					rule([]rules.Match{tcp}, redirect),
				},
				[]rules.Rule{rule([]rules.Match{tcp, addrs(false, "10.0.0.0/8")}, redirect)},
			),
			[]string{
				"nat SLUICE_OUT: meta l4proto tcp goto SLUICE_C1_2",
				"nat SLUICE_OUT: goto SLUICE_OUT_REST",
				"nat SLUICE_OUT_REST: goto SLUICE_C1",
				"nat SLUICE_C1: ip daddr 10.0.0.0/8 meta l4proto tcp redirect to :15001",
				"nat SLUICE_C1_2: ip daddr 10.0.0.0/8 meta l4proto tcp redirect to :15001",
				"nat SLUICE_C1_2: goto SLUICE_OUT_REST",
			},
		},
		{
			"reported counters remain, and rules without effect are removed",
			natOf([]rules.Rule{
				rule([]rules.Match{tcp}, rules.Count{}), rule([]rules.Match{tcp}),
				rule([]rules.Match{tcp, rules.MatchTCPFlags{
					Not: true, Mask: rules.SYN | rules.ACK, Value: rules.SYN,
				}}, rules.Count{}, rules.Accept),
				rule([]rules.Match{tcp}, rules.Count{}, rules.Accept),
				rule([]rules.Match{tcp}, rules.Return), rule(nil, rules.Accept),
				rule([]rules.Match{tcp}, redirect),
			}),
			[]string{
				"nat SLUICE_OUT: meta l4proto tcp counter",
				"nat SLUICE_OUT: tcp flags & (syn | ack) != syn counter return",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			legacy, err := compat.Translate(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			got := listing(legacy, rules.IPv4)
			if len(got) == 0 || !strings.HasSuffix(got[0], "OUTPUT: jump SLUICE_OUT") {
				t.Fatalf("rules %q, want a jump to SLUICE_OUT in OUTPUT first", got)
			}
			if diff := cmp.Diff(tc.want, got[1:]); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTranslateTProxy(t *testing.T) {
	followedBy := func(next ...rules.Rule) rules.Ruleset {
		first := rule([]rules.Match{tcp}, rules.TProxy{Port: 15006},
			rules.SetMark{Value: 1, Mask: 3}, rules.Accept)
		return rules.Ruleset{Tables: []rules.Table{{Name: "test", Chains: []rules.Chain{{
			Name:  "in",
			Base:  &rules.Base{Hook: rules.Prerouting, Priority: rules.ManglePriority},
			Rules: append([]rules.Rule{first}, next...),
		}}}}}
	}
	legacy, err := compat.Translate(followedBy(rule([]rules.Match{tcp}, rules.Drop)))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"mangle PREROUTING: jump SLUICE_IN",
		"mangle SLUICE_IN: meta l4proto tcp TPROXY redirect 0.0.0.0:15006 mark 0x1/0x3",
	}
	if diff := cmp.Diff(want, listing(legacy, rules.IPv6)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	onAddr := followedBy(rule([]rules.Match{tcp}, rules.Drop))
	onAddr.Tables[0].Chains[0].Rules[0].Actions[0] = rules.TProxy{
		Port: 15006, Addr: netip.MustParseAddr("127.0.0.1"),
	}
	if _, err := compat.Translate(onAddr); err == nil ||
		!strings.Contains(err.Error(), "must be of family ip6") {
		t.Errorf("an address of family ip in an inet table: error %v, want an error about its family",
			err)
	}
	onAddr.Tables[0].Family = rules.IPv4
	if legacy, err = compat.Translate(onAddr); err != nil {
		t.Fatal(err)
	}
	want[1] = strings.Replace(want[1], "0.0.0.0", "127.0.0.1", 1)
	if diff := cmp.Diff(want, listing(legacy, rules.IPv4)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	const rejection = "a tproxy rule must be followed by a rule that drops the same packets"
	for name, rs := range map[string]rules.Ruleset{
		"no next rule": followedBy(),
		"a drop of other packets": followedBy(rule(
			[]rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{rules.UDP}}},
			rules.Drop)),
		"another verdict": followedBy(rule([]rules.Match{tcp}, rules.Accept)),
	} {
		if _, err := compat.Translate(rs); err == nil || !strings.Contains(err.Error(), rejection) {
			t.Errorf("%s: error %v, want %s", name, err, rejection)
		}
	}
}

func TestTranslateWithoutIPv6CreatesNoIPv6Rules(t *testing.T) {
	r := sidecar(tproxy)
	legacy, err := compat.Translate(rules.MustCompile(r))
	if err != nil {
		t.Fatal(err)
	}
	if got := listing(legacy, rules.IPv6); len(got) > 0 {
		t.Errorf("rules of IPv6: %q, want none", got)
	}
}

// A chain name of xtables has at most 28 bytes (XT_EXTENSION_MAXNAMELEN without the final zero).
// The name SLUICE_GATE belongs to the gate.
func TestTranslateCreatesValidChainNames(t *testing.T) {
	rs := natOf([]rules.Rule{rule([]rules.Match{tcp}, rules.RedirectTo{Port: 15001})})
	for name, want := range map[string]string{
		"nat-output":   "SLUICE_OUTPUT",
		"mangle-nat.1": "SLUICE_MANGLE_NAT_1",
		"gate":         "SLUICE_GATE_2",
		"a-name-that-is-longer-than-the-kernel-has-room-for": "SLUICE_A_NAME_THAT_IS_LONGER",
	} {
		rs.Tables[0].Chains[0].Name = name
		legacy, err := compat.Translate(rs)
		if err != nil {
			t.Fatal(err)
		}
		if got := legacy.Tables[0].Chains[1].Name; got != want || len(got) > 28 {
			t.Errorf("%s becomes %s, want %s", name, got, want)
		}
	}
}

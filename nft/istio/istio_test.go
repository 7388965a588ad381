package istio_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/nft/istio"
	"github.com/sluice-mesh/sluice/rules"
)

// rule makes a rule of iptables from words: "in eth1", "out eth1", "tcp", "mark 1337", "dst
// 10.0.0.0/8", "uid 1337", each possibly after "not"; "comment", "uncounted", and one of "return",
// "drop", "save", "set 1338", or "jump" or "goto" with a chain.
func rule(t *testing.T, text string) rules.Rule {
	t.Helper()
	r := rules.Rule{Actions: []rules.Action{rules.Count{}}}
	words := strings.Fields(text)
	argument := func() string { words = words[1:]; return words[0] }
	number := func() (n uint32) {
		if _, err := fmt.Sscan(argument(), &n); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return n
	}
	for not := false; len(words) > 0; words = words[1:] {
		switch words[0] {
		case "not":
			not = true
			continue
		case "in", "out":
			out := words[0] == "out"
			r.Matches = append(r.Matches, rules.MatchInterface{
				Out: out, Not: not, Names: []rules.InterfaceName{{Name: argument()}},
			})
		case "tcp":
			r.Matches = append(r.Matches, rules.MatchProtocol{
				Not: not, Protocols: []rules.Protocol{rules.TCP},
			})
		case "dst":
			p := netip.MustParsePrefix(argument())
			r.Matches = append(r.Matches, rules.MatchAddr{
				Side: rules.Destination, Not: not, Ranges: rules.AddrRanges([]netip.Prefix{p}),
			})
		case "mark":
			r.Matches = append(r.Matches, rules.MatchMark{
				Not: not, Value: number(), Mask: ^uint32(0),
			})
		case "uid":
			id := number()
			r.Matches = append(r.Matches, rules.MatchOwner{
				Not: not, IDs: []rules.IDRange{{First: id, Last: id}},
			})
		case "comment":
			r.Comment = "of others"
		case "uncounted":
			r.Actions = nil
		case "return":
			r.Actions = append(r.Actions, rules.Return)
		case "drop":
			r.Actions = append(r.Actions, rules.Drop)
		case "save":
			r.Actions = append(r.Actions, rules.SaveMark{})
		case "set":
			r.Actions = append(r.Actions, rules.SetMark{Value: number(), Mask: ^uint32(0)})
		case "jump", "goto":
			isGoto := words[0] == "goto"
			r.Actions = append(r.Actions, rules.Jump{Chain: argument(), Goto: isGoto})
		default:
			t.Fatalf("%s: unknown word %q", text, words[0])
		}
		not = false
	}
	rules.SortMatches(r.Matches)
	return r
}

// chain is a chain with its rules. A "+" before a rule means that Find must identify it as Istio's.
type chain struct {
	name  string
	rules []string
}

func prerouting(list ...string) chain { return chain{"PREROUTING", list} }
func output(list ...string) chain     { return chain{"OUTPUT", list} }

func TestFindIdentifiesOnlyIstiosRules(t *testing.T) {
	const inbound, outbound = "+tcp jump ISTIO_INBOUND", "+jump ISTIO_OUTPUT"
	istioChain := chain{"ISTIO_OUTPUT", []string{"return"}}
	for _, tc := range []struct {
		name   string
		table  string
		chains []chain
	}{
		{"no rule is Istio's if Istio's chains are missing", "nat", []chain{
			prerouting("in eth1 return"), output("out eth1 return"), {"MINE", nil},
		}},
		{
			"an excluded interface", "nat",
			[]chain{istioChain, prerouting("+in eth1 return", inbound), output("+out eth1 return", outbound)},
		},
		{"several excluded interfaces after foreign rules of the same form", "nat", []chain{
			istioChain, prerouting("in eth1 return", "+in eth2 return", "+in eth3 return", inbound),
			output("out eth9 return", "+out eth2 return", "+out eth3 return", outbound),
		}},
		{"pairs in different orders", "nat", []chain{
			istioChain, prerouting("in eth1 return", "in eth2 return", inbound),
			output("out eth2 return", "out eth1 return", outbound),
		}},
		{"only one of two pairs directly precedes Istio's rules", "nat", []chain{
			istioChain, prerouting("in eth2 return", "+in eth1 return", inbound),
			output("out eth2 return", "tcp drop", "+out eth1 return", outbound),
		}},
		{
			"a RETURN without a counterpart in OUTPUT", "nat",
			[]chain{istioChain, prerouting("in eth1 return", inbound), output(outbound)},
		},
		{"a RETURN whose counterpart does not precede Istio's rules", "nat", []chain{
			istioChain, prerouting("in eth1 return", inbound),
			output("out eth1 return", "tcp drop", outbound),
		}},
		{"a pair followed by a foreign rule", "nat", []chain{
			istioChain, prerouting("in eth1 return", "tcp drop", inbound),
			output("out eth1 return", outbound),
		}},
		{
			"a pair after Istio's rules", "nat",
			[]chain{istioChain, prerouting(inbound, "in eth1 return"), output(outbound, "out eth1 return")},
		},
		{
			"a pair with other matches", "nat",
			[]chain{
				istioChain, prerouting("in eth1 tcp return", inbound),
				output("out eth1 tcp return", outbound),
			},
		},
		{
			"a pair of DROP rules", "nat",
			[]chain{istioChain, prerouting("in eth1 drop", inbound), output("out eth1 drop", outbound)},
		},
		{
			"a negated pair", "nat",
			[]chain{
				istioChain, prerouting("not in eth1 return", inbound),
				output("not out eth1 return", outbound),
			},
		},
		{
			"a pair with a comment", "nat",
			[]chain{
				istioChain, prerouting("in eth1 comment return", inbound),
				output("out eth1 comment return", outbound),
			},
		},
		{"a pair without the counter of iptables", "nat", []chain{
			istioChain, prerouting("in eth1 uncounted return", inbound),
			output("out eth1 uncounted return", outbound),
		}},
		{"in TPROXY mode nat PREROUTING has only rules for excluded interfaces", "nat", []chain{
			istioChain,
			prerouting("in eth7 return", "+in eth1 return", "+in eth2 return", "in eth8 return"),
			output("out eth7 return", "tcp drop", "+out eth1 return", "+out eth2 return", outbound),
		}},
		{"the later of two equal rules is Istio's", "nat", []chain{
			istioChain, prerouting("in eth1 return", "tcp drop", "+in eth1 return", "tcp drop"),
			output("+out eth1 return", outbound),
		}},
		{"a pair in table filter", "filter", []chain{
			istioChain, prerouting("in eth1 return", inbound), output("out eth1 return", outbound),
		}},
		{"rerouted interfaces", "nat", []chain{
			istioChain,
			prerouting("in eth7 return", "+in vm2 dst 10.0.0.0/8 jump ISTIO_REDIRECT",
				"+in vm1 dst 10.0.0.0/8 jump ISTIO_REDIRECT",
				"+in vm2 return", "+in vm1 return", "in eth8 return", inbound), output(outbound),
		}},
		{"a rerouted interface that is excluded too", "nat", []chain{
			istioChain,
			prerouting("+in vm1 jump ISTIO_REDIRECT", "+in vm1 return", "+in vm1 return", inbound),
			output("+out vm1 return", outbound),
		}},
		{"a rerouted interface with an additional foreign RETURN", "nat", []chain{
			istioChain,
			prerouting("+in vm1 jump ISTIO_REDIRECT", "+in vm1 return", "in vm1 return", inbound),
			output(outbound),
		}},
		{"a RETURN after an inserted foreign rule", "nat", []chain{
			istioChain, prerouting("+in vm1 jump ISTIO_REDIRECT", "tcp drop", "in vm1 return", inbound),
			output(outbound),
		}},
		{
			"a rerouted interface without captured addresses", "nat",
			[]chain{istioChain, prerouting("in vm1 return", inbound), output(outbound)},
		},
		{"jumps from foreign chains", "nat", []chain{
			istioChain,
			{
				"MINE",
				[]string{
					"tcp drop", "+tcp jump ISTIO_OUTPUT", "+goto ISTIO_REDIRECT", "jump ISTIOD",
				},
			},
		}},
		{"marks", "mangle", []chain{
			{"ISTIO_INBOUND", []string{"tcp mark 1337 return"}},
			prerouting("+in eth1 return", inbound, "+tcp mark 1337 save", "mark 1337 save",
				"tcp mark 1338 save", "tcp mark 1337 return"),
			output("+out eth1 return", "+out lo tcp mark 1337 return", "out eth0 tcp mark 1337 return",
				"+out lo not dst 127.0.0.1/32 tcp uid 1337 set 1338",
				"+out lo not dst 127.0.0.0/8 tcp uid 7 set 1338",
				"+out lo not dst ::1/128 tcp uid 7 set 1338",
				"out lo not dst 126.0.0.0/7 tcp uid 7 set 1338",
				"out lo dst 127.0.0.1/32 tcp uid 7 set 1338",
				"out lo not dst 127.0.0.1/32 tcp not uid 7 set 1338",
				"out lo not dst 127.0.0.1/32 tcp uid 7 set 1337"),
			{"MINE", []string{"tcp mark 1337 save"}},
		}},
		{"without the inbound chain the mark is the default", "mangle", []chain{
			istioChain, prerouting("+tcp mark 1337 save", "tcp mark 100 save"),
			output("+out lo tcp mark 1337 return"),
		}},
		{"the inbound chain determines the mark", "mangle", []chain{
			{"ISTIO_INBOUND", []string{"tcp mark 100 return"}},
			prerouting("tcp mark 1337 save", "+tcp mark 100 save"), output("+out lo tcp mark 100 return"),
		}},
		{"in REDIRECT mode mangle has no rules for excluded interfaces", "mangle", []chain{
			{"ISTIO_DROP", []string{"drop"}},
			prerouting("in eth1 return", "+jump ISTIO_DROP"),
			output("out eth1 return"),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table := rules.Table{Family: rules.IPv4, Name: tc.table}
			var want, got []string
			for _, c := range tc.chains {
				built := rules.Chain{Name: c.name}
				if c.name == "PREROUTING" || c.name == "OUTPUT" {
					built.Base = &rules.Base{}
				}
				for _, text := range c.rules {
					ruleText, isIstio := strings.CutPrefix(text, "+")
					built.Rules = append(built.Rules, rule(t, ruleText))
					if isIstio {
						want = append(want, c.name+": "+ruleText)
					}
				}
				table.Chains = append(table.Chains, built)
			}
			found := istio.Find(&table)
			for _, p := range found.Rules {
				c := tc.chains[p.Chain]
				got = append(got, c.name+": "+strings.TrimPrefix(c.rules[p.Rule], "+"))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rules identified as Istio's (-want +got):\n%s", diff)
			}
			if len(found.Lines()) != len(found.Rules)+len(found.Chains) {
				t.Errorf("lines %q, want one for each of %d rules and %d chains", found.Lines(),
					len(found.Rules), len(found.Chains))
			}
		})
	}
}

// TestFindNeedsLinearTime checks that the time of Find is linear in the number of rules, because a
// process of the pod can add many. A longer time would exceed the time limit of the tests.
func TestFindNeedsLinearTime(t *testing.T) {
	const n = 45_000 // the limit of 32 MiB of iptables-legacy allows about as many
	parse := func(texts ...string) (list []rules.Rule) {
		for _, text := range texts {
			list = append(list, rule(t, text))
		}
		return list
	}
	fill := func(before, repeated, after []rules.Rule) []rules.Rule {
		return slices.Concat(before, slices.Repeat(repeated, n/len(repeated)), after)
	}
	inbound, outbound := parse("tcp jump ISTIO_INBOUND"), parse("jump ISTIO_OUTPUT")
	for name, chains := range map[string][2][]rules.Rule{
		"the rules of PREROUTING follow Istio's": {
			fill(inbound, parse("in a return"), nil), fill(nil, parse("out a return"), outbound),
		},
		"PREROUTING has no other rules of Istio": {
			fill(nil, parse("in a return", "in b return", "in a return", "in a return"), nil),
			fill(nil, parse("out a return"), outbound),
		},
		"each rule precedes one of Istio's": {
			fill(nil, parse("in a return", "tcp jump ISTIO_INBOUND"), nil),
			fill(nil, parse("out b return", "jump ISTIO_OUTPUT"), nil),
		},
	} {
		table := rules.Table{Name: "nat", Chains: []rules.Chain{
			{Name: "ISTIO_OUTPUT"},
			{Name: "PREROUTING", Base: &rules.Base{}, Rules: chains[0]},
			{Name: "OUTPUT", Base: &rules.Base{}, Rules: chains[1]},
		}}
		if found := istio.Find(&table); found.IsZero() {
			t.Errorf("%s: no rules of Istio, want the jumps", name)
		}
	}
}

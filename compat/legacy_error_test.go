package compat_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

func TestTranslateRejectsUnsupportedRules(t *testing.T) {
	redirect := rules.RedirectTo{Port: 15001}
	mangle := func(list ...rules.Rule) rules.Ruleset {
		return outputOf(rules.Route, rules.ManglePriority, list)
	}
	based := func(b rules.Base, list ...rules.Rule) rules.Ruleset {
		return rules.Ruleset{Tables: []rules.Table{{
			Name: "test", Chains: []rules.Chain{{Name: "base", Base: &b, Rules: list}},
		}}}
	}
	two := natOf([]rules.Rule{rule([]rules.Match{tcp}, redirect)})
	two.Tables = append(two.Tables, two.Tables[0])
	const cannot = ": not supported by iptables-legacy: "
	for _, tc := range []struct {
		name string
		in   rules.Ruleset
		want string // empty if Translate accepts the ruleset
	}{
		{
			"an unsupported hook", based(rules.Base{Hook: rules.Input}),
			"chain base: iptables-legacy has no built-in chain for type filter hook input priority 0",
		},
		{
			"a policy", based(rules.Base{Hook: rules.Output, Drop: true}),
			"chain base: policy drop is not supported, because the policy of a built-in chain also applies",
		},
		{
			"two chains in one built-in chain", two,
			"chain out: cannot keep its order: a chain that runs before it is also translated to table nat",
		},
		{
			"a filter chain that changes marks",
			based(rules.Base{
				Hook: rules.Output, Priority: -160,
			}, rule(nil, rules.SetMark{Value: 1, Mask: 1})),
			"chain base: it changes the mark, after which the kernel reroutes packets in a chain of type route, but not in a chain of type filter",
		},
		{
			"an unknown condition",
			mangle(rule([]rules.Match{rules.Unknown{Text: "x"}}, rules.Drop)),
			"chain out: rule 1: unknown(x) drop" + cannot + "unknown(x) is unknown to the model",
		},
		{
			"an unreachable unknown action",
			mangle(rule(nil, rules.Accept), rule(nil, rules.Unknown{Text: "x"})), "",
		},
		{
			"a reachable unknown action", mangle(rule(nil, rules.Unknown{Text: "x"})),
			"chain out: rule 1: unknown(x)" + cannot + "unknown(x) is unknown",
		},
		{
			"an error in a chain that is jumped to",
			natOf([]rules.Rule{rule(nil, rules.Jump{Chain: "c1"})},
				[]rules.Rule{rule([]rules.Match{tcp}, rules.Drop)}),
			"chain c1: rule 1: meta l4proto tcp drop" + cannot +
				"iptables does not allow DROP in table nat",
		},
		{"a jump to a missing chain", natOf([]rules.Rule{rule(nil, rules.Jump{Chain: "c9"})}), cannot +
			"chain c9 does not exist"},
		{
			"a loop of jumps",
			natOf([]rules.Rule{rule(nil, rules.Jump{Chain: "c1"})},
				[]rules.Rule{rule([]rules.Match{tcp}, rules.Jump{Chain: "c1"})}),
			"chain c1: rule 1: meta l4proto tcp jump c1" + cannot +
				"jump to chain c1 forms a loop",
		},
		{
			"a redirect outside of nat", mangle(rule([]rules.Match{tcp}, redirect)),
			"redirect to :15001 in table mangle: xtables supports it in table nat only",
		},
		{
			"a redirect of any protocol", natOf([]rules.Rule{rule(nil, redirect)}),
			"redirect to :15001 needs a match of the protocol TCP or UDP",
		},
		{
			"a zone outside of raw", mangle(rule(nil, rules.SetZone{Zone: 1})),
			"ct zone set 1 in table mangle: xtables supports it in table raw only",
		},
		{
			"a mark that is saved before conntrack",
			based(rules.Base{Hook: rules.Output, Priority: rules.RawPriority}, rule(nil, rules.SaveMark{})),
			"ct mark set meta mark in table raw: xtables saves the mark for other packets too",
		},
		{
			"a changed connection mark before conntrack",
			based(rules.Base{Hook: rules.Output, Priority: rules.RawPriority},
				rule(nil, rules.MixMark{Conntrack: true, Xor: 1})),
			"in table raw: xtables saves the mark for other packets too",
		},
		{
			"an action after a restored mark", mangle(rule(nil, rules.RestoreMark{}, rules.Accept)),
			"meta mark set ct mark must be the last action of the rule, but is before accept",
		},
		{
			"an action after a jump", mangle(rule(nil, rules.Jump{Chain: "c1"}, rules.Accept)),
			"jump c1 must be the last action of the rule, but is before accept",
		},
		{
			"an owner at prerouting",
			based(rules.Base{Hook: rules.Prerouting, Priority: -160},
				rule([]rules.Match{rules.MatchOwner{IDs: idRanges("1")}}, rules.Drop)),
			"meta skuid 1 at prerouting: xtables supports owners at output and postrouting only",
		},
		{
			"two matches of an interface", mangle(rule([]rules.Match{
				rules.MatchInterface{Out: true, Names: interfaceNames("a+")},
				rules.MatchInterface{Out: true, Not: true, Names: interfaceNames("ab")},
			}, rules.Drop)),
			`oifname != "ab": an xtables rule can compare it only once, with one value`,
		},
		{
			"protocol 0",
			mangle(rule([]rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{0}}},
				rules.Drop)),
			"protocol 0 is not supported",
		},
		{"a mark with flipped bits", mangle(rule(nil, rules.SetMark{Value: 2, Mask: 1})), ""},
		{
			"a mark copied in parts",
			mangle(rule(nil, rules.MixMark{Mark: 0xff, ConntrackMark: 0xff00})), "",
		},
		{
			"a mark copied in parts and combined with a value",
			mangle(rule(nil, rules.MixMark{Mark: 0xff, ConntrackMark: 0xff00, Xor: 1})),
			"CONNMARK can either copy a mark or set a value",
		},
		{
			"a condition after an action",
			mangle(rule(nil, rules.SetMark{Value: 1, Mask: 1}, rules.Require{Match: tcp},
				rules.Drop)),
			"meta l4proto tcp after an action: in an xtables rule all conditions precede the target",
		},
		{
			"a rejection outside of filter",
			mangle(rule(nil, rules.Reject{With: "icmp port-unreachable"})),
			"xtables supports it in table filter only",
		},
		{
			"notrack outside of raw", mangle(rule(nil, rules.Notrack{})),
			"xtables supports it in table raw only",
		},
		{
			"an address of one family in an inet table", natOf([]rules.Rule{
				rule([]rules.Match{
					tcp,
				}, rules.DNATTo{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80}),
			}),
			"address 10.0.0.1 is not of family ip6",
		},
		{
			"a descending port range",
			natOf([]rules.Rule{rule([]rules.Match{tcp}, rules.RedirectTo{Port: 2, Last: 1})}),
			"ports 2-1: the first port must be 1 or more and at most the last",
		},
		{
			"a port range",
			natOf([]rules.Rule{rule([]rules.Match{tcp}, rules.RedirectTo{Port: 1, Last: 2})}), "",
		},
		{
			"a match that the backend only decodes",
			mangle(rule([]rules.Match{rules.MatchSocket{}}, rules.Drop)),
			"socket transparent 1: encoding it for xtables is not supported",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := compat.Translate(tc.in)
			if tc.want == "" {
				if err != nil {
					t.Errorf("error %v, want none", err)
				}
				return
			}
			// The error does not repeat the chain for each jump to it.
			if err == nil || !strings.Contains(err.Error(), tc.want) ||
				strings.Count(err.Error(), "chain ") > 2+strings.Count(tc.want, "chain ") {
				t.Errorf("error %v\nwant  %s", err, tc.want)
			}
		})
	}
}

package compat_test

import (
	"strings"
	"testing"

	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/rules"
)

// Random translated rules decode to themselves after encoding.
func TestEncodedRulesDecodeToTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := generator{t}
		rs := rules.MustCompile(d.redirect())
		if d.yes("any") {
			rs = d.ruleset()
		}
		legacy, err := compat.Translate(rs)
		if err != nil {
			t.Skip(err)
		}
		for _, table := range withCounters(legacy.Tables).Tables {
			for _, c := range table.Chains {
				for i := range c.Rules {
					wantSameRule(t, table.Family, &c.Rules[i])
				}
			}
		}
	})
}

// wantSameRule verifies that a rule decodes to itself after encoding.
func wantSameRule(t rapid.TB, f rules.Family, r *rules.Rule) {
	t.Helper()
	encoded, err := compat.EncodeRule(f, r)
	if err != nil {
		t.Fatalf("%s: %v", r, err)
	}
	chain := []xtables.Chain{{Name: "chain", Rules: []xtables.Rule{encoded}}}
	found := compat.DecodeTable(&xtables.Table{
		Family: f, Name: "test", Chains: chain,
	}).Chains[0].Rules[0]
	alone := func(r rules.Rule) rules.Ruleset {
		return rules.Ruleset{
			Tables: []rules.Table{{Chains: []rules.Chain{{Rules: []rules.Rule{r}}}}},
		}
	}
	if !rules.Equal(alone(*r), alone(found)) || r.Comment != found.Comment {
		t.Fatalf("want %s, found %s", r, &found)
	}
}

func TestEncodeRejectsRulesThatNoSingleXTablesRuleExpresses(t *testing.T) {
	addrs := rules.AddrRanges(prefixList("10.0.0.0/8,12.0.0.0/8"))
	for _, tc := range []struct {
		name string
		rule rules.Rule
		want string
	}{
		{
			"two interfaces",
			rule([]rules.Match{rules.MatchInterface{Names: interfaceNames("a,b")}}),
			`iifname { "a", "b" }: an xtables rule can compare it only once`,
		},
		{
			"two matches of an interface",
			rule([]rules.Match{
				rules.MatchInterface{Names: interfaceNames("a+")},
				rules.MatchInterface{Names: interfaceNames("ab")},
			}),
			`iifname "ab": an xtables rule can compare it only once`,
		},
		{
			"an invalid interface name",
			rule([]rules.Match{rules.MatchInterface{Names: []rules.InterfaceName{{}}}}),
			`"" is not an interface name`,
		},
		{
			"two prefixes", rule([]rules.Match{rules.MatchAddr{Ranges: addrs}}),
			"an xtables rule can compare it only once",
		},
		{
			"an address of another family",
			rule([]rules.Match{rules.MatchAddr{Ranges: rules.AddrRanges(prefixList("fd00::/8"))}}),
			"the address is not of family ip",
		},
		{
			"two protocols",
			rule([]rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{6, 17}}}),
			"an xtables rule can compare it only once",
		},
		{
			"two matches of a protocol", rule([]rules.Match{tcp, tcp}),
			"an xtables rule can compare it only once",
		},
		{
			"protocol 0, which means all protocols in an xtables rule",
			rule([]rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{0}}}),
			"in an xtables rule the protocol 0 means any protocol",
		},
		{
			"ports of all protocols but TCP", rule([]rules.Match{
				rules.MatchProtocol{Not: true, Protocols: []rules.Protocol{6}},
				rules.MatchPort{Ports: portRanges("80")},
			}),
			"th sport 80: a match of ports needs a match of the protocol, TCP or UDP",
		},
		{
			"two actions", rule(nil, rules.Count{}, rules.SaveMark{}, rules.Accept),
			"ct mark set meta mark and accept: an xtables rule can have only one target",
		},
		{
			"tproxy without a drop", rule(nil, rules.TProxy{Port: 1}),
			"tproxy to :1: xtables has no such target",
		},
		{"a long comment", rules.Rule{Comment: strings.Repeat("x", 256)}, "at most 255 bytes"},
	} {
		if _, err := compat.EncodeRule(rules.IPv4, &tc.rule); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %s", tc.name, err, tc.want)
		}
	}
}

// A header holds one prefix for each side, but not the prefix of all addresses. Other ranges, and
// further addresses for a side, need a match iprange.
func TestEncodeAddressesOutsideTheHeader(t *testing.T) {
	addr := func(side rules.Side, not bool, text string) rules.MatchAddr {
		return rules.MatchAddr{
			Side: side, Not: not, Ranges: []netipx.IPRange{netipx.MustParseIPRange(text)},
		}
	}
	for _, r := range []rules.Rule{
		rule([]rules.Match{addr(rules.Source, true, "10.0.0.1-10.0.0.9")}, rules.Count{}),
		rule([]rules.Match{
			addr(rules.Source, false, "10.0.0.0-10.255.255.255"),
			addr(rules.Source, true, "10.1.0.0-10.1.255.255"),
		}, rules.Count{}),
		rule([]rules.Match{addr(rules.Destination, false, "0.0.0.0-255.255.255.255")},
			rules.Count{}),
		rule([]rules.Match{
			addr(rules.Destination, false, "10.0.0.1-10.0.0.9"),
			addr(rules.Destination, true, "10.0.0.2-10.0.0.3"),
		}, rules.Count{}),
	} {
		wantSameRule(t, rules.IPv4, &r)
	}
}

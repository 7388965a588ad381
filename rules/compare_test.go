package rules_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/rules"
)

// comparedRedirect returns parameters whose ruleset has sets, rules with several actions, and
// routes.
func comparedRedirect() rules.Redirect { return typical(mostParameters, tproxyMode) }

// inChain returns a change of the named chain.
func inChain(name string, change func(*rules.Chain)) func(*rules.Ruleset) {
	return func(rs *rules.Ruleset) { change(rs.Tables[0].Chain(name)) }
}

func TestCompareNamesEachDifference(t *testing.T) {
	const groups = "nat-output-groups"
	rule := rules.Rule{Actions: []rules.Action{rules.Drop}, Comment: "added"}
	for _, tc := range []struct {
		name   string
		change func(*rules.Ruleset)
		want   []string
	}{
		{"no change", func(*rules.Ruleset) {}, nil},
		{
			"a missing rule", inChain(groups, func(c *rules.Chain) {
				c.Rules = slices.Delete(c.Rules, 4, 5)
			}),
			[]string{"missing in chain inet sluice nat-output-groups: ip daddr 127.0.0.1 return"},
		},
		{
			"an extra rule", inChain(groups, func(c *rules.Chain) {
				c.Rules = slices.Insert(c.Rules, 4, rule)
			}),
			[]string{"extra in chain inet sluice nat-output-groups: drop"},
		},
		{
			"a rule twice", inChain(groups, func(c *rules.Chain) {
				c.Rules = append(c.Rules, c.Rules[4])
			}),
			[]string{"extra in chain inet sluice nat-output-groups: ip daddr 127.0.0.1 return"},
		},
		{
			"a moved rule", inChain(groups, func(c *rules.Chain) {
				moved := c.Rules[4]
				c.Rules = append(slices.Delete(c.Rules, 4, 5), moved)
			}),
			[]string{"reordered in chain inet sluice nat-output-groups: ip daddr 127.0.0.1 return"},
		},
		{"two exchanged rules", inChain(groups, func(c *rules.Chain) {
			c.Rules[4], c.Rules[8] = c.Rules[8], c.Rules[4]
		}), []string{
			"reordered in chain inet sluice nat-output-groups: ip daddr 127.0.0.1 return",
			"reordered in chain inet sluice nat-output-groups: tcp dport 443 redirect to :15001",
		}},
		{"another port", inChain(groups, func(c *rules.Chain) {
			c.Rules[8].Actions = []rules.Action{redirect(15002)}
		}), []string{
			"missing in chain inet sluice nat-output-groups: tcp dport 443 redirect to :15001",
			"extra in chain inet sluice nat-output-groups: tcp dport 443 redirect to :15002",
		}},
		{"a rule without its last action", inChain("mangle-prerouting", func(c *rules.Chain) {
			c.Rules[13].Actions = c.Rules[13].Actions[:2]
		}), []string{
			"missing in chain inet sluice mangle-prerouting: meta l4proto tcp tproxy to :15006 meta mark set 0x539 accept",
			"extra in chain inet sluice mangle-prerouting: meta l4proto tcp tproxy to :15006 meta mark set 0x539",
		}},
		{"another priority", inChain("nat-output", func(c *rules.Chain) {
			c.Base.Priority = -100
		}), []string{
			"changed in chain inet sluice nat-output: want type nat hook output priority -110; policy accept;, " +
				"found type nat hook output priority -100; policy accept;",
		}},
		{"a table that a process owns", func(rs *rules.Ruleset) { rs.Tables[0].Owned = true }, []string{
			"changed in table inet sluice: want no owner, found flags owner",
		}},
		{"another policy", inChain("nat-output", func(c *rules.Chain) {
			c.Base.Drop = true
		}), []string{
			"changed in chain inet sluice nat-output: want type nat hook output priority -110; policy accept;, " +
				"found type nat hook output priority -110; policy drop;",
		}},
		{"a chain without hook", inChain("mangle-output", func(c *rules.Chain) {
			c.Base, c.Rules = nil, c.Rules[:7]
		}), []string{
			"changed in chain inet sluice mangle-output: want type route hook output priority -160; policy accept;, found no hook",
			"missing in chain inet sluice mangle-output: meta l4proto tcp ct mark 0x539 meta mark set ct mark",
		}},
		{
			"a missing chain", func(rs *rules.Ruleset) {
				rs.Tables[0].Chains = rs.Tables[0].Chains[:len(rs.Tables[0].Chains)-1]
			},
			[]string{"missing in the ruleset: chain inet sluice nat-output-groups"},
		},
		{
			"an extra chain", func(rs *rules.Ruleset) {
				rs.Tables[0].Chains = append(rs.Tables[0].Chains, chain("foreign"))
			},
			[]string{"extra in the ruleset: chain inet sluice foreign"},
		},
		{
			"a table of another family", func(rs *rules.Ruleset) {
				rs.Tables[0].Family = rules.IPv4
			},
			[]string{
				"missing in the ruleset: table inet sluice",
				"extra in the ruleset: table ip sluice",
			},
		},
		{"a policy route of another priority", func(rs *rules.Ruleset) {
			rs.Routing.Policies[0].Priority = 32765
		}, []string{
			"missing in routing: ip -4 rule priority 133 fwmark 0x539 lookup 133; local default dev lo table 133",
			"extra in routing: ip -4 rule priority 32765 fwmark 0x539 lookup 133; local default dev lo table 133",
		}},
		{
			"an unused set", func(rs *rules.Ruleset) {
				rs.Tables[0].UnusedSets = []string{"spare"}
			},
			[]string{"extra in table inet sluice: set spare, which no rule uses"},
		},
		{
			"a set that only an expected rule uses is not extra",
			func(rs *rules.Ruleset) {
				rs.Tables[0].UnusedSets = []string{rs.Tables[0].Sets()[0].Set}
			}, nil,
		},
		{"an expected policy rule without its route", func(rs *rules.Ruleset) {
			rs.Routing.Unrouted, rs.Routing.Policies = rs.Routing.Policies[:1],
				rs.Routing.Policies[1:]
		}, []string{
			"missing in routing: ip -4 rule priority 133 fwmark 0x539 lookup 133; local default dev lo table 133",
		}},
		{"an unexpected policy rule without its route", func(rs *rules.Ruleset) {
			rs.Routing.Unrouted = []rules.PolicyRoute{{
				Family: rules.IPv4, Mark: 7, Table: 100, Priority: 133,
			}}
		}, []string{
			"extra in routing: ip -4 rule priority 133 fwmark 0x7 lookup 100, without its route",
		}},
		{
			"another route", func(rs *rules.Ruleset) {
				rs.Routing.Others = []string{"ip -4 route blackhole 10.0.0.0/8 table 133"}
			},
			[]string{"extra in routing: ip -4 route blackhole 10.0.0.0/8 table 133"},
		},
		{"no policy route", func(rs *rules.Ruleset) { rs.Routing.Policies = nil }, []string{
			"missing in routing: ip -4 rule priority 133 fwmark 0x539 lookup 133; local default dev lo table 133",
			"missing in routing: ip -6 rule priority 133 fwmark 0x539 lookup 133; local default dev lo table 133",
		}},
		{
			"another address of lo", func(rs *rules.Ruleset) {
				rs.Routing.LoopbackAddrs[0] = netip.MustParseAddr("::7")
			},
			[]string{
				"missing in routing: address ::6 dev lo", "extra in routing: address ::7 dev lo",
			},
		},
	} {
		got := rules.MustCompile(comparedRedirect())
		tc.change(&got)
		checkDifferences(t, tc.name, rules.Compare(rules.MustCompile(comparedRedirect()), got),
			tc.want)
	}
}

func checkDifferences(t *testing.T, name string, got []rules.Difference, want []string) {
	t.Helper()
	var texts []string
	for _, d := range got {
		texts = append(texts, d.String())
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestCompareNamesChangedElementsOfSets(t *testing.T) {
	compiled := func(excluded string, changes ...func(*rules.Redirect)) rules.Ruleset {
		r := typical(changes...)
		r.OutboundExcludeCIDRs = prefixSelection(excluded).Prefixes
		return rules.MustCompile(r)
	}
	const (
		set     = "chain inet sluice nat-output, set outbound-exclude-ipv4: "
		missing = "missing in " + set
		extra   = "extra in " + set
	)
	for _, tc := range []struct {
		name, want, got string
		differences     []string
	}{
		{
			"a missing element", "10.1.0.0/16,10.3.0.0/16,10.5.0.0/16", "10.1.0.0/16,10.5.0.0/16",
			[]string{missing + "10.3.0.0/16"},
		},
		{
			"an extra element", "10.1.0.0/16,10.5.0.0/16", "10.1.0.0/16,10.3.0.0/16,10.5.0.0/16",
			[]string{extra + "10.3.0.0/16"},
		},
		{
			"another element", "10.1.0.0/16,10.3.0.0/16", "10.1.0.0/16,10.4.0.1/32",
			[]string{missing + "10.3.0.0/16", extra + "10.4.0.1"},
		},
		{
			"more elements than a difference lists", "10.1.0.0/16,10.3.0.0/16",
			"11.1.0.0/16,11.3.0.0/16,11.5.0.0/16,11.7.0.0/16,11.9.0.0/16,11.11.0.0/16,11.13.0.0/16,11.15.0.0/16,11.17.0.0/16",
			[]string{
				missing + "10.1.0.0/16, 10.3.0.0/16",
				extra + "11.1.0.0/16, 11.3.0.0/16, 11.5.0.0/16, 11.7.0.0/16, 11.9.0.0/16, 11.11.0.0/16, 11.13.0.0/16, 11.15.0.0/16, and 1 more",
			},
		},
	} {
		checkDifferences(t, tc.name, rules.Compare(compiled(tc.want), compiled(tc.got)),
			tc.differences)
	}
	checkDifferences(t, "a set that becomes a single value",
		rules.Compare(compiled("10.1.0.0/16,10.3.0.0/16"), compiled("10.1.0.0/16")),
		[]string{
			"missing in chain inet sluice nat-output: ip daddr @outbound-exclude-ipv4 return",
			"extra in chain inet sluice nat-output: ip daddr 10.1.0.0/16 return",
		})
	included := func(cidrs string) rules.Ruleset {
		return rules.MustCompile(typical(func(r *rules.Redirect) {
			r.OutboundCIDRs, r.KeepEstablished = prefixSelection(cidrs), true
		}))
	}
	checkDifferences(t, "a set that two rules use is reported once",
		rules.Compare(included("10.1.0.0/16,10.3.0.0/16"), included("10.1.0.0/16,10.4.0.0/16")),
		[]string{
			"missing in chain inet sluice nat-output, set outbound-include-ipv4: 10.3.0.0/16",
			"extra in chain inet sluice nat-output, set outbound-include-ipv4: 10.4.0.0/16",
		})
}

func TestCompareIgnoresPropertiesWithoutEffect(t *testing.T) {
	for name, change := range map[string]func(*rules.Ruleset){
		"the order of tables": func(rs *rules.Ruleset) { slices.Reverse(rs.Tables) },
		"the order of chains": func(rs *rules.Ruleset) { slices.Reverse(rs.Tables[0].Chains) },
		"the order of policy routes": func(rs *rules.Ruleset) {
			slices.Reverse(rs.Routing.Policies)
		},
		"the comment and the origin of a table": func(rs *rules.Ruleset) {
			rs.Tables[0].Comment, rs.Tables[0].XTables = "other", true
		},
		"comments, roles, handles, lines, counters and the origin of rules": inChain("nat-output", func(
			c *rules.Chain,
		) {
			for i := range c.Rules {
				c.Rules[i].Comment = "other"
				c.Rules[i].Role, c.Rules[i].XTables = rules.InboundCaptured, true
				c.Rules[i].Handle, c.Rules[i].Line = rules.Handle(i+7), rules.Line(i+8)
				c.Rules[i].Hits = rules.Hits{Packets: 1, Bytes: 60}
			}
		}),
		"the names of sets": inChain("nat-output-groups", func(c *rules.Chain) {
			for i := range c.Rules {
				for j, m := range c.Rules[i].Matches {
					if m, ok := m.(rules.MatchAddr); ok && m.Set != "" {
						m.Set = "__set0"
						c.Rules[i].Matches[j] = m
					}
				}
			}
		}),
	} {
		want, got := rules.MustCompile(comparedRedirect()), rules.MustCompile(comparedRedirect())
		for _, rs := range []*rules.Ruleset{&want, &got} {
			rs.Tables = append(rs.Tables, rules.Table{Family: rules.IPv4, Name: "other"})
		}
		change(&got)
		checkDifferences(t, name, rules.Compare(want, got), nil)
		if !rules.Equal(want, got) {
			t.Errorf("%s: Equal reports false, want true", name)
		}
	}
}

// TestEqualDistinguishesAllMatchesAndActions verifies that all kinds of matches and actions differ
// from each other, even if they are printed alike.
func TestEqualDistinguishesAllMatchesAndActions(t *testing.T) {
	all := ^uint32(0)
	addrs := rules.AddrRanges(prefixSelection("10.0.0.0/8").Prefixes)
	matches := []rules.Match{
		rules.MatchInterface{Names: interfaceNames("eth0")},
		rules.MatchInterface{Out: true, Names: interfaceNames("eth0")},
		rules.MatchInterface{Not: true, Names: interfaceNames("eth0")},
		rules.MatchInterface{Names: interfaceNames("eth+")},
		rules.MatchFamily{Family: rules.IPv4},
		rules.MatchFamily{Family: rules.IPv6},
		rules.MatchAddr{Ranges: addrs},
		rules.MatchAddr{Side: rules.Destination, Ranges: addrs},
		rules.MatchAddr{Not: true, Ranges: addrs},
		rules.MatchAddr{Set: "s", Ranges: rules.AddrRanges(prefixSelection("11.0.0.0/8").Prefixes)},
		rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}},
		rules.MatchProtocol{Not: true, Protocols: []rules.Protocol{rules.TCP}},
		rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP, rules.UDP}},
		rules.MatchPort{Ports: ports("80")},
		rules.MatchPort{Side: rules.Destination, Ports: ports("80")},
		rules.MatchPort{Not: true, Ports: ports("80")},
		rules.MatchPort{Ports: ports("80-81")},
		rules.MatchTCPFlags{Mask: rules.SYN, Value: rules.SYN},
		rules.MatchTCPFlags{Mask: rules.SYN},
		rules.MatchTCPFlags{Not: true, Mask: rules.SYN},
		rules.MatchOwner{IDs: ids("1")},
		rules.MatchOwner{Group: true, IDs: ids("1")},
		rules.MatchOwner{Not: true, IDs: ids("1")},
		rules.MatchOwner{Not: true, Socketless: true, IDs: ids("1")},
		rules.MatchOwner{IDs: ids("1-2")},
		rules.MatchMark{Value: 1, Mask: all},
		rules.MatchMark{Conntrack: true, Value: 1, Mask: all},
		rules.MatchMark{Not: true, Value: 1, Mask: all},
		rules.MatchMark{Value: 1, Mask: 1},
		rules.MatchState{States: rules.States(rules.New)},
		rules.MatchState{Not: true, States: rules.States(rules.New)},
		rules.MatchState{States: rules.States(rules.New, rules.Invalid)},
		rules.MatchStatus{Status: rules.StatusSNAT},
		rules.MatchStatus{Not: true, Status: rules.StatusSNAT},
		rules.MatchStatus{Status: rules.StatusDNAT},
		rules.MatchDirection{},
		rules.MatchDirection{Reply: true},
		rules.MatchMarkRange{Values: ids("1-2")},
		rules.MatchMarkRange{Values: ids("1-3")},
		rules.MatchMarkRange{Not: true, Values: ids("1-2")},
		rules.MatchMarkRange{Conntrack: true, Values: ids("1-2")},
		rules.MatchCgroup{Path: "a", Level: 1},
		rules.MatchCgroup{Path: "a", Level: 2},
		rules.MatchCgroup{Path: "b", Level: 1},
		rules.MatchICMP{Values: ports("1")},
		rules.MatchICMP{V6: true, Values: ports("1")},
		rules.MatchICMP{Not: true, Values: ports("1")},
		rules.MatchICMP{Values: ports("2")},
		rules.MatchAddrType{Types: rules.AddrTypes(rules.Local)},
		rules.MatchAddrType{Side: rules.Destination, Types: rules.AddrTypes(rules.Local)},
		rules.MatchAddrType{Not: true, Types: rules.AddrTypes(rules.Local)},
		rules.MatchAddrType{Types: rules.AddrTypes(rules.Unicast)},
		rules.MatchReversePath{},
		rules.MatchReversePath{Not: true},
		rules.MatchReversePath{Kind: "loose"},
		rules.MatchSocket{},
		rules.MatchSocket{Not: true},
		rules.MatchSocket{Kind: rules.NFTSocket},
		rules.MatchListed{List: "@a"},
		rules.MatchListed{Not: true, List: "@a"},
		rules.MatchListed{List: "@b"},
		rules.MatchListed{List: "@a", Parts: "src"},
		rules.MatchTuple{},
		rules.MatchTuple{Not: true},
		rules.MatchTuple{Alternatives: [][]rules.Match{{rules.MatchDirection{}}}},
		rules.MatchTuple{Alternatives: [][]rules.Match{{rules.MatchDirection{Reply: true}}}},
		unknown,
		rules.Unknown{Text: "other"},
	}
	actions := []rules.Action{
		rules.Accept, rules.Drop, rules.Return,
		rules.Jump{Chain: "a"},
		rules.Jump{Chain: "b"},
		rules.Jump{Chain: "a", Goto: true},
		redirect(1), redirect(2),
		rules.RedirectTo{Port: 1, Last: 2},
		dnat(1),
		rules.DNATPort{Port: 1, Last: 2},
		rules.DNATTo{Addr: netip.MustParseAddr("10.0.0.1"), Port: 1},
		rules.DNATTo{Addr: netip.MustParseAddr("10.0.0.2"), Port: 1},
		rules.SNATTo{Addr: netip.MustParseAddr("10.0.0.1")},
		rules.SNATTo{Addr: netip.MustParseAddr("10.0.0.2")},
		rules.Reject{},
		rules.Reject{With: "with tcp reset"},
		rules.TProxy{Port: 1},
		rules.TProxy{Port: 1, Addr: netip.MustParseAddr("10.0.0.1")},
		rules.TProxyDrop{Port: 1, Value: 1, Mask: all},
		rules.TProxyDrop{Port: 1, Value: 1, Mask: 1},
		mark(1), bits(1, 1),
		rules.SaveMark{},
		rules.RestoreMark{},
		rules.MixMark{Mark: 1},
		rules.MixMark{Conntrack: true, Mark: 1},
		rules.MixMark{ConntrackMark: 1},
		rules.MixMark{Mark: 1, Xor: 1},
		rules.SetZone{Zone: 1},
		rules.SetZone{Zone: 2},
		rules.SetZone{Zone: 1, Helper: "ftp"},
		rules.Notrack{},
		rules.Require{Match: rules.MatchDirection{}},
		rules.Require{Match: rules.MatchDirection{Reply: true}},
		rules.Count{},
		unknown,
	}
	var list []rules.Rule
	for _, m := range matches {
		list = append(list, rules.Rule{Matches: []rules.Match{m}})
	}
	for _, a := range actions {
		list = append(list, do(a))
	}
	for i := range list {
		for j := range list {
			if got := rules.Equal(inOneChain(list[i]), inOneChain(list[j])); got != (i == j) {
				t.Errorf("Equal reports %t for %+v and %+v, want %t", got, list[i], list[j], i == j)
			}
		}
	}
}

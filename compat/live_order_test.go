package compat

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// listed makes the kernel's list of output from lines as "ip: FUNCTION, FUNCTION": a function is a
// chain as "inet a p", a table of iptables-legacy as "legacy raw", "NAT", or something else.
func listed(lines ...string) []nft.HookList {
	var lists []nft.HookList
	for _, line := range lines {
		family, functions, _ := strings.Cut(line, ": ")
		l := nft.HookList{Family: familyNamed[family], Hook: rules.Output}
		for text := range strings.SplitSeq(functions, ", ") {
			f := nft.HookFunction{Name: text}
			switch words := strings.Fields(text); {
			case text == "NAT":
				f.Kind = nft.HookNAT
			case words[0] == "legacy":
				f = nft.HookFunction{Kind: nft.HookLegacy, Family: l.Family, Table: words[1]}
			case len(words) == 3:
				f = nft.HookFunction{
					Kind: nft.HookChain, Family: familyNamed[words[0]], Table: words[1],
					Chain: words[2],
				}
			}
			l.Functions = append(l.Functions, f)
		}
		lists = append(lists, l)
	}
	return lists
}

var familyNamed = map[string]rules.Family{"inet": rules.Inet, "ip": rules.IPv4, "ip6": rules.IPv6}

// A base chain at output in a table as "inet a" or, of iptables-legacy, "legacy ip raw".
type outputChain struct {
	table, name string
	kind        rules.ChainType
	priority    int
	empty, drop bool
}

// output makes the tables of chains, those of nftables first, in the order of their first chains.
func output(chains []outputChain) (rs rules.Ruleset, firstLegacy int) {
	for _, legacy := range []bool{false, true} {
		at := map[string]int{}
		for _, c := range chains {
			family, name, _ := strings.Cut(strings.TrimPrefix(c.table, "legacy "), " ")
			if strings.HasPrefix(c.table, "legacy ") != legacy {
				continue
			}
			if _, ok := at[c.table]; !ok {
				at[c.table] = len(rs.Tables)
				rs.Tables = append(rs.Tables, rules.Table{Family: familyNamed[family], Name: name})
			}
			made := rules.Chain{
				Name: c.name,
				Base: &rules.Base{
					Type: c.kind, Hook: rules.Output, Priority: c.priority, Drop: c.drop,
				},
			}
			if !c.empty {
				made.Rules = []rules.Rule{{}}
			}
			t := &rs.Tables[at[c.table]]
			t.Chains = append(t.Chains, made)
		}
		if !legacy {
			firstLegacy = len(rs.Tables)
		}
	}
	return rs, firstLegacy
}

func TestTheOrderOfChainsIsThatOfTheKernel(t *testing.T) {
	const filter, nat = rules.Filter, rules.NAT
	type chains = []outputChain
	for _, tc := range []struct {
		says   string
		hooks  []nft.HookList // nil where the kernel does not list them
		chains chains
		want   string // the chains in order
		open   string // those of which the order is not known
	}{
		{
			"different priorities are enough", nil,
			chains{
				{"inet a", "p", filter, -300, false, false},
				{"legacy ip raw", "OUTPUT", filter, -299, false, false},
			},
			"a/p raw/OUTPUT", "",
		},
		{
			"without a list chains of two tables at one priority are open", nil,
			chains{
				{"inet a", "p", filter, -300, false, false},
				{"inet b", "p", filter, -300, false, false},
				{"inet b", "q", filter, 0, false, false},
			},
			"a/p b/p b/q", "a/p b/p",
		},
		{
			"but not if one of them has no rules", nil,
			chains{
				{"inet a", "p", filter, -300, true, false},
				{"inet b", "p", filter, -300, false, false},
			},
			"a/p b/p", "",
		},
		{
			"unless its policy drops", nil,
			chains{
				{"inet a", "p", filter, -300, true, true},
				{"inet b", "p", filter, -300, false, false},
			},
			"a/p b/p", "a/p b/p",
		},
		{
			"nor if no packet passes both", nil,
			chains{
				{"ip a", "p", filter, -300, false, false},
				{"legacy ip6 raw", "OUTPUT", filter, -300, false, false},
			},
			"a/p raw/OUTPUT", "",
		},
		{
			"of one table the chain made last runs first", nil,
			chains{
				{"inet a", "p", filter, 0, false, false},
				{"inet a", "q", rules.Route, 0, false, false},
				{"inet a", "r", filter, 0, false, false},
			},
			"a/r a/q a/p", "",
		},
		{
			"the list has the order",
			listed("ip: inet a p, ip raw OUTPUT, legacy raw, inet b p", "ip6: inet a p, inet b p"),
			chains{
				{"inet b", "p", filter, -300, false, false},
				{"ip raw", "OUTPUT", filter, -300, false, false},
				{"inet a", "p", filter, -300, false, false},
				{"legacy ip raw", "OUTPUT", filter, -300, false, false},
			},
			"a/p raw/OUTPUT raw/OUTPUT b/p", "",
		},
		{
			"the lists of two families make one order",
			listed("ip: inet b p, ip c p", "ip6: ip6 a p, inet b p"),
			chains{
				{"ip c", "p", filter, -300, false, false},
				{"inet b", "p", filter, -300, false, false},
				{"ip6 a", "p", filter, -300, false, false},
			},
			"a/p b/p c/p", "",
		},
		{
			"chains of NAT have the order of their priorities", nil,
			chains{
				{"inet a", "n", nat, -100, false, false},
				{"inet b", "n", nat, -110, false, false},
				{"legacy ip nat", "OUTPUT", nat, -99, false, false},
			},
			"b/n a/n nat/OUTPUT", "",
		},
		{
			"at equal priority NAT is open, since the kernel does not list it", listed("ip: NAT"),
			chains{
				{"inet a", "n", nat, -100, false, false},
				{"legacy ip nat", "OUTPUT", nat, -100, false, false},
			},
			"a/n nat/OUTPUT", "a/n nat/OUTPUT",
		},
		{
			"but a later kernel does", listed("ip: legacy nat, inet a n"),
			chains{
				{"inet a", "n", nat, -100, false, false},
				{"legacy ip nat", "OUTPUT", nat, -100, false, false},
			},
			"nat/OUTPUT a/n", "",
		},
		{
			"two chains of NAT in one table are not open", listed("ip: NAT"),
			chains{
				{"inet a", "n", nat, -100, false, false}, {"inet a", "m", nat, -100, false, false},
			},
			"a/m a/n", "",
		},
		{
			"a filter at the place of NAT runs where the list has it",
			listed("ip: inet a f, NAT, inet b f", "ip6: inet a f, NAT, inet b f"),
			chains{
				{"inet b", "f", filter, -100, false, false},
				{"inet a", "n", nat, 50, false, false},
				{"inet a", "f", filter, -100, false, false},
			},
			"a/f a/n b/f", "",
		},
		{
			"without a list that is open", nil,
			chains{
				{"inet a", "n", nat, 50, false, false}, {"inet a", "f", filter, -100, false, false},
			},
			"a/f a/n", "a/f a/n",
		},
	} {
		t.Run(tc.says, func(t *testing.T) {
			rs, firstLegacy := output(tc.chains)
			var open []string
			for _, a := range orderLive(&rs, firstLegacy, newHookOrder(tc.hooks)) {
				open = append(open, names(a.Chains))
			}
			if diff := cmp.Diff([]string{
				tc.want, tc.open,
			}, []string{names(rs.BaseChains(rules.Output)), strings.Join(open, "; ")}); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func names(chains []rules.ChainRef) string {
	var list []string
	for _, c := range chains {
		list = append(list, c.Table.Name+"/"+c.Chain.Name)
	}
	return strings.Join(list, " ")
}

// The kernel allows 1024 chains of a hook in each family, and a table any number of other chains.
func TestOrderOfManyChains(t *testing.T) {
	const n = 1024
	var chains []outputChain
	var names []string
	for i := range n {
		name := fmt.Sprint("p", i)
		for _, table := range []string{"ip a", "ip6 b"} {
			chains = append(chains, outputChain{table, name, rules.Filter, 0, false, false})
		}
		names = append(names, name)
	}
	rs, firstLegacy := output(chains)
	for i := range rs.Tables {
		rs.Tables[i].Chains = append(rs.Tables[i].Chains, make([]rules.Chain, 100*n)...)
	}
	if open := orderLive(&rs, firstLegacy, newHookOrder(nil)); len(open) > 0 {
		t.Errorf("the order of %d chains is unknown", len(open[0].Chains))
	}
	slices.Reverse(names) // the chain made last runs first
	for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
		var got []string
		for _, c := range rs.BaseChains(rules.Output) {
			if c.Table.Family == family {
				got = append(got, c.Chain.Name)
			}
		}
		if d := cmp.Diff(names, got); d != "" {
			t.Error(d)
		}
	}
}

func TestAmbiguousOrderNamesTheOwnersOfTheChains(t *testing.T) {
	rs, firstLegacy := output([]outputChain{
		{"ip nat", "OUTPUT", rules.NAT, -100, false, false},
		{"legacy ip nat", "OUTPUT", rules.NAT, -100, false, false},
	})
	rs.Tables[0].Comment, rs.Tables[1].Comment = "iptables-nft", "iptables-legacy"
	got := orderLive(&rs, firstLegacy, nil)
	const want = "hook output: the order of ip nat OUTPUT (iptables-nft), ip nat OUTPUT (iptables-legacy) is unknown, " +
		"because the kernel does not report it"
	if len(got) != 1 || got[0].String() != want {
		t.Errorf("%v", got)
	}
}

// TestForeignHookFunctionsAreNamed: what a program of BPF does is not known, so that it must not be
// kept back.
func TestForeignHookFunctionsAreNamed(t *testing.T) {
	s := namespaceState{hooks: listed("ip: nf_hook_run_bpf, NAT, inet a p",
		"ip6: nf_hook_run_bpf, legacy raw")}
	want := []nft.HookFunction{{Name: "nf_hook_run_bpf"}}
	if diff := cmp.Diff(want, s.join(rules.Ruleset{}, OriginAll).Others); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestFastCheckIsRepeatedAfterAChange tells which looks are of the same moment.
func TestFastCheckIsRepeatedAfterAChange(t *testing.T) {
	mangle := func(mark uint32) []rules.Table {
		rule := rules.Rule{Actions: []rules.Action{rules.SetMark{Value: mark, Mask: 0xff}}}
		return []rules.Table{{
			Family: rules.IPv4, Name: "mangle",
			Chains: []rules.Chain{{Name: "OUTPUT", Rules: []rules.Rule{rule}}},
		}}
	}
	look := namespaceState{legacy: mangle(1), hooks: listed("ip: inet a p, inet b p")}
	for says, other := range map[string]namespaceState{
		"another rule of iptables-legacy": {legacy: mangle(2), hooks: look.hooks},
		"one table less":                  {hooks: look.hooks},
		"another order": {
			legacy: mangle(1), hooks: listed("ip: inet b p, inet a p"),
		},
		"a chain less": {legacy: mangle(1), hooks: listed("ip: inet a p")},
	} {
		if look.equal(other) {
			t.Errorf("%s is not seen", says)
		}
	}
	if !look.equal(namespaceState{legacy: mangle(1), hooks: listed("ip: inet a p, inet b p")}) {
		t.Error("the same differs")
	}
	a, _ := output([]outputChain{
		{"inet a", "p", rules.Filter, 0, false, false}, {"inet a", "n", rules.NAT, 0, false, false},
	})
	for says, row := range map[string]struct {
		hooks []nft.HookList
		want  bool
	}{
		"no list at all":            {nil, true},
		"a list with the chain":     {listed("ip: inet a p, NAT", "ip6: NAT, inet a p"), true},
		"a chain made meanwhile":    {listed("ip: NAT", "ip6: NAT"), false},
		"in one of its families":    {listed("ip: inet a p, NAT", "ip6: NAT"), false},
		"another table's, by name":  {listed("ip: ip a p", "ip6: ip a p"), false},
		"iptables-legacy's of it":   {listed("ip: legacy a", "ip6: legacy a"), false},
		"a list that has all twice": {listed("ip: inet a p, inet a p", "ip6: inet a p"), true},
	} {
		if got := (namespaceState{hooks: row.hooks}).listAllChains(a); got != row.want {
			t.Errorf("%s: %t", says, got)
		}
	}
}

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

// listed returns the kernel's hook lists of output for lines such as "ip: FUNCTION, FUNCTION". A
// function is a chain such as "inet a p", an iptables-legacy table such as "legacy raw", "NAT", or
// another name.
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

// An outputChain is a base chain at output in a table such as "inet a" or, of iptables-legacy,
// "legacy ip raw".
type outputChain struct {
	table, name string
	kind        rules.ChainType
	priority    int
	empty       bool // the chain has no rules
	drop        bool // the policy is drop
}

// output returns the tables of the chains, the nftables tables first, in the order of their first
// chains.
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

func TestChainsHaveTheKernelsOrder(t *testing.T) {
	const filter, nat = rules.Filter, rules.NAT
	type chains = []outputChain
	for _, tc := range []struct {
		name      string
		hooks     []nft.HookList // nil if the kernel does not list them
		chains    chains
		want      string // the chains in order
		ambiguous string // the chains of unknown order
	}{
		{
			"different priorities determine the order", nil,
			chains{
				{"inet a", "p", filter, -300, false, false},
				{"legacy ip raw", "OUTPUT", filter, -299, false, false},
			},
			"a/p raw/OUTPUT", "",
		},
		{
			"without a list the order of two tables at one priority is unknown", nil,
			chains{
				{"inet a", "p", filter, -300, false, false},
				{"inet b", "p", filter, -300, false, false},
				{"inet b", "q", filter, 0, false, false},
			},
			"a/p b/p b/q", "a/p b/p",
		},
		{
			"the order of a chain without rules does not matter", nil,
			chains{
				{"inet a", "p", filter, -300, true, false},
				{"inet b", "p", filter, -300, false, false},
			},
			"a/p b/p", "",
		},
		{
			"the order of a chain without rules matters if its policy is drop", nil,
			chains{
				{"inet a", "p", filter, -300, true, true},
				{"inet b", "p", filter, -300, false, false},
			},
			"a/p b/p", "a/p b/p",
		},
		{
			"the order of a NAT chain without rules and a filter chain matters", nil,
			chains{
				{"inet a", "p", nat, -100, true, false},
				{"inet b", "p", filter, -100, false, false},
			},
			"b/p a/p", "b/p a/p",
		},
		{
			"the order of a NAT chain without rules and another NAT chain does not matter", nil,
			chains{
				{"inet a", "p", nat, -100, true, false},
				{"inet b", "p", nat, -100, false, false},
			},
			"a/p b/p", "",
		},
		{
			"the order of chains of different families does not matter", nil,
			chains{
				{"ip a", "p", filter, -300, false, false},
				{"legacy ip6 raw", "OUTPUT", filter, -300, false, false},
			},
			"a/p raw/OUTPUT", "",
		},
		{
			"in one table the chain created last runs first", nil,
			chains{
				{"inet a", "p", filter, 0, false, false},
				{"inet a", "q", rules.Route, 0, false, false},
				{"inet a", "r", filter, 0, false, false},
			},
			"a/r a/q a/p", "",
		},
		{
			"the list determines the order",
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
			"the lists of two families combine to one order",
			listed("ip: inet b p, ip c p", "ip6: ip6 a p, inet b p"),
			chains{
				{"ip c", "p", filter, -300, false, false},
				{"inet b", "p", filter, -300, false, false},
				{"ip6 a", "p", filter, -300, false, false},
			},
			"a/p b/p c/p", "",
		},
		{
			"NAT chains are ordered by priority", nil,
			chains{
				{"inet a", "n", nat, -100, false, false},
				{"inet b", "n", nat, -110, false, false},
				{"legacy ip nat", "OUTPUT", nat, -99, false, false},
			},
			"b/n a/n nat/OUTPUT", "",
		},
		{
			"the order of NAT chains at equal priority is unknown, because the kernel does not list them",
			listed("ip: NAT"),
			chains{
				{"inet a", "n", nat, -100, false, false},
				{"legacy ip nat", "OUTPUT", nat, -100, false, false},
			},
			"a/n nat/OUTPUT", "a/n nat/OUTPUT",
		},
		{
			"a later kernel lists NAT chains", listed("ip: legacy nat, inet a n"),
			chains{
				{"inet a", "n", nat, -100, false, false},
				{"legacy ip nat", "OUTPUT", nat, -100, false, false},
			},
			"nat/OUTPUT a/n", "",
		},
		{
			"the order of two NAT chains in one table is known", listed("ip: NAT"),
			chains{
				{"inet a", "n", nat, -100, false, false}, {"inet a", "m", nat, -100, false, false},
			},
			"a/m a/n", "",
		},
		{
			"the list determines the order of NAT and filter chains at NAT's priority",
			listed("ip: inet a f, NAT, inet b f", "ip6: inet a f, NAT, inet b f"),
			chains{
				{"inet b", "f", filter, -100, false, false},
				{"inet a", "n", nat, 50, false, false},
				{"inet a", "f", filter, -100, false, false},
			},
			"a/f a/n b/f", "",
		},
		{
			"without a list the order of NAT and filter chains at NAT's priority is unknown", nil,
			chains{
				{"inet a", "n", nat, 50, false, false}, {"inet a", "f", filter, -100, false, false},
			},
			"a/f a/n", "a/f a/n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rs, firstLegacy := output(tc.chains)
			var ambiguous []string
			for _, a := range orderLive(&rs, firstLegacy, newHookOrder(tc.hooks)) {
				ambiguous = append(ambiguous, names(a.Chains))
			}
			want := []string{tc.want, tc.ambiguous}
			got := []string{names(rs.BaseChains(rules.Output)), strings.Join(ambiguous, "; ")}
			if diff := cmp.Diff(want, got); diff != "" {
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

// The kernel allows 1024 base chains for each hook and family, and any number of other chains in a
// table.
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
	if ambiguous := orderLive(&rs, firstLegacy, newHookOrder(nil)); len(ambiguous) > 0 {
		t.Errorf("the order of %d chains is unknown, want a known order", len(ambiguous[0].Chains))
	}
	slices.Reverse(names) // the chain created last runs first
	for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
		var got []string
		for _, c := range rs.BaseChains(rules.Output) {
			if c.Table.Family == family {
				got = append(got, c.Chain.Name)
			}
		}
		if d := cmp.Diff(names, got); d != "" {
			t.Errorf("family %s, -want +got\n%s", family, d)
		}
	}
}

func TestAmbiguityNamesTheIPTablesVariants(t *testing.T) {
	rs, firstLegacy := output([]outputChain{
		{"ip nat", "OUTPUT", rules.NAT, -100, false, false},
		{"legacy ip nat", "OUTPUT", rules.NAT, -100, false, false},
	})
	rs.Tables[0].Comment, rs.Tables[1].Comment = "iptables-nft", "iptables-legacy"
	got := orderLive(&rs, firstLegacy, nil)
	const want = "hook output: the order of ip nat OUTPUT (iptables-nft), ip nat OUTPUT (iptables-legacy) is unknown, " +
		"because the kernel does not report it"
	if len(got) != 1 || got[0].String() != want {
		t.Errorf("ambiguities %v, want only %q", got, want)
	}
}

// TestForeignHookFunctionsAreReported verifies that hook functions of BPF programs are reported,
// because their effect is unknown.
func TestForeignHookFunctionsAreReported(t *testing.T) {
	s := namespaceState{hooks: listed("ip: nf_hook_run_bpf, NAT, inet a p",
		"ip6: nf_hook_run_bpf, legacy raw")}
	want := []nft.HookFunction{{Name: "nf_hook_run_bpf"}}
	if diff := cmp.Diff(want, s.toLive(rules.Ruleset{}, OriginAll).OtherFunctions); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestNamespaceStateEqual verifies that changes of the rules in iptables-legacy and of the lists of
// hook functions make two states differ.
func TestNamespaceStateEqual(t *testing.T) {
	mangle := func(mark uint32) []rules.Table {
		rule := rules.Rule{Actions: []rules.Action{rules.SetMark{Value: mark, Mask: 0xff}}}
		return []rules.Table{{
			Family: rules.IPv4, Name: "mangle",
			Chains: []rules.Chain{{Name: "OUTPUT", Rules: []rules.Rule{rule}}},
		}}
	}
	state := namespaceState{legacy: mangle(1), hooks: listed("ip: inet a p, inet b p")}
	for name, other := range map[string]namespaceState{
		"a changed rule in iptables-legacy": {legacy: mangle(2), hooks: state.hooks},
		"a missing table":                   {hooks: state.hooks},
		"another order": {
			legacy: mangle(1), hooks: listed("ip: inet b p, inet a p"),
		},
		"a missing chain": {legacy: mangle(1), hooks: listed("ip: inet a p")},
	} {
		if state.equal(other) {
			t.Errorf("%s: the states are equal, want a difference", name)
		}
	}
	if !state.equal(namespaceState{legacy: mangle(1), hooks: listed("ip: inet a p, inet b p")}) {
		t.Error("two states with the same content differ, want equal states")
	}
}

// TestListsAllChains verifies which lists of hook functions contain the chain inet a p. The lists
// need not contain NAT chains.
func TestListsAllChains(t *testing.T) {
	a, _ := output([]outputChain{
		{"inet a", "p", rules.Filter, 0, false, false}, {"inet a", "n", rules.NAT, 0, false, false},
	})
	for name, row := range map[string]struct {
		hooks []nft.HookList
		want  bool
	}{
		"a kernel without lists": {nil, true},
		"a list with the chain": {
			listed("ip: inet a p, NAT", "ip6: NAT, inet a p"), true,
		},
		"a list without the chain":                {listed("ip: NAT", "ip6: NAT"), false},
		"a list of one family without the chain":  {listed("ip: inet a p, NAT", "ip6: NAT"), false},
		"a chain of another table with this name": {listed("ip: ip a p", "ip6: ip a p"), false},
		"an iptables-legacy table with this name": {listed("ip: legacy a", "ip6: legacy a"), false},
		"a list with duplicates": {
			listed("ip: inet a p, inet a p", "ip6: inet a p"), true,
		},
	} {
		if got := (namespaceState{hooks: row.hooks}).listsAllChains(a); got != row.want {
			t.Errorf("%s: listsAllChains returns %t, want %t", name, got, row.want)
		}
	}
}

package compat

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// Legacy is a ruleset as iptables-legacy has it: see [Translate].
type Legacy struct {
	// Tables are raw, mangle and nat, IPv4's before IPv6's, those that hold rules. Of the built-in chains they have those that jump to
	// a chain of ours; the jump is all that is in them.
	Tables  []rules.Table
	Routing rules.Routing
}

// chainPrefix is how the names of our chains begin.
const chainPrefix = "SLUICE_"

// Translate says a ruleset in the words of iptables-legacy: every packet has the same fate, and each rule is one that xtables has. It
// knows what [rules.Compile] uses; anything that xtables cannot do is an error that names chain and rule. The time is linear in the
// number of prefixes.
//
// A chain goes into the table of the built-in chain from which it is called: a chain of NAT to nat, a filter to raw if it runs before
// conntrack, else to mangle. The families are split. Where a rule compares with several values it becomes several rules, of which the
// first has the comment; ports share one, as many as fit. The drop behind a tproxy, for packets that no listener takes, is part of
// xtables' TPROXY.
//
// To accept is to leave our chains, here as in nftables, where the chains of others at the hook see the packet next: so it becomes a
// return to the built-in chain and not xtables' ACCEPT, which would end the table for the rules of others behind our jump. (REDIRECT and
// TPROXY do end it; there is no other way.) Because xtables returns from one chain only, a chain that is jumped to gets what follows the
// jump as a chain of its own, which it goes on to at its end: xtables' -g.
//
// Every rule of xtables counts. [rules.Count] is kept where the ruleset has it, though it adds nothing, for what reads the counters of
// just these rules.
func Translate(rs rules.Ruleset) (Legacy, error) {
	l := Legacy{Routing: rs.Routing}
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		tables, err := translateFamily(&rs, f)
		if err != nil {
			return Legacy{}, err
		}
		l.Tables = append(l.Tables, tables...)
	}
	return l, nil
}

// A place is a built-in chain.
type place struct {
	table string
	hook  rules.Hook
	chain string
}

// places are the built-in chains that can call ours, at each hook in the order in which a packet passes them.
var places = []place{
	{"raw", rules.Prerouting, "PREROUTING"},
	{"mangle", rules.Prerouting, "PREROUTING"},
	{"nat", rules.Prerouting, "PREROUTING"},
	{"raw", rules.Output, "OUTPUT"},
	{"mangle", rules.Output, "OUTPUT"},
	{"nat", rules.Output, "OUTPUT"},
}

// conntrackPriority is where conntrack runs (NF_IP_PRI_CONNTRACK): raw is before it, the other tables behind.
const conntrackPriority = -200

// tableOf returns the table for a base chain.
func tableOf(b *rules.Base) string {
	switch {
	case b.Type == rules.NAT:
		return "nat"
	case b.Priority < conntrackPriority:
		return "raw"
	}
	return "mangle"
}

// translateFamily makes the tables of a family.
func translateFamily(rs *rules.Ruleset, f rules.Family) ([]rules.Table, error) {
	chains, err := placeChains(rs, f)
	if err != nil {
		return nil, err
	}
	var tables []rules.Table
	for _, name := range kernelTables {
		t := rules.Table{Family: f, Name: name}
		taken := map[string]bool{gateChain: true}
		var own []rules.Chain
		for _, at := range places {
			c, ok := chains[at]
			if !ok || at.table != name {
				continue
			}
			tr := translator{family: f, at: at, from: c.Table, base: c.Chain.Base, taken: taken, chains: map[continued]string{}}
			jump, err := tr.baseChain(c.Chain.Name)
			if err != nil {
				return nil, err
			}
			if jump != nil {
				t.Chains = append(t.Chains, *jump)
				own = append(own, tr.made...)
			}
		}
		if len(t.Chains) > 0 {
			t.Chains = append(t.Chains, own...)
			tables = append(tables, t)
		}
	}
	return tables, nil
}

func ofFamily(c rules.ChainRef, f rules.Family) bool {
	return c.Table.Family == rules.Inet || c.Table.Family == f
}

// placeChains finds the place of each base chain. They must run there in the order in which they run now.
func placeChains(rs *rules.Ruleset, f rules.Family) (map[place]rules.ChainRef, error) {
	placed := map[place]rules.ChainRef{}
	for _, h := range []rules.Hook{rules.Prerouting, rules.Input, rules.Forward, rules.Output, rules.Postrouting, rules.Ingress} {
		last := -1
		for _, c := range rs.BaseChains(h) {
			if !ofFamily(c, f) {
				continue
			}
			b := c.Chain.Base
			n := slices.IndexFunc(places, func(p place) bool { return p.hook == h && p.table == tableOf(b) })
			switch {
			case n < 0:
				return nil, fmt.Errorf("chain %s: iptables-legacy has no place for it: %s", c.Chain.Name, b)
			case b.Drop:
				return nil, fmt.Errorf("chain %s: the policy drop would hold for the rules of others too", c.Chain.Name)
			case n <= last:
				return nil, fmt.Errorf("chain %s: it runs behind a chain that would be in table %s too, or in a later one", c.Chain.Name, tableOf(b))
			}
			placed[places[n]] = c
			last = n
		}
	}
	return placed, nil
}

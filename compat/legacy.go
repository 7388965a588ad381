package compat

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// Legacy is a ruleset in the form of iptables-legacy; see [Translate].
type Legacy struct {
	// Tables are raw, mangle and nat of IPv4, then of IPv6, without empty ones. They contain
	// Sluice's chains, and the built-in chains with only the jumps to them.
	Tables  []rules.Table
	Routing rules.Routing
}

// ChainPrefix is the prefix of the names of Sluice's chains.
const ChainPrefix = "SLUICE_"

// Translate converts a ruleset into the form of iptables-legacy, with the same fate for every
// packet. It supports what [rules.Compile] uses. An error names the chain and the rule that xtables
// does not support. The time is linear in the number of prefixes.
//
// A chain goes into the table of the built-in chain that calls it: a NAT chain into nat, a filter
// chain into raw if it runs before conntrack, and into mangle otherwise. Families are separate. A
// match with several values becomes several rules, of which the first has the comment; one rule has
// as many ports as fit. The drop after a tproxy, for packets without a listener, is part of TPROXY.
//
// Accept becomes a return to the built-in chain: as in nf_tables, the packet then traverses the
// foreign chains at the hook. ACCEPT of xtables would end the table, and skip foreign rules after
// Sluice's jump. (REDIRECT and TPROXY end it unavoidably.) A return leaves only one chain.
// Therefore the rules after a jump become a separate chain, and the jump's target ends with a goto
// (-g) to that chain.
//
// Every rule of xtables has counters. [rules.Count] is kept, although it has no effect, in rules
// without another action and in rules for older connections ([rules.Rule.KeepsEstablished]).
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

// A place is a built-in chain at a hook.
type tablePosition struct {
	table string
	hook  rules.Hook
	chain string
}

// tablePositions are the built-in chains that can call Sluice's chains, at each hook in the order
// in which a packet traverses them.
var tablePositions = []tablePosition{
	{"raw", rules.Prerouting, "PREROUTING"},
	{"mangle", rules.Prerouting, "PREROUTING"},
	{"nat", rules.Prerouting, "PREROUTING"},
	{"raw", rules.Output, "OUTPUT"},
	{"mangle", rules.Output, "OUTPUT"},
	{"nat", rules.Output, "OUTPUT"},
}

// tableOf returns the table for a base chain.
func tableOf(b *rules.Base) string {
	switch {
	case b.Type == rules.NAT:
		return "nat"
	case b.Priority < rules.ConntrackPriority: // zones are assigned there
		return "raw"
	}
	return "mangle"
}

// translateFamily returns the tables of a family.
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
		for _, at := range tablePositions {
			c, ok := chains[at]
			if !ok || at.table != name {
				continue
			}
			tr := translator{
				family: f, at: at, from: c.Table, base: c.Chain.Base, names: taken,
				chains: map[continuation]string{},
			}
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

// placeChains returns the place of each base chain. The places must keep the order of the chains.
func placeChains(rs *rules.Ruleset, f rules.Family) (map[tablePosition]rules.ChainRef, error) {
	placed := map[tablePosition]rules.ChainRef{}
	for _, h := range []rules.Hook{
		rules.Prerouting, rules.Input, rules.Forward, rules.Output, rules.Postrouting,
		rules.Ingress,
	} {
		last := -1
		for _, c := range rs.BaseChains(h) {
			if !ofFamily(c, f) {
				continue
			}
			b := c.Chain.Base
			n := slices.IndexFunc(tablePositions, func(p tablePosition) bool {
				return p.hook == h && p.table == tableOf(b)
			})
			switch {
			case n < 0:
				return nil, fmt.Errorf("chain %s: iptables-legacy has no place for it: %s",
					c.Chain.Name, b)
			case b.Drop:
				return nil, fmt.Errorf(
					"chain %s: the policy drop would also apply to foreign rules",
					c.Chain.Name)
			case n <= last:
				return nil, fmt.Errorf("chain %s: it runs behind a chain that would be in table %s too, or in a later one", c.Chain.Name, tableOf(b))
			}
			placed[tablePositions[n]] = c
			last = n
		}
	}
	return placed, nil
}

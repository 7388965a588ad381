package compat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// Legacy is a ruleset that is translated to iptables-legacy; see [Translate].
type Legacy struct {
	// Tables contains the tables raw, mangle and nat of IPv4, then of IPv6, without empty tables. A
	// table contains Sluice's chains, and built-in chains that only jump to Sluice's chains.
	Tables  []rules.Table
	Routing rules.Routing
}

// ChainPrefix is the prefix of the names of Sluice's chains in iptables-legacy.
const ChainPrefix = "SLUICE_"

// Translate converts a ruleset to iptables-legacy tables that handle every packet identically. It
// supports the matches and actions that [rules.Compile] uses. If xtables cannot express a rule, the
// error names the chain and the rule. For a ruleset of [rules.Compile], Translate runs in time
// linear in the number of prefixes.
//
// A NAT chain is translated to table nat. Any other chain is translated to raw if it runs before
// conntrack, and to mangle otherwise. Each family has its own tables. A match with several values
// is translated to several rules. Only the first of these rules has the comment. Ports are grouped
// into multiport matches of up to 15 ports, where a range counts as two. A tproxy rule and the
// following rule, which drops packets without a listener, are translated to one TPROXY rule,
// because TPROXY drops such packets itself.
//
// Accept is translated to a return to the built-in chain: as in nf_tables, the packet then
// traverses the foreign chains at the hook. The xtables verdict ACCEPT ends the traversal of the
// table, which would skip foreign rules after Sluice's jump. REDIRECT and TPROXY always end the
// traversal. RETURN leaves only the current chain, so after a jump it would continue with the
// caller's next rule. The rules after a jump are therefore moved to a new chain, and the called
// chain ends with a goto (-g) to the new chain.
//
// Every xtables rule has counters. Therefore [rules.Count] is omitted, except in rules without
// another action and in rules for older connections ([rules.Rule.KeepsEstablished]), whose counters
// are reported.
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

// A tablePosition is a built-in chain of a table.
type tablePosition struct {
	table string
	hook  rules.Hook
	chain string
}

// tablePositions contains the built-in chains that can jump to Sluice's chains. At each hook they
// are in the order in which a packet traverses them.
var tablePositions = []tablePosition{
	{"raw", rules.Prerouting, "PREROUTING"},
	{"mangle", rules.Prerouting, "PREROUTING"},
	{"nat", rules.Prerouting, "PREROUTING"},
	{"raw", rules.Output, "OUTPUT"},
	{"mangle", rules.Output, "OUTPUT"},
	{"nat", rules.Output, "OUTPUT"},
	{"mangle", rules.Postrouting, "POSTROUTING"},
	{"nat", rules.Postrouting, "POSTROUTING"},
}

// tableOf returns the table to which a base chain is translated.
func tableOf(b *rules.Base) string {
	switch {
	case b.Type == rules.NAT:
		return "nat"
	case b.Priority < rules.ConntrackPriority: // such chains assign conntrack zones
		return "raw"
	}
	return "mangle"
}

// translateFamily returns the tables of one family.
func translateFamily(rs *rules.Ruleset, f rules.Family) ([]rules.Table, error) {
	chains, err := assignChains(rs, f)
	if err != nil {
		return nil, err
	}
	var tables []rules.Table
	for _, name := range sluiceTables {
		t := rules.Table{Family: f, Name: name}
		chainNames := map[string]bool{gateChain: true}
		var sluiceChains []rules.Chain
		for _, position := range tablePositions {
			c, ok := chains[position]
			if !ok || position.table != name {
				continue
			}
			tr := translator{
				family: f, position: position, source: c.Table, base: c.Chain.Base,
				names: chainNames, chains: map[continuation]string{},
			}
			jump, err := tr.translateBaseChain(c.Chain.Name)
			if err != nil {
				return nil, err
			}
			if jump != nil {
				t.Chains = append(t.Chains, *jump)
				sluiceChains = append(sluiceChains, tr.translated...)
			}
		}
		if len(t.Chains) > 0 {
			t.Chains = append(t.Chains, sluiceChains...)
			tables = append(tables, t)
		}
	}
	return tables, nil
}

// assignChains assigns each base chain to a table position. It returns an error if a chain has the
// policy drop or no table position, or if the positions cannot keep the order of the chains.
func assignChains(rs *rules.Ruleset, f rules.Family) (map[tablePosition]rules.ChainRef, error) {
	assigned := map[tablePosition]rules.ChainRef{}
	for _, h := range []rules.Hook{
		rules.Prerouting, rules.Input, rules.Forward, rules.Output, rules.Postrouting,
		rules.Ingress,
	} {
		last := -1
		for _, c := range rs.BaseChains(h) {
			if c.Table.Family != rules.Inet && c.Table.Family != f {
				continue
			}
			b := c.Chain.Base
			n := slices.IndexFunc(tablePositions, func(p tablePosition) bool {
				return p.hook == h && p.table == tableOf(b)
			})
			switch {
			case n < 0:
				return nil, fmt.Errorf("chain %s: iptables-legacy has no built-in chain for %s",
					c.Chain.Name, b)
			case b.Drop:
				return nil, fmt.Errorf(
					"chain %s: policy drop is not supported, because the policy of a built-in"+
						" chain also applies to foreign traffic",
					c.Chain.Name)
			case n <= last:
				return nil, fmt.Errorf("chain %s: cannot keep its order: a chain that runs before it is"+
					" also translated to table %s, or to a later table", c.Chain.Name, tableOf(b))
			}
			assigned[tablePositions[n]] = c
			last = n
		}
	}
	return assigned, nil
}

// SaveText returns the rules that the legacy backend writes to an empty namespace, in the format of
// iptables-save. A comment before the rules of each family names the program that loads them.
func SaveText(l Legacy) (string, error) {
	text := new(strings.Builder)
	for _, f := range families {
		tables := slices.DeleteFunc(slices.Clone(l.Tables), func(t rules.Table) bool {
			return t.Family != f
		})
		if len(tables) == 0 {
			continue
		}
		fmt.Fprintf(text, "# IPv%d: %stables-restore --noflush\n", f, f)
		if err := save.Print(text, tables); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}

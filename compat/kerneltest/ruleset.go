package kerneltest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// A Program is a program that loads tables. The iptables and ip6tables of a variant are one
// Program.
type Program string

// The programs.
const (
	Legacy      Program = "legacy"      // iptables-legacy-restore
	IPTablesNFT Program = "nft-variant" // iptables-nft-restore
	NFT         Program = "nft"
)

// A Ruleset is the tables of a namespace as text, in the order in which they are loaded.
type Ruleset []Table

// A Table is one table of a program.
type Table struct {
	Program Program
	Family  rules.Family // IPv4 or IPv6 for iptables
	Name    string
	Sets    []string // the declarations of sets, maps and other objects of nft
	Chains  []Chain
}

// A Chain is a chain of a table.
type Chain struct {
	Name string
	// Base is nft's declaration of a base chain, or the policy of a built-in chain of iptables. It
	// is empty for other chains.
	Base  string
	Rules []Rule
}

// A Rule is a list of terms: matches, statements and targets with their options. A rule usually
// remains valid when one of its terms is removed.
type Rule []string

// String returns the inputs of the programs, each after a comment with the program's command.
func (rs Ruleset) String() string {
	var text strings.Builder
	for _, r := range rs.runs() {
		fmt.Fprintf(&text, "# %s\n%s", strings.Join(r.command, " "), r.input)
	}
	return text.String()
}

// A programRun is one run of a program.
type programRun struct {
	command []string
	input   string
}

// runs returns the runs of programs. One run loads all consecutive tables with the same command.
func (rs Ruleset) runs() []programRun {
	var runs []programRun
	for _, t := range rs {
		command, text := t.command(), t.text()
		if last := len(runs) - 1; last >= 0 && slices.Equal(runs[last].command, command) {
			runs[last].input += text
		} else {
			runs = append(runs, programRun{command, text})
		}
	}
	return runs
}

// command returns the program that loads the table, with its arguments.
func (t *Table) command() []string {
	name := map[rules.Family]string{rules.IPv4: "iptables", rules.IPv6: "ip6tables"}[t.Family]
	switch t.Program {
	case Legacy:
		return []string{name + "-legacy-restore", "--noflush"}
	case IPTablesNFT:
		return []string{name + "-nft-restore", "--noflush"}
	}
	return []string{"nft", "-f", "-"}
}

// text returns the table in the syntax of its program.
func (t *Table) text() string {
	var text strings.Builder
	if t.Program == NFT {
		fmt.Fprintf(&text, "table %s %s {\n", t.Family, t.Name)
		for _, set := range t.Sets {
			fmt.Fprintf(&text, "\t%s\n", set)
		}
		for _, c := range t.Chains {
			fmt.Fprintf(&text, "\tchain %s {\n", c.Name)
			if c.Base != "" {
				fmt.Fprintf(&text, "\t\t%s\n", c.Base)
			}
			for _, r := range c.Rules {
				fmt.Fprintf(&text, "\t\t%s\n", strings.Join(r, " "))
			}
			text.WriteString("\t}\n")
		}
		text.WriteString("}\n")
		return text.String()
	}
	fmt.Fprintf(&text, "*%s\n", t.Name)
	for _, c := range t.Chains {
		policy := c.Base
		if policy == "" {
			policy = "-"
		}
		fmt.Fprintf(&text, ":%s %s [0:0]\n", c.Name, policy)
	}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			fmt.Fprintf(&text, "-A %s %s\n", c.Name, strings.Join(r, " "))
		}
	}
	text.WriteString("COMMIT\n")
	return text.String()
}

// uses reports whether the program loads at least one of the tables.
func (rs Ruleset) uses(p Program) bool {
	return slices.ContainsFunc(rs, func(t Table) bool { return t.Program == p })
}

// Load replaces the rules of the pod. If a program rejects its input, the error satisfies
// [IsRefused], and the pod may have some of the rules.
func (n *Network) Load(rs Ruleset) error {
	if err := n.Reset(); err != nil {
		return err
	}
	for _, t := range rs {
		if t.Program == Legacy {
			n.legacy[legacyTable{t.Family, t.Name}] = true
		}
	}
	for _, r := range rs.runs() {
		if err := run(n.Pod, r.input, r.command[0], r.command[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// A legacyTable is a table of iptables-legacy, which remains in the namespace when it is empty.
type legacyTable struct {
	family rules.Family
	name   string
}

// builtInChains contains the built-in chains of each table of iptables.
var builtInChains = map[string][]string{
	"raw":      {"PREROUTING", "OUTPUT"},
	"mangle":   {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
	"nat":      {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
	"filter":   {"INPUT", "FORWARD", "OUTPUT"},
	"security": {"INPUT", "FORWARD", "OUTPUT"},
}

// Reset deletes all conntrack entries, and all rules except those of the observer tables.
func (n *Network) Reset() error {
	tables, err := n.tables.ListTables()
	if err != nil {
		return err
	}
	deleted := false
	for _, t := range tables {
		if t.Name != observerTable {
			n.tables.DelTable(t)
			deleted = true
		}
	}
	if deleted {
		if err := n.tables.Flush(); err != nil {
			return err
		}
	}
	for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
		// Tables of iptables-legacy cannot be deleted. Replace them by tables without rules.
		input, command := "", ""
		for t := range n.legacy {
			if t.family != family {
				continue
			}
			empty := Table{Program: Legacy, Family: family, Name: t.name}
			for _, chain := range builtInChains[t.name] {
				empty.Chains = append(empty.Chains, Chain{Name: chain, Base: "ACCEPT"})
			}
			input, command = input+empty.text(), empty.command()[0]
		}
		if input != "" {
			if err := run(n.Pod, input, command); err != nil {
				return err
			}
		}
	}
	n.legacy = map[legacyTable]bool{}
	return n.Flush()
}

func (n *Network) openTables() (err error) {
	n.legacy = map[legacyTable]bool{}
	n.tables, err = nftables.New(nftables.WithNetNSFd(n.Pod.FD()), nftables.AsLasting())
	return err
}

// Read returns the model of the pod's rules without the observer tables. It omits an ambiguity
// unless it involves at least two chains of other tables.
func (n *Network) Read() (compat.Live, error) {
	live, err := compat.ReadLive(n.Pod, compat.OriginAll)
	live.Ruleset.Tables = slices.DeleteFunc(live.Ruleset.Tables, func(t rules.Table) bool {
		return t.Name == observerTable
	})
	live.Ambiguous = slices.DeleteFunc(live.Ambiguous, func(a compat.Ambiguity) bool {
		others := slices.DeleteFunc(slices.Clone(a.Chains), func(c rules.ChainRef) bool {
			return c.Table.Name == observerTable
		})
		return len(others) < 2
	})
	return live, err
}

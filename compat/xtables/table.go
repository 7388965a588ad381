package xtables

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// A Table is an iptables-legacy table that was read from the kernel. The caller may edit its chains
// and rules.
type Table struct {
	Family rules.Family
	Name   string
	// Chains are the built-in chains in the order of their hooks, then the user-defined chains.
	Chains []Chain

	layout *layout
	end    positionedEntry // the entry that ends the table
	origin *blob           // the table as it was read
}

// A Chain is a list of rules.
type Chain struct {
	Name string
	// Hook is the hook of a built-in chain, or nil for a user-defined chain.
	Hook  *rules.Hook
	Rules []Rule

	// head is the entry with the name of a user-defined chain. It is empty for a built-in chain.
	head positionedEntry
	// foot is the policy of a built-in chain, or the return at the end of a user-defined chain.
	foot positionedEntry
}

// A positionedEntry is an entry and its original position in the table.
type positionedEntry struct {
	entry entry
	// oldPosition is the position of the entry when the table was read, counted from 1, or 0 for a
	// new entry. It identifies the counter in the kernel.
	oldPosition int
}

// String returns a name like "iptables-legacy ip nat".
func (t *Table) String() string { return ID{t.Family, t.Name}.String() }

// Chain returns the chain with the name, or nil.
func (t *Table) Chain(name string) *Chain {
	i := slices.IndexFunc(t.Chains, func(c Chain) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &t.Chains[i]
}

// MaxChainName is the maximum length of a chain name in bytes (XT_EXTENSION_MAXNAMELEN without the
// terminating zero).
const MaxChainName = 28

// AddChains appends empty user-defined chains, and returns them. The returned chains are part of
// the table until chains are added or deleted. If the table has a chain with one of the names, or
// iptables does not allow a name, AddChains adds no chain and returns an error.
func (t *Table) AddChains(names ...string) ([]Chain, error) {
	isTaken := make(map[string]bool, len(t.Chains))
	for i := range t.Chains {
		isTaken[t.Chains[i].Name] = true
	}
	oldCount := len(t.Chains)
	chains := slices.Grow(t.Chains, len(names))
	for _, name := range names {
		if isTaken[name] {
			return nil, fmt.Errorf("%s: chain %s already exists", t, name)
		}
		if !isChainName(name) {
			return nil, fmt.Errorf("%s: %q is not a chain name: must have 1 to %d bytes, "+
				"no spaces or control characters, and no leading - or !, "+
				"and must not be ERROR or the name of a verdict or a built-in chain", t, name,
				MaxChainName)
		}
		isTaken[name] = true
		chains = append(chains, Chain{
			Name: name,
			head: positionedEntry{entry: t.layout.newEntry(nil, xt.Extension{
				Name: errorTarget,
				Data: append([]byte(name), make([]byte, errorNameSize-len(name))...),
			})},
			foot: positionedEntry{entry: t.layout.newEntry(nil, verdictTarget(Return))},
		})
	}
	t.Chains = chains
	return t.Chains[oldCount:], nil
}

// reservedNames are the names of verdicts and of the entry that ends a table.
var reservedNames = []string{"ACCEPT", "DROP", "QUEUE", "RETURN", errorTarget}

// isChainName reports whether iptables allows the name for a user-defined chain.
func isChainName(name string) bool {
	isSpaceOrControl := func(c rune) bool { return c <= ' ' || c == 0x7f }
	return name != "" && len(name) <= MaxChainName &&
		!strings.ContainsFunc(name, isSpaceOrControl) &&
		!strings.HasPrefix(name, "-") && !strings.HasPrefix(name, "!") &&
		!slices.Contains(reservedNames, name) && !slices.Contains(xt.BuiltInChains[:], name)
}

// DeleteChains deletes the user-defined chains whose names the function selects, and their rules.
// The caller must also delete the rules that jump to these chains, because otherwise [Replace]
// fails.
func (t *Table) DeleteChains(isSelected func(name string) bool) {
	t.Chains = slices.DeleteFunc(t.Chains, func(c Chain) bool {
		return c.Hook == nil && isSelected(c.Name)
	})
}

// Policy returns the verdict at the end of the chain: Accept or Drop for a built-in chain, Return
// for a user-defined chain.
func (c *Chain) Policy() Verdict {
	return Verdict(verdictOf(c.foot.entry, len(c.foot.entry)-standardSize))
}

// verdictOf returns the verdict of the standard target at the offset.
func verdictOf(e entry, target int) int32 { return int32(byteOrder.Uint32(e[target+extensionSize:])) }

// isStandard reports whether the target of the entry is a verdict or a jump.
func (l *layout) isStandard(e entry) bool {
	target := l.targetOf(e)
	return extensionAt(e, target).Name == "" && len(e)-target == standardSize
}

// isUnconditional reports whether the entry is a verdict or a jump without conditions.
func (l *layout) isUnconditional(e entry) bool {
	hasConditions := slices.ContainsFunc(e[:l.invert+1], func(b byte) bool { return b != 0 })
	return !hasConditions && l.targetOf(e) == l.headerSize && l.isStandard(e)
}

// chainName returns the name in an entry that begins a user-defined chain or ends the table. It
// returns false for other entries.
func (l *layout) chainName(e entry) (string, bool) {
	x := extensionAt(e, l.targetOf(e))
	return unix.ByteSliceToString(x.Data), x.Name == errorTarget && x.Revision == 0
}

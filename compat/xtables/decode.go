package xtables

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// decode decodes a table. It rejects a table that iptables cannot have written, because the encoder
// might not reproduce such a table unchanged.
func decode(l *layout, name string, b *blob) (*Table, error) {
	d := decoder{
		layout: l, blob: b, table: &Table{Family: l.family, Name: name, layout: l, origin: b},
	}
	if err := d.splitEntries(); err != nil {
		return nil, err
	}
	if err := d.addBuiltInChains(); err != nil {
		return nil, err
	}
	if err := d.addUserChains(); err != nil {
		return nil, err
	}
	return d.table, d.resolveJumps()
}

// A decoder decodes the entries of a blob in their order.
type decoder struct {
	*layout
	blob       *blob
	table      *Table
	entries    []positionedEntry
	offsets    []int           // of the entries
	done       int             // the number of decoded entries
	names      map[string]bool // of the decoded chains
	firstRules map[int]string  // the names of user-defined chains by the offset of their first rule
}

// splitEntries splits the blob into entries, records their offsets, and sets the end of the table.
func (d *decoder) splitEntries() error {
	for at := 0; at < len(d.blob.entries); {
		e, err := d.checkEntry(d.blob.entries[at:])
		if err != nil {
			return fmt.Errorf("entry %d at %d: %w", len(d.entries), at, err)
		}
		d.entries = append(d.entries, positionedEntry{e, len(d.entries) + 1})
		d.offsets = append(d.offsets, at)
		at += len(e)
	}
	if len(d.entries) != int(d.blob.count) || len(d.entries) == 0 {
		return fmt.Errorf("the table contains %d entries, but its header specifies %d",
			len(d.entries), d.blob.count)
	}
	last := len(d.entries) - 1
	if name, ok := d.chainName(d.entries[last].entry); !ok || name != errorTarget {
		return errors.New("the last entry is not the ERROR entry that ends a table")
	}
	d.table.end = d.entries[last]
	d.entries = d.entries[:last]
	d.names, d.firstRules = map[string]bool{}, map[int]string{}
	return nil
}

// addChain decodes a chain up to its last entry, which has the index foot.
func (d *decoder) addChain(c Chain, foot int) error {
	for _, e := range d.entries[d.done:foot] {
		if _, ok := d.chainName(e.entry); ok {
			return fmt.Errorf("chain %s contains the beginning of another chain", c.Name)
		}
		c.Rules = append(c.Rules, Rule{positionedEntry: e, layout: d.layout})
	}
	if d.names[c.Name] {
		return fmt.Errorf("there are two chains %s", c.Name)
	}
	d.names[c.Name] = true
	c.foot = d.entries[foot]
	if !d.isUnconditional(c.foot.entry) {
		return fmt.Errorf("chain %s: its last entry is not a verdict for all packets", c.Name)
	}
	policies := []Verdict{Accept, Drop}
	if c.Hook == nil {
		policies = []Verdict{Return}
		// Only a user-defined chain can be the destination of a jump.
		d.firstRules[d.offsets[d.done]] = c.Name
	}
	if !slices.Contains(policies, c.Policy()) {
		return fmt.Errorf("chain %s ends with verdict %d, want one of %d", c.Name, c.Policy(), policies)
	}
	d.done = foot + 1
	d.table.Chains = append(d.table.Chains, c)
	return nil
}

// addBuiltInChains decodes the built-in chains in the order of their entries.
func (d *decoder) addBuiltInChains() error {
	var present []rules.Hook
	for h := range hookCount {
		if d.blob.validHooks&(1<<h) != 0 {
			present = append(present, rules.Hook(h))
		}
	}
	if d.blob.validHooks>>hookCount != 0 {
		return fmt.Errorf("unknown hooks 0x%x: want bits 0 to %d", d.blob.validHooks, hookCount-1)
	}
	slices.SortFunc(present, func(a, b rules.Hook) int {
		return cmp.Compare(d.blob.hookEntry[a], d.blob.hookEntry[b])
	})
	for _, h := range present {
		foot := slices.Index(d.offsets[:len(d.entries)], int(d.blob.underflow[h]))
		if d.done >= len(d.entries) || d.offsets[d.done] != int(d.blob.hookEntry[h]) ||
			foot < d.done {
			return fmt.Errorf("chain %s has invalid offsets %d to %d", xt.BuiltInChains[h],
				d.blob.hookEntry[h], d.blob.underflow[h])
		}
		c := Chain{Name: xt.BuiltInChains[h], Hook: new(h)}
		if err := d.addChain(c, foot); err != nil {
			return err
		}
	}
	return nil
}

// addUserChains decodes the user-defined chains.
func (d *decoder) addUserChains() error {
	for d.done < len(d.entries) {
		head := d.entries[d.done]
		name, ok := d.chainName(head.entry)
		if !ok || name == "" {
			return fmt.Errorf("the entry at offset %d does not belong to a chain",
				d.offsets[d.done])
		}
		d.done++
		foot := d.done
		for foot < len(d.entries) {
			if _, begins := d.chainName(d.entries[foot].entry); begins {
				break
			}
			foot++
		}
		if foot--; foot < d.done {
			return fmt.Errorf("chain %s has no end", name)
		}
		if err := d.addChain(Chain{Name: name, head: head}, foot); err != nil {
			return err
		}
	}
	return nil
}

// resolveJumps sets the name of the chain that each jump leads to, and marks the rules without a
// target, whose verdict is the offset of the next entry.
func (d *decoder) resolveJumps() error {
	for i := range d.table.Chains {
		c := &d.table.Chains[i]
		for j := range c.Rules {
			r := &c.Rules[j]
			if !d.isStandard(r.entry) {
				continue
			}
			verdict := int(verdictOf(r.entry, d.targetOf(r.entry)))
			end := d.offsets[r.oldPosition-1] + len(r.entry)
			switch {
			case verdict < 0:
			case verdict == end:
				r.fallsThrough = true
			default:
				name, ok := d.firstRules[verdict]
				if !ok {
					return fmt.Errorf("chain %s: rule %d jumps to offset %d, where no chain begins",
						c.Name, j+1, verdict)
				}
				r.jump = name
			}
		}
	}
	return nil
}

package xtables

import (
	"errors"
	"fmt"
	"slices"
)

// decode decodes a table. It refuses a table that iptables cannot have written, because it might
// not be written back unchanged.
func decode(l *layout, name string, b *blob) (*Table, error) {
	d := decoder{
		layout: l, blob: b, table: &Table{Family: l.family, Name: name, layout: l, origin: b},
	}
	if err := d.split(); err != nil {
		return nil, err
	}
	if err := d.builtIn(); err != nil {
		return nil, err
	}
	if err := d.users(); err != nil {
		return nil, err
	}
	return d.table, d.resolve()
}

// decoder decodes a blob from its beginning to its end.
type decoder struct {
	*layout
	blob     *blob
	table    *Table
	elements []element
	offsets  []int // of the elements
	done     int   // how many elements have been read
	names    map[string]bool
	starts   map[int]string // chains of users by the offset of their first entry
}

// split finds the entries.
func (d *decoder) split() error {
	for at := 0; at < len(d.blob.entries); {
		e, err := d.checkEntry(d.blob.entries[at:])
		if err != nil {
			return fmt.Errorf("entry %d at %d: %w", len(d.elements), at, err)
		}
		d.elements = append(d.elements, element{e, len(d.elements) + 1})
		d.offsets = append(d.offsets, at)
		at += len(e)
	}
	if len(d.elements) != int(d.blob.count) || len(d.elements) == 0 {
		return fmt.Errorf("it has %d entries, not %d", len(d.elements), d.blob.count)
	}
	last := len(d.elements) - 1
	if name, ok := d.chainName(d.elements[last].entry); !ok || name != errorTarget {
		return errors.New("the last entry is not the one that ends a table")
	}
	d.table.end = d.elements[last]
	d.elements = d.elements[:last]
	d.names, d.starts = map[string]bool{}, map[int]string{}
	return nil
}

// take decodes a chain up to the element at the index, which is its end.
func (d *decoder) take(c Chain, foot int) error {
	for _, e := range d.elements[d.done:foot] {
		if _, ok := d.chainName(e.entry); ok {
			return fmt.Errorf("chain %s: another one begins in it", c.Name)
		}
		c.Rules = append(c.Rules, Rule{element: e, layout: d.layout})
	}
	if d.names[c.Name] {
		return fmt.Errorf("there are two chains %s", c.Name)
	}
	d.names[c.Name] = true
	c.foot = d.elements[foot]
	if !d.isPolicy(c.foot.entry) {
		return fmt.Errorf("chain %s: its last entry is not a verdict for all packets", c.Name)
	}
	policies := []Verdict{Accept, Drop}
	if c.Hook == nil {
		policies = []Verdict{Return}
		// Only user-defined chains are jumped to.
		d.starts[d.offsets[d.done]] = c.Name
	}
	if !slices.Contains(policies, c.Policy()) {
		return fmt.Errorf("chain %s: it ends with verdict %d", c.Name, c.Policy())
	}
	d.done = foot + 1
	d.table.Chains = append(d.table.Chains, c)
	return nil
}

// builtIn decodes the chains of the hooks, in the order of the table.
func (d *decoder) builtIn() error {
	var present []int
	for h := range hooks {
		if d.blob.validHooks&(1<<h) != 0 {
			present = append(present, h)
		}
	}
	if d.blob.validHooks>>len(hooks) != 0 {
		return fmt.Errorf("unknown hooks 0x%x", d.blob.validHooks)
	}
	slices.SortFunc(present, func(a, b int) int {
		return int(d.blob.hookEntry[a]) - int(d.blob.hookEntry[b])
	})
	for _, h := range present {
		foot := slices.Index(d.offsets[:len(d.elements)], int(d.blob.underflow[h]))
		if d.done >= len(d.elements) || d.offsets[d.done] != int(d.blob.hookEntry[h]) ||
			foot < d.done {
			return fmt.Errorf("chain %s from %d to %d is not where it should be", chainNames[h],
				d.blob.hookEntry[h], d.blob.underflow[h])
		}
		if err := d.take(Chain{Name: chainNames[h], Hook: new(hooks[h])}, foot); err != nil {
			return err
		}
	}
	return nil
}

// users decodes the user-defined chains.
func (d *decoder) users() error {
	for d.done < len(d.elements) {
		head := d.elements[d.done]
		name, ok := d.chainName(head.entry)
		if !ok || name == "" {
			return fmt.Errorf("the entry at %d belongs to no chain", d.offsets[d.done])
		}
		d.done++
		foot := d.done
		for foot < len(d.elements) {
			if _, begins := d.chainName(d.elements[foot].entry); begins {
				break
			}
			foot++
		}
		if foot--; foot < d.done {
			return fmt.Errorf("chain %s: it has no end", name)
		}
		if err := d.take(Chain{Name: name, head: head}, foot); err != nil {
			return err
		}
	}
	return nil
}

// resolve replaces the offsets in jumps by names.
func (d *decoder) resolve() error {
	for i := range d.table.Chains {
		c := &d.table.Chains[i]
		for j := range c.Rules {
			r := &c.Rules[j]
			if !d.isStandard(r.entry) {
				continue
			}
			verdict := int(verdictOf(r.entry, d.targetOf(r.entry)))
			end := d.offsets[r.old-1] + len(r.entry)
			switch {
			case verdict < 0:
			case verdict == end:
				r.through = true
			default:
				name, ok := d.starts[verdict]
				if !ok {
					return fmt.Errorf("chain %s: rule %d jumps to %d, where no chain begins",
						c.Name, j+1, verdict)
				}
				r.jump = name
			}
		}
	}
	return nil
}

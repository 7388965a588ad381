package xtables

import (
	"bytes"
	"fmt"
	"slices"
)

// encode returns the table in the kernel's format, and the field old of the element of each entry.
func (t *Table) encode() (*blob, []int, error) {
	e := encoder{layout: t.layout, blob: &blob{}, starts: map[string]int{}}
	e.place(t)
	for i := range t.Chains {
		c := &t.Chains[i]
		if c.Hook == nil {
			e.write(c.head)
		} else {
			h := slices.Index(hooks[:], *c.Hook)
			e.blob.validHooks |= 1 << h
			e.blob.hookEntry[h] = uint32(len(e.blob.entries))
		}
		for j := range c.Rules {
			if err := e.writeRule(&c.Rules[j]); err != nil {
				return nil, nil, fmt.Errorf("%s: chain %s: rule %d: %w", t, c.Name, j+1, err)
			}
		}
		if c.Hook != nil {
			e.blob.underflow[slices.Index(hooks[:], *c.Hook)] = uint32(len(e.blob.entries))
		}
		e.write(c.foot)
	}
	e.write(t.end)
	return e.blob, e.old, nil
}

// encoder writes a blob.
type encoder struct {
	*layout
	blob   *blob
	old    []int
	starts map[string]int // offsets of the first rules of user-defined chains
}

// place computes the offsets of the chains.
func (e *encoder) place(t *Table) {
	at := 0
	for i := range t.Chains {
		c := &t.Chains[i]
		at += len(c.head.entry)
		if c.Hook == nil {
			e.starts[c.Name] = at
		}
		for j := range c.Rules {
			at += len(c.Rules[j].entry)
		}
		at += len(c.foot.entry)
	}
}

func (e *encoder) write(el element) {
	e.blob.entries = append(e.blob.entries, el.entry...)
	e.blob.count++
	e.old = append(e.old, el.old)
}

// writeRule writes a rule, including the offset of its jump.
func (e *encoder) writeRule(r *Rule) error {
	start := len(e.blob.entries)
	e.write(r.element)
	var to int
	switch {
	case r.through:
		to = len(e.blob.entries)
	case r.jump != "":
		var ok bool
		if to, ok = e.starts[r.jump]; !ok {
			return fmt.Errorf("jump to chain %s, which does not exist", r.jump)
		}
	default:
		return nil
	}
	native.PutUint32(e.blob.entries[start+e.targetOf(r.entry)+extensionSize:], uint32(to))
	return nil
}

// same reports whether two tables are equal except for the fields that the kernel changes. On
// kernels before 4.11 it may report false for equal tables, because these kernels return internal
// state in the structures of some matches.
func (l *layout) same(a, b *blob) bool {
	return a.offsets == b.offsets && bytes.Equal(l.cleared(a.entries), l.cleared(b.entries))
}

// cleared returns a copy of the entries in which the fields are 0 that the kernel changes:
// counters, and comefrom, which records the hooks that reach an entry.
func (l *layout) cleared(entries []byte) []byte {
	entries = slices.Clone(entries)
	for rest := entries; len(rest) >= l.size; {
		clear(rest[l.comefrom : l.comefrom+4])
		clear(rest[l.counters : l.counters+countersSize])
		rest = rest[min(max(l.nextOf(rest), l.size), len(rest)):]
	}
	return entries
}

package xtables

import (
	"bytes"
	"fmt"
	"slices"
)

// encode returns the table in the kernel's format, and [positionedEntry.oldPosition] of each entry.
func (t *Table) encode() (b *blob, oldPositions []int, err error) {
	e := encoder{layout: t.layout, blob: &blob{}, firstRules: map[string]int{}}
	e.computeFirstRules(t)
	for i := range t.Chains {
		c := &t.Chains[i]
		if c.Hook == nil {
			e.write(c.head)
		} else {
			h := *c.Hook
			e.blob.validHooks |= 1 << h
			e.blob.hookEntry[h] = uint32(len(e.blob.entries))
		}
		for j := range c.Rules {
			if err := e.writeRule(&c.Rules[j]); err != nil {
				return nil, nil, fmt.Errorf("%s: chain %s: rule %d: %w", t, c.Name, j+1, err)
			}
		}
		if c.Hook != nil {
			e.blob.underflow[*c.Hook] = uint32(len(e.blob.entries))
		}
		e.write(c.foot)
	}
	e.write(t.end)
	return e.blob, e.oldPositions, nil
}

// encoder writes a blob.
type encoder struct {
	*layout
	blob         *blob
	oldPositions []int
	firstRules   map[string]int // the offsets of the first rules of user-defined chains, by name
}

// computeFirstRules sets firstRules.
func (e *encoder) computeFirstRules(t *Table) {
	at := 0
	for i := range t.Chains {
		c := &t.Chains[i]
		at += len(c.head.entry)
		if c.Hook == nil {
			e.firstRules[c.Name] = at
		}
		for j := range c.Rules {
			at += len(c.Rules[j].entry)
		}
		at += len(c.foot.entry)
	}
}

// write appends an entry to the blob.
func (e *encoder) write(p positionedEntry) {
	e.blob.entries = append(e.blob.entries, p.entry...)
	e.blob.count++
	e.oldPositions = append(e.oldPositions, p.oldPosition)
}

// writeRule writes a rule, including the offset of its jump.
func (e *encoder) writeRule(r *Rule) error {
	start := len(e.blob.entries)
	e.write(r.positionedEntry)
	var next int // the offset of the next entry for the packet
	switch {
	case r.fallsThrough:
		next = len(e.blob.entries)
	case r.jump != "":
		var ok bool
		if next, ok = e.firstRules[r.jump]; !ok {
			return fmt.Errorf("jump to chain %s, which does not exist", r.jump)
		}
	default:
		return nil
	}
	byteOrder.PutUint32(e.blob.entries[start+e.targetOf(r.entry)+extensionSize:], uint32(next))
	return nil
}

// equal reports whether two tables are equal except for the fields that the kernel changes. On
// kernels before 4.11 it may report false for equal tables, because these kernels return internal
// state in the structures of some matches.
func (l *layout) equal(a, b *blob) bool {
	return a.offsets == b.offsets &&
		bytes.Equal(l.withoutKernelFields(a.entries), l.withoutKernelFields(b.entries))
}

// withoutKernelFields returns a copy of the entries without the fields that the kernel changes.
func (l *layout) withoutKernelFields(entries []byte) []byte {
	entries = slices.Clone(entries)
	l.clearKernelFields(entries)
	return entries
}

// clearKernelFields sets to 0 the fields that the kernel changes: the counters, and comefrom, which
// records the hooks from which an entry can be reached.
func (l *layout) clearKernelFields(entries []byte) {
	for len(entries) >= l.headerSize {
		clear(entries[l.comefrom : l.comefrom+4])
		clear(entries[l.counters : l.counters+countersSize])
		entries = entries[min(max(l.sizeOf(entries), l.headerSize), len(entries)):]
	}
}

package xtables

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// extension encodes a match or target.
func extension(name string, data []byte) []byte {
	size := (extensionSize + len(data) + alignment - 1) / alignment * alignment
	b := make([]byte, size)
	byteOrder.PutUint16(b, uint16(size))
	copy(b[extensionNameOffset:], name)
	copy(b[extensionSize:], data)
	return b
}

// verdict encodes the standard target with a verdict or the offset of a jump.
func verdict(v int) []byte { return extension("", byteOrder.AppendUint32(nil, uint32(int32(v)))) }

// begin encodes the target of the entry that begins a chain.
func begin(chain string) []byte {
	return extension(errorTarget, append([]byte(chain), make([]byte, 30-len(chain))...))
}

// entryOf encodes an entry.
func (l *layout) entryOf(target []byte, matches ...[]byte) []byte {
	m := slices.Concat(matches...)
	b := slices.Concat(make([]byte, l.headerSize), m, target)
	byteOrder.PutUint16(b[l.targetOffset:], uint16(l.headerSize+len(m)))
	byteOrder.PutUint16(b[l.nextOffset:], uint16(len(b)))
	return b
}

// smallTable returns a table with PREROUTING, OUTPUT and two user-defined chains, one of them
// empty.
func smallTable(l *layout) *blob {
	b := &blob{offsets: offsets{validHooks: 1 | 1<<3}}
	add := func(target []byte, matches ...[]byte) uint32 {
		at := len(b.entries)
		b.entries = append(b.entries, l.entryOf(target, matches...)...)
		b.count++
		return uint32(at)
	}
	b.hookEntry[0] = add(verdict(0), extension("mark", make([]byte, 12)))
	b.underflow[0] = add(verdict(int(Accept)))
	b.hookEntry[3] = add(verdict(int(Drop)))
	b.underflow[3] = b.hookEntry[3]
	add(begin("EMPTY"))
	add(verdict(int(Return)))
	add(begin("FULL"))
	start := add(extension("LOG", make([]byte, 32)))
	fallsThrough := add(verdict(0), extension("comment", make([]byte, 256)))
	add(verdict(int(Return)))
	add(begin(errorTarget))
	l.setVerdict(b, 0, int(start))
	l.setVerdict(b, int(fallsThrough), int(fallsThrough)+l.sizeOf(b.entries[fallsThrough:]))
	return b
}

// setVerdict sets the verdict or the offset of a jump in the entry at an offset.
func (l *layout) setVerdict(b *blob, at, v int) {
	byteOrder.PutUint32(b.entries[at+l.targetOf(b.entries[at:])+extensionSize:], uint32(int32(v)))
}

func TestDecode(t *testing.T) {
	for i := range layouts {
		l := &layouts[i]
		table, err := decode(l, "nat", smallTable(l))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range table.Chains {
			line := fmt.Sprintf("%s %d:", c.Name, c.Policy())
			for _, r := range c.Rules {
				chain, _ := r.Jump()
				v, ok := r.Verdict()
				line += fmt.Sprintf(" %s,%d,%v,%s,%d", chain, v, ok, r.Target().Name,
					len(r.Matches()))
			}
			got = append(got, line)
		}
		want := []string{
			"PREROUTING -2: FULL,0,false,,1", "OUTPUT -1:", "EMPTY -5:",
			"FULL -5: ,0,false,LOG,0 ,0,true,,1",
		}
		if !slices.Equal(got, want) {
			t.Errorf("family %s: got %q, want %q", l.family, got, want)
		}
	}
}

func TestDecodeRejectsInvalidTables(t *testing.T) {
	l := &layouts[0]
	policySize := l.headerSize + standardSize
	for _, tc := range []struct {
		want   string // part of the error
		change func(*blob)
	}{
		{"bytes remain", func(b *blob) { b.entries = b.entries[:len(b.entries)-1] }},
		{"the table contains 10 entries, but its header specifies 11", func(b *blob) { b.count++ }},
		{"the table contains 0 entries", func(b *blob) { b.entries, b.count = nil, 0 }},
		{"the last entry is not the ERROR entry that ends a table", func(b *blob) {
			b.entries, b.count = b.entries[:len(b.entries)-l.headerSize-64], b.count-1
		}},
		{"entry 0 at 0: target at 0", func(b *blob) { byteOrder.PutUint16(b.entries[l.targetOffset:], 0) }},
		{"entry 0 at 0: target at 65535", func(b *blob) {
			byteOrder.PutUint16(b.entries[l.targetOffset:], 0xffff)
		}},
		{"which is not a multiple", func(b *blob) {
			byteOrder.PutUint16(b.entries[l.nextOffset:], byteOrder.Uint16(b.entries[l.nextOffset:])+1)
		}},
		{"match of 0 bytes", func(b *blob) { byteOrder.PutUint16(b.entries[l.headerSize:], 0) }},
		{"match of 65535 bytes", func(b *blob) { byteOrder.PutUint16(b.entries[l.headerSize:], 0xffff) }},
		{"target of 31 bytes", func(b *blob) {
			byteOrder.PutUint16(b.entries[l.targetOf(b.entries):], 31)
		}},
		{"unknown hooks", func(b *blob) { b.validHooks |= 1 << 5 }},
		{"chain PREROUTING has invalid offsets 8 to", func(b *blob) { b.hookEntry[0] = 8 }},
		{"chain OUTPUT has invalid offsets 0", func(b *blob) { b.hookEntry[3] = 0 }},
		{"chain OUTPUT has invalid offsets", func(b *blob) { b.underflow[3] = b.underflow[0] }},
		{"chain INPUT has invalid offsets 0", func(b *blob) { b.validHooks |= 1 << 1 }},
		{"does not belong to a chain", func(b *blob) { b.validHooks &^= 1 << 3 }},
		{"PREROUTING: its last entry is not a verdict for all", func(b *blob) {
			b.entries[int(b.underflow[0])+l.protocol] = 6
		}},
		{"chain OUTPUT ends with verdict -5", func(b *blob) {
			l.setVerdict(b, int(b.hookEntry[3]), int(Return))
		}},
		{"PREROUTING: rule 1 jumps to offset 0, where no chain begins", func(b *blob) {
			l.setVerdict(b, 0, 0)
		}},
		{"PREROUTING: rule 1 jumps to offset", func(b *blob) { l.setVerdict(b, 0, int(b.hookEntry[3])) }},
		{"two chains FULL", func(b *blob) {
			b.entries = bytes.Replace(b.entries, []byte("EMPTY"), []byte("FULL\x00"), 1)
		}},
		{"chain EMPTY has no end", func(b *blob) {
			at := int(b.hookEntry[3]) + policySize + l.headerSize + 64 // the return of EMPTY
			b.entries, b.count = slices.Delete(b.entries, at, at+policySize), b.count-1
		}},
	} {
		t.Run(tc.want, func(t *testing.T) {
			b := smallTable(l)
			tc.change(b)
			table, err := decode(l, "nat", b)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("table %v, error %v, want an error with %q", table, err, tc.want)
			}
		})
	}
}

// A decoded table encodes to the same bytes, and decoding reads no bytes outside of the table.
func FuzzDecode(f *testing.F) {
	for i := range layouts {
		l := &layouts[i]
		f.Add(i == 1, smallTable(l).validHooks, offsetBytes(smallTable(l)), smallTable(l).entries)
		if os.Geteuid() == 0 { // the tables of this machine
			for _, name := range []string{"filter", "nat"} {
				if table, err := Read(nil, l.family, name); err == nil {
					f.Add(i == 1, table.origin.validHooks, offsetBytes(table.origin),
						table.origin.entries)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, isIPv6 bool, validHooks uint32, offsetData, entries []byte) {
		l := &layouts[0]
		if isIPv6 {
			l = &layouts[1]
		}
		b := &blob{entries: entries, offsets: offsets{validHooks: validHooks}}
		for i, at := range [][]uint32{b.hookEntry[:], b.underflow[:]} {
			for h := range at {
				if n := 4 * (i*hookCount + h); validHooks&(1<<h) != 0 && len(offsetData) >= n+4 {
					at[h] = byteOrder.Uint32(offsetData[n:])
				}
			}
		}
		if len(offsetData)%4 == 0 && len(offsetData) > 40 {
			b.count = byteOrder.Uint32(offsetData[40:])
		}
		table, err := decode(l, "nat", b)
		if err != nil {
			return
		}
		if table.Family != l.family || l.family != rules.IPv4 && l.family != rules.IPv6 {
			t.Errorf("family %s, want %s", table.Family, l.family)
		}
		for _, c := range table.Chains {
			_ = c.Policy()
			for _, r := range c.Rules {
				r.Header()
				r.Matches()
				r.Target()
				r.Verdict()
				r.Jump()
				r.Hits()
			}
		}
		second, _, err := table.encode()
		if err != nil || second.offsets != b.offsets || !bytes.Equal(second.entries, b.entries) ||
			!l.equal(second, b) {
			t.Errorf("error %v, want the decoded bytes\n%v %x\ngot\n%v %x", err, b.offsets, b.entries,
				second.offsets, second.entries)
		}
	})
}

// offsetBytes encodes the offsets and the number of entries, as FuzzDecode decodes them.
func offsetBytes(b *blob) []byte {
	var out []byte
	for _, n := range slices.Concat(b.hookEntry[:], b.underflow[:], []uint32{b.count}) {
		out = byteOrder.AppendUint32(out, n)
	}
	return out
}

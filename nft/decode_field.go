package nft

import (
	"bytes"
	"cmp"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// ids reads user or group ids: numbers of the machine, or turned into network order where they are intervals.
func (d *ruleDecoder) ids(op operand, keys [][2][]byte) ([]rules.IDRange, bool) {
	if op.network {
		return numberRanges(keys, numberKey[uint32])
	}
	if slices.ContainsFunc(keys, func(key [2][]byte) bool { return !bytes.Equal(key[0], key[1]) }) {
		return nil, false // the kernel would compare the bytes in the wrong order
	}
	return numberRanges(keys, hostNumber)
}

// numberRanges reads intervals of numbers.
func numberRanges[T uint16 | uint32](keys [][2][]byte, read func([]byte) (T, bool)) ([]rules.Range[T], bool) {
	ranges := make([]rules.Range[T], 0, len(keys))
	for _, key := range keys {
		first, okFirst := read(key[0])
		last, okLast := read(key[1])
		if !okFirst || !okLast || first > last {
			return nil, false
		}
		ranges = append(ranges, rules.Range[T]{First: first, Last: last})
	}
	return rules.Normalise(ranges), true
}

func (d *ruleDecoder) matchInterface(out, negated bool, keys [][2][]byte) error {
	m := rules.MatchInterface{Out: out, Not: negated}
	for _, key := range keys {
		name := key[0]
		if !bytes.Equal(name, key[1]) {
			return errUnsupported
		}
		n := rules.InterfaceName{Name: zeroTerminated(name), Prefix: !bytes.Contains(name, []byte{0})}
		m.Names = append(m.Names, n)
	}
	slices.SortFunc(m.Names, func(a, b rules.InterfaceName) int { return cmp.Compare(a.Name, b.Name) })
	return d.add(m)
}

// loopbackIndex is that of lo in every namespace (LOOPBACK_IFINDEX in net/net_namespace.h). Which interface another one is, a rule does
// not tell.
const loopbackIndex = 1

// matchLoopback adds the match of an interface by its index.
func (d *ruleDecoder) matchLoopback(out, negated bool, keys [][2][]byte) error {
	index, ok := hostNumber(keys[0][0])
	if !ok || len(keys) != 1 || index != loopbackIndex || !bytes.Equal(keys[0][0], keys[0][1]) {
		return errUnsupported
	}
	return d.add(rules.MatchInterface{Out: out, Not: negated, Names: []rules.InterfaceName{{Name: "lo"}}})
}

func (d *ruleDecoder) matchFamily(negated bool, keys [][2][]byte) error {
	if len(keys) != 1 || len(keys[0][0]) != 1 {
		return errUnsupported
	}
	f, ok := familyOf(keys[0][0][0])
	if !ok || f == rules.Inet {
		return errUnsupported
	}
	if negated {
		f = map[rules.Family]rules.Family{rules.IPv4: rules.IPv6, rules.IPv6: rules.IPv4}[f]
	}
	d.family = f
	return d.add(rules.MatchFamily{Family: f})
}

func (d *ruleDecoder) matchAddr(f field, negated bool, keys [][2][]byte, set string) error {
	m := rules.MatchAddr{Side: sideOf(f), Not: negated, Set: set}
	ranges := make([]netipx.IPRange, 0, len(keys))
	size := int(addrField(d.family, m.Side).length)
	for _, key := range keys {
		// A prefix of whole bytes is compared as those bytes.
		first, last := extend(key[0], size, 0), extend(key[1], size, 0xff)
		r, ok := addrRange(first, last)
		if !ok {
			return errUnsupported
		}
		ranges = append(ranges, r)
	}
	m.Ranges = rules.NormaliseAddrs(ranges)
	return d.add(m)
}

func extend(key []byte, size int, fill byte) []byte {
	key = slices.Clip(key) // it is not ours
	for len(key) < size {
		key = append(key, fill)
	}
	return key
}

package nft

import (
	"bytes"
	"cmp"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// This file decodes keys as values of a field. Each key is an interval with its first and last
// value.

// hostRanges decodes numbers in host byte order, or in network byte order if the rule has converted
// them.
func (o operand) hostRanges(keys []keyInterval) ([]rules.Range[uint32], bool) {
	if o.networkOrder {
		return numberRanges(keys, networkNumber[uint32])
	}
	if slices.ContainsFunc(keys, func(key keyInterval) bool { return !isSingle(key) }) {
		// The kernel compares byte by byte, which is wrong for intervals in host byte order.
		return nil, false
	}
	return numberRanges(keys, nlmsg.HostNumber)
}

// numberRanges decodes intervals of numbers.
func numberRanges[T uint16 | uint32](
	keys []keyInterval, read func([]byte) (T, bool),
) ([]rules.Range[T], bool) {
	ranges := make([]rules.Range[T], 0, len(keys))
	for _, key := range keys {
		first, okFirst := read(key.first)
		last, okLast := read(key.last)
		if !okFirst || !okLast || first > last {
			return nil, false
		}
		ranges = append(ranges, rules.Range[T]{First: first, Last: last})
	}
	return rules.Normalize(ranges), true
}

// interfaceNames decodes names. An interval, or a key without a terminating zero, represents all
// names with a prefix.
func interfaceNames(keys []keyInterval) ([]rules.InterfaceName, bool) {
	var names []rules.InterfaceName
	for _, key := range keys {
		first, last := key.first, key.last
		name := rules.InterfaceName{Name: nlmsg.Text(first)}
		n := len(name.Name)
		switch {
		case !isSingle(key):
			name.Prefix = isZero(first[n:]) && bytes.HasPrefix(last, first[:n]) &&
				!slices.ContainsFunc(last[n:], func(b byte) bool { return b != 0xff })
			if !name.Prefix {
				return nil, false
			}
		case n == len(first):
			name.Prefix = true
		case !isZero(first[n:]):
			return nil, false
		}
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b rules.InterfaceName) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return names, true
}

// isLoopback reports whether the keys are exactly the index of lo. The interface names of other
// indexes are unknown, because rules contain only the index.
func isLoopback(keys []keyInterval) bool {
	key, _ := singleKey(keys, 4)
	index, ok := nlmsg.HostNumber(key)
	return ok && index == netns.LoopbackIndex
}

// familyKey decodes a family. If negated, it returns IPv6 for IPv4 and IPv4 for IPv6.
func familyKey(keys []keyInterval, negated bool) (rules.Family, bool) {
	key, ok := singleKey(keys, 1)
	if !ok {
		return rules.Inet, false
	}
	f, ok := decodeFamily(key[0])
	if !ok || f == rules.Inet {
		return rules.Inet, false
	}
	if negated {
		f = map[rules.Family]rules.Family{rules.IPv4: rules.IPv6, rules.IPv6: rules.IPv4}[f]
	}
	return f, true
}

// protocolKeys decodes protocols.
func protocolKeys(keys []keyInterval) ([]rules.Protocol, bool) {
	var protocols []rules.Protocol
	for _, key := range keys {
		if len(key.first) != 1 || key.first[0] > key.last[0] {
			return nil, false
		}
		for p := int(key.first[0]); p <= int(key.last[0]); p++ {
			protocols = append(protocols, rules.Protocol(p))
		}
	}
	slices.Sort(protocols)
	return slices.Compact(protocols), true
}

// addrMatch decodes an address match. family is the family to which the rule is limited.
func addrMatch(family rules.Family, f field, negated bool, v values) (rules.Match, bool) {
	op := operand{field: f, ipv6: family == rules.IPv6}
	size := int(addrField(family, fieldSide(f)).length)
	ranges, ok := cached(v, op, func(keys []keyInterval) ([]netipx.IPRange, bool) {
		return addrKeys(keys, size)
	})
	return rules.MatchAddr{Side: fieldSide(f), Not: negated, Ranges: ranges, Set: v.name}, ok
}

// addrKeys decodes keys as ranges of addresses with size bytes.
func addrKeys(keys []keyInterval, size int) ([]netipx.IPRange, bool) {
	ranges := make([]netipx.IPRange, 0, len(keys))
	for _, key := range keys {
		// For a prefix whose length is a multiple of 8 bits, rules compare only the leading bytes.
		r, ok := addrRange(extend(key.first, size, 0), extend(key.last, size, 0xff))
		if !ok {
			return nil, false
		}
		ranges = append(ranges, r)
	}
	return rules.NormalizeAddrs(ranges), true
}

// extend appends fill to the key until it has size bytes.
func extend(key []byte, size int, fill byte) []byte {
	key = slices.Clip(key) // do not write to the caller's array
	for len(key) < size {
		key = append(key, fill)
	}
	return key
}

// icmpRanges decodes ICMP types, codes or both.
func (o operand) icmpRanges(keys []keyInterval) ([]rules.Range[uint16], bool) {
	var ranges []rules.Range[uint16]
	for _, key := range keys {
		first, last := key.first, key.last
		switch {
		case bytes.Compare(first, last) > 0:
			return nil, false
		case o.field == fieldICMPCode:
			for kind := range uint16(1 << 8) {
				ranges = append(ranges, rules.Range[uint16]{
					First: kind<<8 | uint16(first[0]), Last: kind<<8 | uint16(last[0]),
				})
			}
		default: // the type, or type and code
			a, b := extend(first, 2, 0), extend(last, 2, 0xff)
			ranges = append(ranges, rules.Range[uint16]{
				First: uint16(a[0])<<8 | uint16(a[1]), Last: uint16(b[0])<<8 | uint16(b[1]),
			})
		}
	}
	return rules.Normalize(ranges), true
}

// directionKey decodes a conntrack direction, and reports whether it is the reply direction.
func directionKey(keys []keyInterval) (reply, ok bool) {
	key, ok := singleKey(keys, 1)
	return ok && key[0] == 1, ok && key[0] <= 1
}

// addrTypes decodes route types.
func addrTypes(keys []keyInterval) (rules.AddrTypeSet, bool) {
	var set rules.AddrTypeSet
	for _, key := range keys {
		t, ok := nlmsg.HostNumber(key.first)
		if !ok || !isSingle(key) || t > uint32(rules.ResolvedType) {
			return 0, false
		}
		set |= rules.AddrTypes(rules.AddrType(t))
	}
	return set, true
}

// missingPath reports whether the keys represent a missing route. ok is false if they represent
// neither a missing nor an existing route.
func missingPath(f field, keys []keyInterval) (missing, ok bool) {
	key := keys[0]
	if len(keys) != 1 || !isSingle(key) {
		return false, false
	}
	if f == fieldReversePathIndex {
		return true, len(key.first) == 4 && isZero(key.first)
	}
	return isZero(key.first), key.first[0] <= 1 && isZero(key.first[1:])
}

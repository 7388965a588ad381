package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"go4.org/netipx"
)

// A Range is a closed interval of numbers, such as ports, ids or marks. For a single number First
// equals Last.
type Range[T uint16 | uint32] struct{ First, Last T }

// PortRange is a range of TCP or UDP ports.
type PortRange = Range[uint16]

// IDRange is a range of numeric user or group ids.
type IDRange = Range[uint32]

// Single returns the range that contains only n.
func Single[T uint16 | uint32](n T) Range[T] { return Range[T]{n, n} }

// Singles returns normalized ranges of single numbers.
func Singles[T uint16 | uint32](numbers ...T) []Range[T] {
	ranges := make([]Range[T], len(numbers))
	for i, n := range numbers {
		ranges[i] = Single(n)
	}
	return Normalize(ranges)
}

// Contains reports whether n is in the range.
func (r Range[T]) Contains(n T) bool { return r.First <= n && n <= r.Last }

// IsSingle reports whether the range contains a single number.
func (r Range[T]) IsSingle() bool { return r.First == r.Last }

// String returns the range in nft's syntax: "80" or "8000-9000".
func (r Range[T]) String() string {
	if r.IsSingle() {
		return strconv.FormatUint(uint64(r.First), 10)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Normalize returns the same numbers as sorted, disjoint ranges. Overlapping and adjacent ranges
// are merged, but not a single number with an adjacent number or range, because a list of ports is
// easier to recognize.
func Normalize[T uint16 | uint32](ranges []Range[T]) []Range[T] {
	if len(ranges) == 0 {
		return nil
	}
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b Range[T]) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(b.Last, a.Last))
	})
	merged := sorted[:1]
	for _, r := range sorted[1:] {
		last := &merged[len(merged)-1]
		adjacent := r.First > 0 && r.First-1 == last.Last && !r.IsSingle() && !last.IsSingle()
		if r.First <= last.Last || adjacent {
			last.Last = max(last.Last, r.Last)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// joined returns normalized ranges with all adjacent numbers and ranges merged.
func joined[T uint16 | uint32](ranges []Range[T]) []Range[T] {
	merged := ranges[:1:1]
	for _, r := range ranges[1:] {
		if last := &merged[len(merged)-1]; r.First-1 == last.Last {
			last.Last = r.Last
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// Contains reports whether one of the normalized ranges contains n.
func Contains[T uint16 | uint32](ranges []Range[T], n T) bool {
	_, found := slices.BinarySearchFunc(ranges, n, func(r Range[T], n T) int {
		switch {
		case r.Last < n:
			return -1
		case r.First > n:
			return 1
		}
		return 0
	})
	return found
}

// AddrRanges returns the addresses of the prefixes as the fewest sorted ranges. Host bits are
// ignored. IPv4-mapped IPv6 prefixes count as IPv6.
func AddrRanges(prefixes []netip.Prefix) []netipx.IPRange {
	ranges := make([]netipx.IPRange, 0, len(prefixes))
	for _, p := range prefixes {
		ranges = append(ranges, netipx.RangeOfPrefix(p))
	}
	return NormalizeAddrs(ranges)
}

// NormalizeAddrs returns the same addresses as the fewest sorted ranges. It overwrites its
// argument.
func NormalizeAddrs(ranges []netipx.IPRange) []netipx.IPRange {
	if len(ranges) == 0 {
		return nil
	}
	slices.SortFunc(ranges, func(a, b netipx.IPRange) int {
		return cmp.Or(a.From().Compare(b.From()), b.To().Compare(a.To()))
	})
	merged := ranges[:1]
	for _, r := range ranges[1:] {
		last := merged[len(merged)-1]
		// After the last address of the family, Next is the invalid address, which is less than all
		// others.
		next := last.To().Next()
		if r.From().Compare(last.To()) > 0 && r.From() != next {
			merged = append(merged, r)
			continue
		}
		if r.To().Compare(last.To()) > 0 {
			merged[len(merged)-1] = netipx.IPRangeFrom(last.From(), r.To())
		}
	}
	return merged
}

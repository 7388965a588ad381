package diff

import (
	"cmp"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A found class and what it is sorted by.
type foundClass struct {
	Class
	size int // of the description
}

// classes describes what differs, in at most that many classes, and tells whether there are more. Each difference has its turn, so
// that one of a thousand classes hides none that one describes.
func (d *decision) classes(most int) (classes []Class, more bool) {
	var found []foundClass
	for _, named := range []bool{false, true} {
		for round := 0; ; round++ {
			open := 0
			for _, p := range d.paths {
				for i := range p.differences {
					differs := &p.differences[i]
					if differs.packets == none || (len(differs.deviations) > 0) != named {
						continue
					}
					if len(found) == most {
						more = true
						continue
					}
					open++
					found = append(found, d.takeClass(p.space, differs))
				}
			}
			if open == 0 {
				break
			}
		}
	}
	slices.SortStableFunc(found, func(a, b foundClass) int {
		return cmp.Or(cmp.Compare(min(1, len(a.Deviations)), min(1, len(b.Deviations))), cmp.Compare(a.size, b.size))
	})
	for _, f := range found {
		classes = append(classes, f.Class)
	}
	return classes, more
}

// takeClass takes one class out of a difference.
func (d *decision) takeClass(s *space, from *difference) foundClass {
	chosen := s.choose(from.packets)
	box := s.widen(chosen, from.packets)
	from.packets = s.minus(from.packets, box.packets(s))
	class := Class{Packets: s.describe(box), Witness: s.packet(chosen), Deviations: from.deviations, space: s, box: box}
	class.Outcome = outcomes(d.sides, class.Witness)
	size := 0
	for _, c := range class.Packets {
		size += 10 + len(c.Values)
	}
	return foundClass{class, size}
}

// A box is a set of packets that one condition for each field describes.
type box [fieldCount]set

// packets returns those that fulfil all conditions.
func (b *box) packets(s *space) set {
	packets := all
	for _, condition := range slices.Backward(b[:]) {
		packets = s.and(packets, condition)
	}
	return packets
}

// widenOrder is that in which conditions are given up: first those that a reader can best do without. Addresses come last, when
// little else is left, because their sets are large.
var widenOrder = []field{
	sourcePort, connectionMark, mark, flags, listener, group, user, state, device, destinationPort, protocol, source, destination,
}

// widen returns a box around the packet with nothing in it, of what can exist, that is not in the set, and that cannot be wider in
// any one field.
func (s *space) widen(chosen [fieldCount]value, within set) box {
	var b box
	for f := range fieldCount {
		b[f] = s.is(f, chosen[f])
	}
	outside := s.minus(s.possible, within)
	for _, f := range widenOrder {
		b[f] = all
		forbidden := s.project(s.and(outside, b.packets(s)), s.keep(f))
		b[f] = s.not(forbidden)
		if isBits(f) {
			b[f] = s.plain(f, uint32(chosen[f].low), b[f])
		}
	}
	return b
}

// isBits tells whether the values of the field are not a number, but bits.
func isBits(f field) bool { return f == mark || f == connectionMark || f == flags }

// plain returns the set of values if it is easy to describe, else a part of it around the value that is: those in which some of the
// bits are as they are in the value.
func (s *space) plain(f field, v uint32, values set) set {
	for _, easy := range []set{values, s.not(values)} {
		if _, _, ok := s.pattern(f, easy); ok || s.isFew(f, easy) {
			return values
		}
	}
	mask := ^uint32(0) >> (32 - len(s.bits[f]))
	for i := range len(s.bits[f]) {
		fewer := mask &^ (1 << i)
		if wider := s.having(f, v&fewer, fewer); s.minus(wider, values) == none {
			mask = fewer
		}
	}
	return s.having(f, v&mask, mask)
}

// isFew tells whether the values are so few that they can be listed.
func (s *space) isFew(f field, values set) bool {
	return len(s.firstValues(f, values, mostListed+1)) <= mostListed
}

// firstValues lists the values up to a number of them.
func (s *space) firstValues(f field, values set, most int) []uint32 {
	var found []uint32
	for _, v := range s.firstSpans(f, values, most) {
		for n := v.first.low; n <= v.last.low && len(found) < most; n++ {
			found = append(found, uint32(n))
		}
	}
	return found
}

// pattern returns the bits that all values of the set have in common, if the set is all values that have these.
func (s *space) pattern(f field, values set) (v, mask uint32, ok bool) {
	if values == none {
		return 0, 0, false
	}
	bits := s.bits[f]
	for i, bit := range bits {
		at := uint32(1) << (len(bits) - 1 - i)
		n := s.nodes[values]
		if values == all || n.bit != bit {
			continue
		}
		mask |= at
		switch none {
		case n.no:
			v |= at
			values = n.yes
		case n.yes:
			values = n.no
		default:
			return 0, 0, false
		}
	}
	return v, mask, true
}

// outcomes tells what each side does to a packet, and by which rule.
func outcomes(sides Pair[*rules.Ruleset], p rules.Packet) Pair[Outcome] {
	left, right := sides.Left.Explain(p), sides.Right.Explain(p)
	part := differingPart(left.Fate, right.Fate)
	return Pair[Outcome]{
		Outcome{Fate: left.Fate, Decided: decidingStep(left, part)},
		Outcome{Fate: right.Fate, Decided: decidingStep(right, part)},
	}
}

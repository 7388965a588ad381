package diff

import (
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A difference is a set of packets that two rulesets treat differently, with one outcome for each
// side.
type difference struct {
	packets set
	// describable contains the packets of the difference, and other packets that the description of
	// a class may include although their outcomes are equal: packets that a rule of one side sends
	// to their original destination. A description that excludes these packets would be long.
	describable set
	left, right flow
	// deviations are the known deviations that explain the difference; nil if there are none.
	deviations []rules.DeviationID
}

// differenceSize is the size of a difference in a growing list in bytes.
const differenceSize = 1 << 10

// outcomes returns the packets with each outcome, and all undecided packets.
func (w *walk) outcomes() (decided flows, undecided set) {
	for _, f := range w.ended.list {
		f.progress = f.final()
		if f.undecided != 0 {
			undecided = w.or(undecided, f.packets)
			continue
		}
		w.add(&decided, f)
	}
	return decided, undecided
}

// A comparison is the result of comparing two walks of a space.
type comparison struct {
	// differences are disjoint sets of packets that are treated differently for all values of the
	// unknowns.
	differences []difference
	// undecided contains the packets for which the result depends on unknowns.
	undecided set
	// differsIf is the condition, on packets and unknowns, under which undecided packets are
	// treated differently or have an unknown outcome.
	differsIf set
}

// compare returns the packets that two walks treat differently.
func (s *space) compare(left, right *walk) comparison {
	lefts, unknownLeft := left.outcomes()
	rights, unknownRight := right.outcomes()
	var c comparison
	for i := range lefts.list {
		l := &lefts.list[i]
		rest := l.packets // not compared yet
		compareWith := func(r *flow) {
			s.meter.step()
			packets := s.and(rest, r.packets)
			if packets == none {
				return
			}
			rest = s.minus(rest, packets)
			describable := packets
			packets = s.minus(packets, s.equalOutcome(left, l, r))
			if l.target.kind == r.target.kind {
				describable = packets
			}
			s.addDifference(&c, l, r, packets, describable)
		}
		switch same := rights.find(l.progress); {
		case same < 0:
		case l.target.isRange() || l.target.isAddrRange():
			// equalOutcome determines for which packets the kernel selects the same target.
			compareWith(&rights.list[same])
		default:
			// These packets have equal progress on both sides. Only their marks may differ.
			r := &rights.list[same]
			packets := s.and(s.and(rest, r.packets), left.marksDiffer(l, r))
			s.addDifference(&c, l, r, packets, packets)
			rest = s.minus(rest, r.packets)
		}
		for j := range rights.list {
			if rest == none {
				break
			}
			compareWith(&rights.list[j])
		}
	}
	s.divideByUnknowns(&c, s.or(unknownLeft, unknownRight), left, right)
	return c
}

// addDifference adds a difference, unless there are no packets.
func (s *space) addDifference(c *comparison, l, r *flow, packets, describable set) {
	if packets != none {
		s.meter.alloc(differenceSize)
		c.differences = append(c.differences, difference{packets, describable, *l, *r, nil})
	}
}

// randomMatchesOfOneSide returns the variables of the random matches that only one side has.
func (s *space) randomMatchesOfOneSide(left, right *walk) map[int]bool {
	var found map[int]bool
	for i := range s.variableList {
		if key := s.variableList[i].key; left.randomKeys[key] != right.randomKeys[key] {
			storeIn(&found, i, true)
		}
	}
	return found
}

// divideByUnknowns divides the packets of the differences into packets that differ for all values
// of the unknowns (differences) and packets that differ for some values (undecided). unknown
// contains the packets with an unknown outcome.
//
// Usually a random match that only one side has is independent of the matches of the other side.
// But the rules of two random matches may differ only because the model does not support a part of
// one rule. Then both may be the same match. Packets whose result depends on an unknown therefore
// differ only if they differ for all results of the random matches that only one side has.
func (s *space) divideByUnknowns(c *comparison, unknown set, left, right *walk) {
	sets := make([]set, len(c.differences))
	for i := range c.differences {
		sets[i] = c.differences[i].packets
	}
	differing, randomMatches := s.unite(sets), s.randomMatchesOfOneSide(left, right)
	affected := s.or(differing, unknown)
	certain := s.minus(s.certainly(affected), s.possibly(unknown))
	if !s.hasUnknowns {
		certain = differing
	}
	if len(randomMatches) > 0 {
		// forSome returns the packets that are in the set for some result of these random matches.
		forSome := func(packets set) set {
			return s.project(packets, func(bit uint32) bool {
				i, ok := s.variableOf(bit)
				return !ok || !randomMatches[i]
			})
		}
		dependent := forSome(s.minus(s.possibly(affected), certain))
		always := s.not(forSome(s.not(certain)))
		certain = s.minus(certain, s.minus(dependent, always))
	}
	c.differsIf = s.minus(affected, certain)
	c.undecided = s.possibly(c.differsIf)
	taken, possible := none, s.or(s.possibly(differing), c.undecided)
	for i := range c.differences {
		d := &c.differences[i]
		d.packets = s.minus(s.and(s.possibly(d.packets), certain), taken)
		d.describable = s.or(d.packets,
			s.minus(s.possibly(d.describable), s.or(possible, taken)))
		taken = s.or(taken, d.describable)
	}
	c.differences = slices.DeleteFunc(c.differences, func(d difference) bool {
		return !s.anyPossible(d.packets)
	})
}

// equalOutcome returns the packets for which two different outcomes have the same effect.
func (s *space) equalOutcome(w *walk, l, r *flow) set {
	p, q := l.progress, r.progress
	p.target, q.target = target{}, target{}
	p.snatAction, q.snatAction, p.snat, q.snat = "", "", netip.Addr{}, netip.Addr{}
	p.tproxy.port, q.tproxy.port = 0, 0
	p.headers, q.headers = "", ""
	p.precedesNAT, q.precedesNAT = false, false
	packets := all
	if !p.tracking.isTemplate() && !q.tracking.isTemplate() && p.tracking != q.tracking {
		// Notrack has no effect on a packet that entered untracked.
		packets, p.tracking = s.entersUntracked(), q.tracking
	}
	if p != q {
		return none
	}
	if !p.dropped {
		packets = s.and(packets,
			s.and(s.sameDestination(l.target, r.target),
				s.samePort(target{port: l.tproxy.port}, target{port: r.tproxy.port})))
		packets = s.and(packets, s.sameSource(&l.progress, &r.progress))
		packets = s.and(packets, s.sameSocket(&l.progress, &r.progress))
		packets = s.and(packets, s.sameHeaders(l.headers, r.headers))
	}
	return s.minus(packets, w.marksDiffer(l, r))
}

// sameHeaders returns the packets for which two sequences of changes of header fields have the same
// result, which is unknown if the sequences differ.
func (s *space) sameHeaders(l, r string) set {
	if l == r {
		return all
	}
	return s.variable(variable{
		key: "headers after " + l + keySeparator + keySeparator + r, kind: unknownBit,
		text: "whether rules change other fields of the header alike, such as the hop limit",
	})
}

// sameSource returns the packets that leave with the same source address on both sides. It is
// unknown whether the addresses are equal if the kernel selects one of them.
func (s *space) sameSource(l, r *progress) set {
	switch {
	case l.snatAction == r.snatAction:
		return all
	case l.snatAction != "" && !l.snat.IsValid(), r.snatAction != "" && !r.snat.IsValid():
		return s.variable(variable{
			key: "source after " + l.snatAction + keySeparator + r.snatAction, kind: unknownBit,
			text: "whether the source address that the kernel selects is the same on both sides",
		})
	case l.snatAction != "" && r.snatAction != "":
		return none // two known addresses that differ
	case l.snatAction != "":
		return s.is(source, address(l.snat))
	}
	return s.is(source, address(r.snat))
}

// marksDiffer returns the packets of two flows whose marks differ. For dropped packets only the
// mark of the connection matters.
func (w *walk) marksDiffer(l, r *flow) set {
	packets := w.marks.differs(l.connectionMark, r.connectionMark)
	if !l.dropped {
		packets = w.or(packets, w.marks.differs(l.mark, r.mark))
	}
	return packets
}

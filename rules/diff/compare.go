package diff

import "github.com/sluice-mesh/sluice/rules"

// A difference is packets that two rulesets treat differently, each in one way.
type difference struct {
	packets     set
	left, right progress
	// deviations explain it.
	deviations []rules.DeviationID
}

// fates returns the packets of each fate, and all those that are undecided.
func (w *walk) fates() (decided flows, undecided set) {
	for _, f := range w.ended.list {
		f.progress = f.fate()
		if f.undecided != 0 {
			undecided = w.or(undecided, f.packets)
			continue
		}
		w.add(&decided, f)
	}
	return decided, undecided
}

// differences returns the packets of which the fates differ. Those of which one is undecided are left out.
func (s *space) differences(left, right *walk) []difference {
	lefts, _ := left.fates()
	rights, unknownRight := right.fates()
	var found []difference
	for _, l := range lefts.list {
		rest := s.minus(l.packets, unknownRight)
		if i := rights.find(l.progress); i >= 0 {
			rest = s.minus(rest, rights.list[i].packets)
		}
		for _, r := range rights.list {
			if rest == none {
				break
			}
			packets := s.minus(s.and(rest, r.packets), s.same(l.progress, r.progress))
			if packets != none {
				found = append(found, difference{packets: packets, left: l.progress, right: r.progress})
			}
		}
	}
	return found
}

// same returns the packets for which two fates come to the same: their marks may have other reasons, but be equal.
func (s *space) same(p, q progress) set {
	p, q = p.fate(), q.fate()
	if !p.sameBeside(q) {
		return none
	}
	return s.and(s.sameMark(p.mark, q.mark), s.sameMark(p.connection, q.connection))
}

// total is all packets of the differences.
func (s *space) total(differences []difference) set {
	sets := make([]set, len(differences))
	for i, d := range differences {
		sets[i] = d.packets
	}
	return s.unite(sets)
}

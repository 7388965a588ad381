package diff

import "github.com/sluice-mesh/sluice/rules"

// A progress is what the rules have done to some packets so far: all that later rules can depend on, and the fate at the end.
// Packets of equal progress are alike from there on.
type progress struct {
	mark, connection markValue
	// entry is the mark with which the packets came into the present chain of type route.
	entry                        markValue
	redirect, dnat, tproxy, zone uint16
	zoned, mapped, toLoopback    bool
	dropped                      bool
	// rerouted tells that the packets were to leave, and that their mark led them back.
	rerouted bool
	// undecided is the number of what the model has no word for, counted from 1 in the walk's list.
	undecided int
}

// A flow is packets that have come to a place of the ruleset alike.
type flow struct {
	packets set
	progress
}

// flows are disjoint sets of packets, one for each progress.
type flows struct {
	list  []flow
	index map[progress]int
}

// manyFlows is where a map is faster than a look at each.
const manyFlows = 8

// add unites the packets with those of the same progress.
func (s *space) add(to *flows, from ...flow) {
	for _, f := range from {
		if f.packets == none {
			continue
		}
		i := to.find(f.progress)
		if i < 0 {
			to.list = append(to.list, f)
			if to.index != nil {
				to.index[f.progress] = len(to.list) - 1
			}
			continue
		}
		to.list[i].packets = s.or(to.list[i].packets, f.packets)
	}
}

func (f *flows) find(p progress) int {
	if f.index == nil && len(f.list) >= manyFlows {
		f.index = make(map[progress]int, 2*len(f.list))
		for i := range f.list {
			f.index[f.list[i].progress] = i
		}
	}
	if f.index != nil {
		if i, ok := f.index[p]; ok {
			return i
		}
		return -1
	}
	for i := range f.list {
		if f.list[i].progress == p {
			return i
		}
	}
	return -1
}

// split divides a flow into what is in the set and what is not.
func (s *space) split(f flow, by set) (in, out flow) {
	in, out = f, f
	in.packets = s.and(f.packets, by)
	out.packets = s.minus(f.packets, by)
	return in, out
}

// fate is the part of the progress that matters when a packet's way is over (see [rules.Fate.Same]).
func (p progress) fate() progress {
	switch {
	case p.undecided != 0:
		return progress{undecided: p.undecided}
	case p.dropped:
		return progress{dropped: true, connection: p.connection}
	}
	return progress{
		mark: p.mark, connection: p.connection,
		redirect: p.redirect, dnat: p.dnat, tproxy: p.tproxy, zone: p.zone, rerouted: p.rerouted,
	}
}

// sameBeside tells whether two fates differ in nothing but marks.
func (p progress) sameBeside(q progress) bool {
	p.mark, p.connection = q.mark, q.connection
	return p == q
}

// localMarks are those of a routing's policies for a family.
func localMarks(r rules.Routing, f rules.Family) []uint32 {
	var marks []uint32
	for _, p := range r.Policies {
		if p.Family == f {
			marks = append(marks, p.Mark)
		}
	}
	return marks
}

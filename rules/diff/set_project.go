package diff

// This file contains operations that remove, or list, the bits on which a set depends.

// project returns the packets that are in the set for some value of the bits that are not kept
// (existential quantification).
func (d *diagrams) project(s set, kept func(bit uint32) bool) set {
	if s <= all {
		return s
	}
	d.newRound()
	var visit func(set) set
	visit = func(s set) set {
		if s <= all {
			return s
		}
		if known := d.projected[s]; known.round == d.round {
			return known.value
		}
		d.meter.step()
		n := d.root(s)
		no := visit(n.no)
		var united set
		switch {
		case kept(n.bit):
			united = d.node(n.bit, no, visit(n.yes))
		case no == all:
			united = all
		default:
			united = d.or(no, visit(n.yes))
		}
		d.projected[s] = projection{d.round, united}
		return united
	}
	return visit(s)
}

// A projection is the result of project for a set, valid in one round.
type projection struct {
	round uint32
	value set
}

// newRound begins a call of project or support: it invalidates the elements of projected.
func (d *diagrams) newRound() {
	if len(d.projected) < 2*len(d.nodes) {
		d.meter.alloc(int64(2*cap(d.nodes)) * projectionSize)
		d.meter.release(int64(len(d.projected)) * projectionSize)
		d.projected = make([]projection, 2*cap(d.nodes))
	}
	d.round++
}

// support calls do once for each bit on which the set depends.
func (d *diagrams) support(s set, do func(bit uint32)) {
	d.newRound()
	bits := map[uint32]bool{}
	var visit func(set)
	visit = func(s set) {
		s &^= complemented // a set and its complement depend on the same bits
		if s == none || d.projected[s].round == d.round {
			return
		}
		d.meter.step()
		d.projected[s].round = d.round
		n := d.root(s)
		if !bits[n.bit] {
			bits[n.bit] = true
			do(n.bit)
		}
		visit(n.no)
		visit(n.yes)
	}
	visit(s)
}

// visitNodes calls do with the bit of each node of a set, and adds the nodes to visited. It omits
// nodes that are in visited already, and the nodes below them.
func (d *diagrams) visitNodes(s set, visited map[uint32]bool, do func(bit uint32)) {
	for s > all && !visited[s.index()] {
		d.meter.charge(textSteps)
		d.meter.alloc(visitSize)
		visited[s.index()] = true
		n := d.root(s)
		do(n.bit)
		d.visitNodes(n.no, visited, do)
		s = n.yes
	}
}

// visitSize is the size of a visited node in a map in bytes.
const visitSize = 16

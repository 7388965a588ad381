package diff

// A set is a set of packets, as the number of a node of the decision diagrams that hold it. Equal sets have equal numbers.
type set uint32

// The two sets that need no question.
const (
	none set = 0
	all  set = 1
)

// A node asks for one bit of the packet and goes on with another set for each answer. On every way down the numbers of the bits
// ascend, and no bit is asked for that does not matter: this is what makes equal sets equal nodes.
type node struct {
	bit     uint32
	no, yes set
}

// lastBit is the bit of the two sets that need no question: behind all others.
const lastBit = ^uint32(0)

// diagrams hold all nodes of one space. Nodes are only ever added: a decision is short, and then all of it is garbage.
type diagrams struct {
	nodes []node
	// numbers finds a node's number by its content: a hash table with open addressing, its length a power of two.
	numbers []set
	// results are those of recent operations. An entry that is overwritten costs time only.
	results []result
}

// A result is what an operation made of two sets.
type result struct {
	op   operation
	a, b set
	is   set
}

type operation uint8

const (
	_ operation = iota
	opAnd
	opOr
	opMinus
)

const firstSize = 1 << 11

func newDiagrams() *diagrams {
	return &diagrams{
		nodes:   []node{{bit: lastBit}, {bit: lastBit}},
		numbers: make([]set, firstSize),
		results: make([]result, firstSize),
	}
}

func hash(a, b, c uint32) uint32 {
	h := (uint64(a)*0x9e3779b97f4a7c15 ^ uint64(b)) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>29 ^ uint64(c)) * 0x94d049bb133111eb
	return uint32(h >> 32)
}

// node returns the set of the packets that are in yes if they have the bit, and in no otherwise.
func (d *diagrams) node(bit uint32, no, yes set) set {
	if no == yes {
		return no
	}
	mask := uint32(len(d.numbers) - 1)
	i := hash(bit, uint32(no), uint32(yes)) & mask
	for ; d.numbers[i] != 0; i = (i + 1) & mask {
		if n := d.nodes[d.numbers[i]]; n.bit == bit && n.no == no && n.yes == yes {
			return d.numbers[i]
		}
	}
	s := set(len(d.nodes))
	d.nodes = append(d.nodes, node{bit, no, yes})
	d.numbers[i] = s
	if 2*len(d.nodes) > len(d.numbers) {
		d.grow()
	}
	return s
}

// grow doubles the tables.
func (d *diagrams) grow() {
	d.numbers = make([]set, 2*len(d.numbers))
	d.results = make([]result, 2*len(d.results))
	mask := uint32(len(d.numbers) - 1)
	for s, n := range d.nodes[2:] {
		i := hash(n.bit, uint32(n.no), uint32(n.yes)) & mask
		for d.numbers[i] != 0 {
			i = (i + 1) & mask
		}
		d.numbers[i] = set(s + 2)
	}
}

// and returns the packets that are in both sets.
func (d *diagrams) and(a, b set) set { return d.apply(opAnd, a, b) }

// or returns the packets that are in one of the sets.
func (d *diagrams) or(a, b set) set { return d.apply(opOr, a, b) }

// minus returns the packets of a that are not in b.
func (d *diagrams) minus(a, b set) set { return d.apply(opMinus, a, b) }

// not returns the packets that are not in the set.
func (d *diagrams) not(a set) set { return d.apply(opMinus, all, a) }

// unite returns the union of many sets. Those that are alike meet late, which is much less work than one after the other.
func (d *diagrams) unite(sets []set) set {
	switch len(sets) {
	case 0:
		return none
	case 1:
		return sets[0]
	}
	half := len(sets) / 2
	return d.or(d.unite(sets[:half]), d.unite(sets[half:]))
}

// apply carries out an operation bit by bit, from the top.
func (d *diagrams) apply(op operation, a, b set) set {
	if is, known := simple(op, a, b); known {
		return is
	}
	if op != opMinus && a > b {
		a, b = b, a
	}
	i := hash(uint32(a), uint32(b), uint32(op))
	if r := &d.results[i&uint32(len(d.results)-1)]; r.op == op && r.a == a && r.b == b {
		return r.is
	}
	x, y := d.nodes[a], d.nodes[b]
	bit := min(x.bit, y.bit)
	if x.bit != bit {
		x.no, x.yes = a, a
	}
	if y.bit != bit {
		y.no, y.yes = b, b
	}
	no := d.apply(op, x.no, y.no)
	is := d.node(bit, no, d.apply(op, x.yes, y.yes))
	// The tables may have grown meanwhile.
	d.results[i&uint32(len(d.results)-1)] = result{op, a, b, is}
	return is
}

// simple knows the results that need no look inside.
func simple(op operation, a, b set) (is set, known bool) {
	switch op {
	case opAnd:
		switch {
		case a == none || b == none:
			return none, true
		case a == all || a == b:
			return b, true
		case b == all:
			return a, true
		}
	case opOr:
		switch {
		case a == all || b == all:
			return all, true
		case a == none || a == b:
			return b, true
		case b == none:
			return a, true
		}
	case opMinus:
		switch {
		case a == none || b == all || a == b:
			return none, true
		case b == none:
			return a, true
		}
	}
	return none, false
}

// project forgets all bits but those to keep: a packet is in the result if some packet with the same kept bits is in the set.
func (d *diagrams) project(s set, keep []bool) set {
	known := map[set]set{none: none, all: all}
	var visit func(set) set
	visit = func(s set) set {
		if is, ok := known[s]; ok {
			return is
		}
		n := d.nodes[s]
		no, yes := visit(n.no), visit(n.yes)
		var is set
		if keep[n.bit] {
			is = d.node(n.bit, no, yes)
		} else {
			is = d.or(no, yes)
		}
		known[s] = is
		return is
	}
	return visit(s)
}

package diff

import "unsafe"

// A set is a set of packets: the number of its root node in the decision diagrams. Equal sets have
// equal numbers.
type set uint32

// The sets of no packets and of all packets are terminal nodes.
const (
	none set = 0
	all  set = 1
)

// A node is an inner node of a reduced ordered binary decision diagram: it tests a bit of the
// packet and has a set for each value. The bits on every path from the root ascend, and no node has
// two equal successors. Therefore equal sets are equal nodes.
type node struct {
	bit     uint32
	no, yes set
}

// lastBit is the bit of the terminal nodes, after all other bits.
const lastBit = ^uint32(0)

// diagrams contain all nodes of a space. Nodes are never removed, because a decision is short.
type diagrams struct {
	nodes []node
	// numbers is the unique table: a hash table from the content of a node to its number, with open
	// addressing and a length that is a power of two.
	numbers []set
	// results caches the results of recent operations. An overwritten entry is computed again.
	results []result
	// projected caches the results of the current call of project, by node. round is the number of
	// that call.
	projected []projection
	round     uint32
	meter     *meter
}

// A result is the result of an operation on two or three sets.
type result struct {
	op      operation
	a, b, c set // c is none for an operation on two sets
	value   set
}

type operation uint8

const (
	_ operation = iota
	opAnd
	opOr
	opMinus
	opXor
	opIfElse
	opDisjoint // a cached result means that the sets are disjoint
)

// The initial lengths of the tables, for all packets and for a single packet.
const (
	initialSize         = 1 << 14
	initialSizeOfSingle = 1 << 4
)

// maxResults is the maximum length of the table of results, which grows with the unique table.
const maxResults = 1 << 18

// Sizes of the elements of the tables in bytes. The table of nodes has half as many elements as the
// table of their numbers.
const (
	nodeSize       = 12
	numberSize     = 4
	resultSize     = 20
	projectionSize = 8
)

func newDiagrams(size int, m *meter) *diagrams {
	m.alloc(int64(size) * (nodeSize/2 + numberSize + resultSize))
	d := &diagrams{numbers: newTable[set](size), results: newTable[result](size), meter: m}
	d.nodes = append(make([]node, 0, size/2+1), node{bit: lastBit}, node{bit: lastBit})
	return d
}

// newTable returns a table of zero elements, after a write to each of its memory pages. Without
// this write, the first access to most pages would be a read, for which the kernel maps a shared
// page. The first write to the page would then cause a second page fault. These faults would take a
// tenth of the time of a short decision.
func newTable[T any](size int) []T {
	const pageSize = 4096
	table := make([]T, size)
	var zero T
	for i := 0; i < size; i += pageSize / int(unsafe.Sizeof(zero)) {
		table[i] = zero
	}
	return table
}

// memory returns the size of the tables in bytes.
func (d *diagrams) memory() int64 {
	return int64(len(d.numbers))*(nodeSize/2+numberSize) + int64(len(d.results))*resultSize +
		int64(len(d.projected))*projectionSize
}

// hash returns a hash of three numbers.
func hash(a, b, c uint32) uint32 {
	h := (uint64(a)*0x9e3779b97f4a7c15 ^ uint64(b)) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>29 ^ uint64(c)) * 0x94d049bb133111eb
	return uint32(h >> 32)
}

// node returns the set of the packets that are in yes if the bit is 1, and in no if it is 0.
func (d *diagrams) node(bit uint32, no, yes set) set {
	if no == yes {
		return no
	}
	d.meter.step()
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

// grow doubles the tables. The old tables become garbage, for which liveShare leaves memory: their
// size is at most half of the size of the new tables.
func (d *diagrams) grow() {
	size := 2 * len(d.numbers)
	d.meter.alloc(int64(size/2) * (nodeSize/2 + numberSize))
	d.nodes = append(make([]node, 0, size/2+1), d.nodes...)
	d.numbers = newTable[set](size)
	if len(d.results) < maxResults {
		d.meter.alloc(int64(len(d.results)) * resultSize)
		d.results = newTable[result](2 * len(d.results))
	}
	mask := uint32(size - 1)
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

// or returns the packets that are in at least one of the sets.
func (d *diagrams) or(a, b set) set { return d.apply(opOr, a, b) }

// minus returns the packets of a that are not in b.
func (d *diagrams) minus(a, b set) set { return d.apply(opMinus, a, b) }

// not returns the packets that are not in the set.
func (d *diagrams) not(a set) set { return d.apply(opMinus, all, a) }

// ifElse returns the packets in yes that meet the condition, and the packets in no that do not.
func (d *diagrams) ifElse(condition, yes, no set) set {
	switch {
	case condition == all || yes == no:
		return yes
	case condition == none:
		return no
	case no == none:
		return d.and(condition, yes)
	case yes == none:
		return d.minus(no, condition)
	case yes == all:
		return d.or(condition, no)
	}
	d.meter.step()
	i := hash(uint32(condition), uint32(yes), uint32(no)*8+uint32(opIfElse))
	if r := &d.results[i&uint32(len(d.results)-1)]; r.op == opIfElse && r.a == condition &&
		r.b == yes && r.c == no {
		return r.value
	}
	bit := min(d.nodes[condition].bit, d.nodes[yes].bit, d.nodes[no].bit)
	conditionNo, conditionYes := d.successors(condition, bit)
	yesNo, yesYes := d.successors(yes, bit)
	noNo, noYes := d.successors(no, bit)
	lower := d.ifElse(conditionNo, yesNo, noNo)
	combined := d.node(bit, lower, d.ifElse(conditionYes, yesYes, noYes))
	d.results[i&uint32(len(d.results)-1)] = result{opIfElse, condition, yes, no, combined}
	return combined
}

// successors returns the successors of a set for a bit, which must not be after the bit of the
// set's node.
func (d *diagrams) successors(s set, bit uint32) (no, yes set) {
	if n := d.nodes[s]; n.bit == bit {
		return n.no, n.yes
	}
	return s, s
}

// xor returns the packets that are in exactly one of the sets.
func (d *diagrams) xor(a, b set) set { return d.apply(opXor, a, b) }

// intersects reports whether the sets intersect. It creates no nodes.
func (d *diagrams) intersects(a, b set) bool {
	switch {
	case a == none || b == none:
		return false
	case a == all || b == all || a == b:
		return true
	}
	if a > b {
		a, b = b, a
	}
	d.meter.step()
	i := hash(uint32(a), uint32(b), uint32(opDisjoint))
	if r := &d.results[i&uint32(len(d.results)-1)]; r.op == opDisjoint && r.a == a && r.b == b {
		return false
	}
	x, y := d.nodes[a], d.nodes[b]
	bit := min(x.bit, y.bit)
	if x.bit != bit {
		x.no, x.yes = a, a
	}
	if y.bit != bit {
		y.no, y.yes = b, b
	}
	if d.intersects(x.no, y.no) || d.intersects(x.yes, y.yes) {
		return true
	}
	d.results[i&uint32(len(d.results)-1)] = result{opDisjoint, a, b, none, none}
	return false
}

// unite returns the union of the sets. It unites each half first, so that intermediate results are
// small.
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

// apply computes an operation recursively from the root nodes.
func (d *diagrams) apply(op operation, a, b set) set {
	if combined, known := trivialResult(op, a, b); known {
		return combined
	}
	if op != opMinus && a > b {
		a, b = b, a
	}
	d.meter.step()
	i := hash(uint32(a), uint32(b), uint32(op))
	if r := &d.results[i&uint32(len(d.results)-1)]; r.op == op && r.a == a && r.b == b {
		return r.value
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
	combined := d.node(bit, no, d.apply(op, x.yes, y.yes))
	// The recursion may have replaced the tables.
	d.results[i&uint32(len(d.results)-1)] = result{op, a, b, none, combined}
	return combined
}

// trivialResult returns the results that follow from terminal or equal operands.
func trivialResult(op operation, a, b set) (value set, known bool) {
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
	case opXor:
		switch {
		case a == b:
			return none, true
		case a == none:
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

package diff

import "unsafe"

// A set is a set of packets: twice the number of its root node in the decision diagrams, plus 1 if
// the set is the complement of the node's set. Equal sets have equal numbers.
type set uint32

// The sets of no packets and of all packets: the terminal node, and its complement.
const (
	none set = 0
	all  set = 1
)

// complemented is the lowest bit of a set's number. It is 1 if the set is the complement of its
// node's set.
const complemented set = 1

// index returns the number of the root node.
func (s set) index() uint32 { return uint32(s >> 1) }

// A node is an inner node of a reduced ordered binary decision diagram with complemented edges: it
// tests a bit of the packet and has a set for each value of the bit. The bits on every path from
// the root ascend, no node has two equal successors, and the successor no is never complemented.
// Therefore equal sets have the same root node.
type node struct {
	bit     uint32
	no, yes set
}

// lastBit is the bit number of the terminal node. It is higher than the numbers of all bits of
// packets and variables.
const lastBit = ^uint32(0)

// diagrams contain all nodes of a space, or of several spaces that share them. Nodes are never
// removed, because a decision is short.
type diagrams struct {
	nodes []node
	// uniqueTable is a hash table from the content of a node to its set, with open addressing and a
	// length that is a power of two. It ensures that equal nodes are not stored twice.
	uniqueTable []set
	// results caches the results of recent operations. An overwritten entry is computed again.
	results []result
	// projected caches the result of the current call of project for each set, or contains the sets
	// that the current call of support has visited. round is the number of the current call.
	projected []projection
	round     uint32
	meter     *meter
}

// A result is the result of ifElse for three sets. The operation and(a, b) is stored as
// ifElse(a, b, none). In an empty entry, condition is none.
type result struct {
	condition, yes, no set
	value              set
}

// The initial lengths of the tables, for all packets and for a single packet.
const (
	initialSize         = 1 << 14
	initialSizeOfSingle = 1 << 4
)

// The table of results has a quarter of the length of the unique table, but at most maxResults
// elements. A longer table makes a short decision slower, because the kernel must provide its
// memory pages.
const (
	resultDivisor = 4
	maxResults    = 1 << 18
)

// Sizes of the elements of the tables in bytes. The table of nodes has half as many elements as the
// unique table.
const (
	nodeSize       = 12
	setSize        = 4
	resultSize     = 16
	projectionSize = 8
)

func newDiagrams(size int, m *meter) *diagrams {
	d := &diagrams{
		uniqueTable: newTable[set](size), results: newTable[result](size / resultDivisor), meter: m,
	}
	m.alloc(d.memory())
	d.nodes = append(make([]node, 0, size/2+1), node{bit: lastBit})
	return d
}

// newTable returns a table whose elements are zero, after a write to each of its memory pages.
// Without this write, the first access to most pages would be a read, for which the kernel maps a
// shared page. The first write to the page would then cause a second page fault. These faults would
// take a tenth of the time of a short decision.
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
	return int64(len(d.uniqueTable))*(nodeSize/2+setSize) + int64(len(d.results))*resultSize +
		int64(len(d.projected))*projectionSize
}

// hash returns a hash of three numbers.
func hash(a, b, c uint32) uint32 {
	h := (uint64(a)*0x9e3779b97f4a7c15 ^ uint64(b)) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>29 ^ uint64(c)) * 0x94d049bb133111eb
	return uint32(h >> 32)
}

// root returns the root node of a set, with the successors of the set.
func (d *diagrams) root(s set) node {
	n := d.nodes[s.index()]
	n.no ^= s & complemented
	n.yes ^= s & complemented
	return n
}

// node returns the set of the packets that are in yes if the bit is 1, and in no if it is 0.
func (d *diagrams) node(bit uint32, no, yes set) set {
	if no == yes {
		return no
	}
	d.meter.step()
	complement := no & complemented
	no, yes = no^complement, yes^complement
	mask := uint32(len(d.uniqueTable) - 1)
	i := hash(bit, uint32(no), uint32(yes)) & mask
	for ; d.uniqueTable[i] != none; i = (i + 1) & mask {
		if n := d.nodes[d.uniqueTable[i].index()]; n.bit == bit && n.no == no && n.yes == yes {
			return d.uniqueTable[i] ^ complement
		}
	}
	s := set(len(d.nodes)) << 1
	d.nodes = append(d.nodes, node{bit, no, yes})
	d.uniqueTable[i] = s
	if 2*len(d.nodes) > len(d.uniqueTable) {
		d.grow()
	}
	return s ^ complement
}

// grow doubles the tables. The old tables become garbage, for which memoryRatio leaves memory: the
// old tables have at most half the size of the new ones.
func (d *diagrams) grow() {
	size := 2 * len(d.uniqueTable)
	d.meter.alloc(int64(size/2) * (nodeSize/2 + setSize))
	d.nodes = append(make([]node, 0, size/2+1), d.nodes...)
	d.uniqueTable = newTable[set](size)
	if len(d.results) < maxResults {
		d.meter.alloc(int64(len(d.results)) * resultSize)
		d.results = newTable[result](2 * len(d.results))
	}
	mask := uint32(size - 1)
	for index, n := range d.nodes[1:] {
		i := hash(n.bit, uint32(n.no), uint32(n.yes)) & mask
		for d.uniqueTable[i] != none {
			i = (i + 1) & mask
		}
		d.uniqueTable[i] = set(index+1) << 1
	}
}

// not returns the packets that are not in the set.
func (d *diagrams) not(a set) set { return a ^ complemented }

// or returns the packets that are in at least one of the sets.
func (d *diagrams) or(a, b set) set { return d.not(d.and(d.not(a), d.not(b))) }

// minus returns the packets of a that are not in b.
func (d *diagrams) minus(a, b set) set { return d.and(a, d.not(b)) }

// implies returns the packets that are in b or not in a.
func (d *diagrams) implies(a, b set) set { return d.not(d.minus(a, b)) }

// xor returns the packets that are in exactly one of the sets.
func (d *diagrams) xor(a, b set) set { return d.ifElse(a, d.not(b), b) }

// and returns the packets that are in both sets.
func (d *diagrams) and(a, b set) set {
	if combined, known := trivialAnd(a, b); known {
		return combined
	}
	if a > b {
		a, b = b, a
	}
	d.meter.step()
	if r := d.resultEntry(a, b, none); r.condition == a && r.yes == b && r.no == none {
		return r.value
	}
	bit := min(d.rootBit(a), d.rootBit(b))
	aNo, aYes := d.successors(a, bit)
	bNo, bYes := d.successors(b, bit)
	no := d.and(aNo, bNo)
	combined := d.node(bit, no, d.and(aYes, bYes))
	// The recursion may have replaced the tables.
	*d.resultEntry(a, b, none) = result{a, b, none, combined}
	return combined
}

// trivialAnd returns the intersection of two sets that are equal or complementary, or of which one
// is none or all. For other sets, known is false.
func trivialAnd(a, b set) (combined set, known bool) {
	switch {
	case a == b || b == all:
		return a, true
	case a == all:
		return b, true
	case a == none || b == none || a == b^complemented:
		return none, true
	}
	return none, false
}

// resultEntry returns the entry of the table results for three sets. The entry may contain the
// result for other sets.
func (d *diagrams) resultEntry(condition, yes, no set) *result {
	i := hash(uint32(condition), uint32(yes), uint32(no))
	return &d.results[i&uint32(len(d.results)-1)]
}

// ifElse returns the packets in yes that meet the condition, and the packets in no that do not.
func (d *diagrams) ifElse(condition, yes, no set) set {
	// ifElse(a, b, c) is equal to ifElse(not a, c, b), and is the complement of
	// ifElse(a, not b, not c). Compute the variant in which neither condition nor no is
	// complemented.
	if condition&complemented != 0 {
		condition, yes, no = d.not(condition), no, yes
	}
	complement := no & complemented
	yes, no = yes^complement, no^complement
	switch {
	case condition == none || yes == no:
		return no ^ complement
	case no == none:
		return d.and(condition, yes) ^ complement
	case yes == none:
		return d.minus(no, condition) ^ complement
	case yes == all:
		return d.or(condition, no) ^ complement
	}
	d.meter.step()
	if r := d.resultEntry(condition, yes, no); r.condition == condition && r.yes == yes && r.no == no {
		return r.value ^ complement
	}
	bit := min(d.rootBit(condition), d.rootBit(yes), d.rootBit(no))
	conditionNo, conditionYes := d.successors(condition, bit)
	yesNo, yesYes := d.successors(yes, bit)
	noNo, noYes := d.successors(no, bit)
	lower := d.ifElse(conditionNo, yesNo, noNo)
	combined := d.node(bit, lower, d.ifElse(conditionYes, yesYes, noYes))
	*d.resultEntry(condition, yes, no) = result{condition, yes, no, combined}
	return combined ^ complement
}

// rootBit returns the bit of the root node of a set.
func (d *diagrams) rootBit(s set) uint32 { return d.nodes[s.index()].bit }

// successors returns the successors of a set for a bit, which must not be after the bit of the
// set's root node.
func (d *diagrams) successors(s set, bit uint32) (no, yes set) {
	if n := d.root(s); n.bit == bit {
		return n.no, n.yes
	}
	return s, s
}

// intersects reports whether the sets intersect. It creates no nodes.
func (d *diagrams) intersects(a, b set) bool {
	if combined, known := trivialAnd(a, b); known {
		return combined != none
	}
	if a > b {
		a, b = b, a
	}
	d.meter.step()
	if r := d.resultEntry(a, b, none); r.condition == a && r.yes == b && r.no == none {
		return r.value != none
	}
	bit := min(d.rootBit(a), d.rootBit(b))
	aNo, aYes := d.successors(a, bit)
	bNo, bYes := d.successors(b, bit)
	if d.intersects(aNo, bNo) || d.intersects(aYes, bYes) {
		return true
	}
	*d.resultEntry(a, b, none) = result{a, b, none, none}
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

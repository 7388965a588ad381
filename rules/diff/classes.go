package diff

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// describeClasses describes the differences, unless the budget is already exhausted. If the budget
// is exhausted meanwhile, the result contains the classes so far, and More is set. If there are
// none so far, Exhausted is set too.
func (d *decision) describeClasses() {
	if d.result.Exhausted != "" {
		return
	}
	limit := runLimited(d.addClasses)
	d.result.More = d.result.More || limit != ""
	if len(d.result.Classes) == 0 {
		d.result.Exhausted = limit
	}
	sortClasses(d.result.Classes)
}

// addClasses describes at most MaxClasses classes of the differences, known deviations last. It
// takes a class from each difference in turn, so that a difference with many classes does not hide
// the other differences.
func (d *decision) addClasses() {
	for _, isKnown := range []bool{false, true} {
		for more := true; more; {
			more = false
			for _, p := range d.spaces {
				for i := range p.differences {
					from := &p.differences[i]
					if (len(from.deviations) > 0) != isKnown || !p.anyPossible(from.packets) {
						continue
					}
					if len(d.result.Classes) == d.options.MaxClasses {
						d.result.More = true
						return
					}
					more = true
					d.result.Classes = append(d.result.Classes, d.takeClass(p.space, from))
				}
			}
		}
	}
}

// sortClasses sorts classes by the lengths of their descriptions, known deviations last.
func sortClasses(classes []Class) {
	slices.SortStableFunc(classes, func(a, b Class) int {
		return cmp.Or(cmp.Compare(min(len(a.Deviations), 1), min(len(b.Deviations), 1)),
			cmp.Compare(a.size(), b.size()))
	})
}

// size returns the approximate length of the description of a class: ten bytes for the name of each
// field, and the length of its values.
func (c *Class) size() int {
	size := 0
	for _, condition := range c.Packets {
		size += 10 + len(condition.Values)
	}
	return size
}

// takeClass removes the packets of one class from a difference, and returns that class.
func (d *decision) takeClass(s *space, from *difference) Class {
	chosen, packets := s.choose(from.packets), from.packets
	example := s.exampleBox(chosen, packets)
	box := s.widen(example, chosen, from.describable)
	taken := box.packets(s)
	from.packets, from.describable = s.minus(from.packets, taken), s.minus(from.describable, taken)
	witness := s.packet(chosen)
	s.clearIrrelevantFields(&witness, example, packets, &box)
	if box.fields[status] == all {
		witness.Status &= rules.StatusConfirmed | rules.StatusSeenReply
	}
	s.setHostFields(example, &witness)
	// The packet has no fields for the translation of earlier packets of its connection.
	var translated *translation
	dependsOnTranslation := box.fields[newDestination] != all || box.fields[newPort] != all
	if (s.given[toHostKey] || dependsOnTranslation) && s.retranslated() != none {
		witness.Status |= rules.Status(chosen[status].low) & (rules.StatusSNAT | rules.StatusDNAT)
		translated = &translation{chosen[newDestination], chosen[newPort]}
	}
	class := Class{
		Packets: s.describe(box), Witness: witness, Deviations: from.deviations, space: s, box: box,
		entersUntracked: s.entersUntracked(), sentByKernel: s.or(s.resets, s.hasKernelSocket),
		retranslated: s.retranslated(),
	}
	class.redirects = from.left.target.kind == redirectTarget ||
		from.right.target.kind == redirectTarget
	class.Outcome = d.explainSides(s, example, class.Witness, translated)
	return class
}

// setHostFields sets the fields of the witness that describe the host.
func (s *space) setHostFields(b box, p *rules.Packet) {
	var missing []string // names of listeners
	for _, l := range b.literals {
		switch key := s.variableList[l.variable].key; {
		case strings.HasPrefix(key, reversePathKey):
			p.NoReversePath = !l.value
		case strings.HasPrefix(key, socketKey):
			p.TransparentSocket = l.value
		case key == senderKey:
			p.TransparentSender = l.value
		case key == boundKey:
			p.Bound = l.value
		case key == selectsKey:
			p.SelectsInterface = l.value
		case strings.HasPrefix(key, listenerKey) && l.value:
			missing = append(missing, strings.TrimPrefix(key, listenerKey))
		case key == copyKey:
			p.Copy = l.value
		case key == toItselfKey && l.value:
			p.InAddress = p.Destination.Addr()
		case key == toItselfKey && (!p.InAddress.IsValid() || p.InAddress == p.Destination.Addr()):
			p.InAddress = p.Destination.Addr().Next()
		}
	}
	p.MissingListeners = rules.NewListenerSet(missing...)
}

// clearIrrelevantFields clears each field of an example that describes the host and does not
// matter: with any value of the field, the packet is in the set and in the class. class may be nil.
func (s *space) clearIrrelevantFields(p *rules.Packet, example box, packets set, class *box) {
	isIrrelevant := func(f field) bool {
		wider := example
		wider.fields[f] = all
		return (class == nil || class.fields[f] == all) && s.isWithin(&wider, packets)
	}
	if isIrrelevant(destinationType) {
		p.DestinationType = rules.AddrTypeUnknown
	}
	if isIrrelevant(sourceType) {
		p.SourceType = rules.AddrTypeUnknown
	}
	if isIrrelevant(inAddress) {
		p.InAddress = netip.Addr{}
	}
}

// A box is a set of packets described by one condition for each field and for some variables.
type box struct {
	fields [fieldCount]set
	// literals are the conditions on variables.
	literals []literal
}

// A literal is a variable, identified by its position in the list of variables, with a value.
type literal struct {
	variable int
	value    bool
}

// packets returns the packets that meet all conditions.
func (b *box) packets(s *space) set {
	packets := all
	for _, l := range b.literals {
		packets = s.and(packets, s.literal(l))
	}
	for f := fieldCount; f > 0; f-- {
		packets = s.and(packets, b.fields[f-1])
	}
	return packets
}

// literal returns the packets for which the variable has the value.
func (s *space) literal(l literal) set {
	return s.negateIf(!l.value, s.node(variableBit(l.variable), none, all))
}

// widenOrder is the order in which conditions are dropped: first the least important for a reader.
// Addresses are last, when few conditions are left, because their sets are large.
var widenOrder = []field{
	newPort, newDestination, sourcePort, connectionMark, mark, flags, noListener, inAddress,
	sourceType, destinationType, icmp, status, reply, group, user, iface,
	destinationPort, protocol, state, source, destination,
}

// exampleBox returns a box with the chosen values of the fields. All possible packets of the box
// are in the set; without any one of its literals, the box would contain other possible packets.
func (s *space) exampleBox(chosen [fieldCount]value, packets set) box {
	var b box
	for f := range fieldCount {
		if b.fields[f] = all; !isUnknownMark(f) {
			b.fields[f] = s.is(f, chosen[f])
		}
	}
	b.literals = s.literals(s.and(packets, b.packets(s)))
	return s.withoutNeedlessLiterals(b, packets)
}

// withoutNeedlessLiterals drops literals from a box as long as all possible packets of the box are
// allowed.
func (s *space) withoutNeedlessLiterals(b box, allowed set) box {
	for i := 0; i < len(b.literals); {
		fewer := b
		fewer.literals = slices.Delete(slices.Clone(b.literals), i, i+1)
		if s.isWithin(&fewer, allowed) {
			b = fewer
			continue
		}
		i++
	}
	return b
}

// outside returns the packets of the box that are not allowed, and that are possible, at least in
// another state.
func (s *space) outside(b *box, allowed set) set {
	s.possible() // sets describedDomain
	return s.and(s.minus(b.packets(s), allowed), s.describedDomain)
}

// isWithin reports whether all possible packets of the box are allowed.
func (s *space) isWithin(b *box, allowed set) bool { return s.outside(b, allowed) == none }

// widen returns a box that contains the example, and whose possible packets are all allowed. Every
// condition is necessary: without it, the box would contain a possible packet that is not allowed.
// chosen contains the values of the fields of the example.
func (s *space) widen(example box, chosen [fieldCount]value, allowed set) box {
	b := s.withoutNeedlessLiterals(example, allowed)
	for _, f := range widenOrder {
		b.fields[f] = all
		forbidden := s.projectToField(s.outside(&b, allowed), f)
		b.fields[f] = s.not(forbidden)
		if isBits(f) {
			b.fields[f] = s.shortCondition(f, uint32(chosen[f].low), b.fields[f])
		}
	}
	return b
}

// literals returns variables on which a set of packets depends, with values for which the set is
// not empty: the variables on one path through the diagram of the set.
func (s *space) literals(packets set) []literal {
	var found []literal
	for packets != none && packets != all {
		n := s.root(packets)
		i, isVariable := s.variableOf(n.bit)
		l := literal{variable: i, value: n.no == none}
		packets = n.no
		if l.value {
			packets = n.yes
		}
		if isVariable {
			found = append(found, l)
		}
	}
	slices.Reverse(found)
	return found
}

// projectToField returns the packets with a value of the field that some packet of the set has.
func (s *space) projectToField(packets set, f field) set {
	return s.project(packets, func(bit uint32) bool {
		return int(bit) < len(s.fieldOf) && s.fieldOf[bit] == f
	})
}

// isBits reports whether the bits of the field have separate meanings, so that a description lists
// bits and not ranges of numbers.
func isBits(f field) bool { return f == mark || f == connectionMark || f == flags || f == status }

// shortCondition returns the set of values if its description is short. Otherwise it returns a
// subset with a short description: all values with certain bits of v, which is a value of the set.
func (s *space) shortCondition(f field, v uint32, values set) set {
	for _, described := range []set{values, s.not(values)} {
		if _, _, ok := s.pattern(f, described); ok || s.isFew(f, described) {
			return values
		}
	}
	mask := ^uint32(0) >> (32 - len(s.bits[f]))
	for i := range len(s.bits[f]) {
		fewer := mask &^ (1 << i)
		if wider := s.maskedEquals(f, v&fewer, fewer); s.minus(wider, values) == none {
			mask = fewer
		}
	}
	return s.maskedEquals(f, v&mask, mask)
}

// isFew reports whether the set contains at most maxListed values.
func (s *space) isFew(f field, values set) bool {
	return len(s.firstValues(f, values, maxListed+1)) <= maxListed
}

// firstValues returns the first values of a set that depends only on the field, at most limit of
// them.
func (s *space) firstValues(f field, values set, limit int) []uint32 {
	var found []uint32
	for _, v := range s.firstSpans(f, values, limit) {
		for n := v.first.low; n <= v.last.low && len(found) < limit; n++ {
			found = append(found, uint32(n))
		}
	}
	return found
}

// pattern returns the bits that all values of the set have in common, if the set consists of all
// values with these bits.
func (s *space) pattern(f field, values set) (v, mask uint32, ok bool) {
	if values == none {
		return 0, 0, false
	}
	bits := s.bits[f]
	for i, bit := range bits {
		valueBit := uint32(1) << (len(bits) - 1 - i)
		n := s.root(values)
		if values == all || n.bit != bit {
			continue
		}
		mask |= valueBit
		switch none {
		case n.no:
			v |= valueBit
			values = n.yes
		case n.yes:
			values = n.no
		default:
			return 0, 0, false
		}
	}
	return v, mask, true
}

// explainSides returns the outcome of each side for a packet of a box, with the rule or the reason
// that determined the outcome.
func (d *decision) explainSides(
	s *space, b box, p rules.Packet, translated *translation,
) Pair[SideOutcome] {
	given := map[string]bool{}
	for _, l := range b.literals {
		given[s.variableList[l.variable].key] = l.value
	}
	if s.given[toHostKey] && translated != nil {
		given[toHostKey] = true
	}
	known := assumptions{given: given, shared: d.shared, meter: d.meter, translated: translated}
	known.side = leftSide
	left, leftIfNoneTrue := explain(d.sides.Left, p, known)
	known.side = rightSide
	right, rightIfNoneTrue := explain(d.sides.Right, p, known)
	part := differingPart(left.Outcome, right.Outcome)
	outcomes := Pair[SideOutcome]{
		Left:  sideOutcome(d.sides.Left, left, part),
		Right: sideOutcome(d.sides.Right, right, part),
	}
	if left.Outcome.Undecided != "" && right.Outcome.Undecided != "" {
		outcomes.Left.IfNoneTrue, outcomes.Right.IfNoneTrue = &leftIfNoneTrue, &rightIfNoneTrue
	}
	return outcomes
}

package nft

import (
	"bytes"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// values contains the values that an operand is compared with. If the values are the keys of a set,
// their decoded form is cached in the set.
type values struct {
	keys []keyInterval
	set  *decodedSet
	name string // the name of the set, empty if it is anonymous
}

func singleInterval(first, last []byte) values { return values{keys: []keyInterval{{first, last}}} }

// String returns the values in nft's syntax.
func (v values) String() string {
	switch {
	case v.name != "":
		return "@" + v.name
	case v.set != nil:
		return fmt.Sprintf("{ %d elements }", v.set.size())
	case len(v.keys) == 1:
		return rangeText(v.keys[0])
	}
	return "{}"
}

// decodeCompare adds a match that compares a register with a constant. It combines the two
// comparisons of an interval into one match.
func (d *ruleDecoder) decodeCompare(a attributes) error {
	op, value := d.load(a, unix.NFTA_CMP_SREG), constantValue(a, unix.NFTA_CMP_DATA)
	if len(value) == 0 {
		return errUnsupported
	}
	lowest, highest := make([]byte, len(value)), bytes.Repeat([]byte{0xff}, len(value))
	switch kind := a.Number(unix.NFTA_CMP_OP); kind {
	case unix.NFT_CMP_EQ, unix.NFT_CMP_NEQ:
		d.addComparison(op, kind == unix.NFT_CMP_NEQ, singleInterval(value, value))
		return nil
	case unix.NFT_CMP_GTE:
		compared := op
		r := registerIndex(a, unix.NFTA_CMP_SREG)
		d.lowerBound = lowerBound{isOpen: true, register: r, op: &compared, value: value}
		return nil
	case unix.NFT_CMP_LTE:
		if d.lowerBound.isOpen {
			lowest = d.lowerBound.value
			d.lowerBound = lowerBound{}
		}
		d.addComparison(op, false, singleInterval(lowest, value))
		return nil
	case unix.NFT_CMP_GT:
		lower := slices.Clone(value)
		if increment(lower); bytes.Compare(lower, value) > 0 {
			d.addComparison(op, false, singleInterval(lower, highest))
			return nil
		}
	case unix.NFT_CMP_LT:
		upper := slices.Clone(value)
		if decrement(upper); bytes.Compare(upper, value) < 0 {
			d.addComparison(op, false, singleInterval(lowest, upper))
			return nil
		}
	}
	return errUnsupported
}

// decodeCompareRange adds a match that compares a register with an interval.
func (d *ruleDecoder) decodeCompareRange(a attributes) error {
	first := constantValue(a, unix.NFTA_RANGE_FROM_DATA)
	last := constantValue(a, unix.NFTA_RANGE_TO_DATA)
	if len(first) == 0 || len(first) != len(last) {
		return errUnsupported
	}
	d.addComparison(d.load(a, unix.NFTA_RANGE_SREG),
		a.Number(unix.NFTA_RANGE_OP) == unix.NFT_RANGE_NEQ,
		singleInterval(first, last))
	return nil
}

// A lowerBound is the comparison of a register with the lower bound of an interval. It is open
// until the next expression, which may compare the register with the upper bound.
type lowerBound struct {
	isOpen   bool
	register int
	op       *operand
	value    []byte
}

// isContinuedBy reports whether an expression compares the same register with an upper bound.
func (b lowerBound) isContinuedBy(name string, a attributes) bool {
	return b.isOpen && name == "cmp" && a.Number(unix.NFTA_CMP_OP) == unix.NFT_CMP_LTE &&
		registerIndex(a, unix.NFTA_CMP_SREG) == b.register &&
		len(constantValue(a, unix.NFTA_CMP_DATA)) == len(b.value)
}

// closeLowerBound adds a match for an open lower bound. The interval of this match has no upper
// bound.
func (d *ruleDecoder) closeLowerBound() {
	b := d.lowerBound
	if !b.isOpen {
		return
	}
	d.lowerBound = lowerBound{}
	d.addComparison(*b.op, false, singleInterval(b.value, bytes.Repeat([]byte{0xff}, len(b.value))))
}

// addComparison adds a match that compares an operand with values, or an unknown condition if the
// model cannot represent it.
func (d *ruleDecoder) addComparison(op operand, negated bool, v values) {
	matches, err := d.comparisonMatches(op, negated, v)
	if err != nil {
		if length, ok := keyLength(v.keys); ok && length > op.length {
			op.noData = true // the comparison includes registers after the operand
		}
		d.addUnknownCondition([]operand{op}, negated, v)
		return
	}
	d.clearPending(op)
	for _, m := range matches {
		d.addMatch(m)
	}
}

// addMatch adds a match, and records the family and the protocols to which it limits the rule.
func (d *ruleDecoder) addMatch(m rules.Match) {
	if f, ok := m.(rules.MatchFamily); ok && d.hasActed && f.Family == d.family {
		return // redundant: the family is known and never changes
	}
	d.limitBy(m)
	if port, ok := m.(rules.MatchPort); ok {
		d.addPort(port)
		return
	}
	d.addCondition(m)
}

// addUnknownCondition adds the comparison of the operands with values as an unknown condition.
func (d *ruleDecoder) addUnknownCondition(ops []operand, negated bool, v values) {
	combined := operand{effect: rules.Reads} // an operand that depends on all operands
	text := combined.dependOnAll(ops)
	data := combined.data
	if len(ops) == 1 && ops[0].isIndex() && isLoopback(v.keys) {
		data = "" // each namespace has the same index for lo
	}
	if v.set != nil {
		id := v.set.identity()
		combined.noData = combined.noData || id == rules.NoData
		data += id
	}
	if combined.noData || len(ops) == 0 {
		data = rules.NoData
	}
	if combined.effect == rules.ReadsVarying {
		if data != rules.NoData {
			data = d.precondition(data)
		}
		if !varies(ops, v) {
			combined.effect = rules.ReadsHistory
		}
	}
	d.clearPending(ops...)
	d.addUnknown(conditionText(text, v.String(), negated), combined.effect, data)
}

// varies reports whether a comparison of a random number is true for some numbers and false for
// others.
func varies(ops []operand, v values) bool {
	if !isNumber(ops) {
		return false
	}
	n, _, ok := ops[0].countNumbers(v.keys)
	return ok && 0 < n && n < uint64(ops[0].modulus)
}

// comparisonMatches returns the conditions that an operand equals one of the values or, if negated,
// none of the values. There are several conditions if the operand consists of several fields or of
// several status bits.
func (d *ruleDecoder) comparisonMatches(op operand, negated bool, v values) ([]rules.Match, error) {
	length, ok := cached(v, operand{text: "length"}, keyLength)
	if !ok || length > op.length {
		return nil, errUnsupported
	}
	if op.mask != nil {
		return d.maskedMatches(op, negated, v.keys)
	}
	m, ok := d.unmaskedMatch(op, negated, v)
	switch {
	case ok:
		return []rules.Match{m}, nil
	case op.field == fieldPorts && !negated:
		if ports, ok := singleKey(v.keys, 4); ok {
			source, _ := networkNumber[uint16](ports[:2])
			destination, _ := networkNumber[uint16](ports[2:])
			return []rules.Match{
				rules.MatchPort{Side: rules.Source, Ports: rules.Singles(source)},
				rules.MatchPort{Side: rules.Destination, Ports: rules.Singles(destination)},
			}, nil
		}
	}
	return nil, errUnsupported
}

// keyLength returns the common length of all keys. It returns false if there are no keys, or if
// their lengths differ.
func keyLength(keys []keyInterval) (int, bool) {
	if len(keys) == 0 || len(keys[0].first) == 0 {
		return 0, false
	}
	length := len(keys[0].first)
	differs := func(key keyInterval) bool {
		return len(key.first) != length || len(key.last) != length
	}
	return length, !slices.ContainsFunc(keys, differs)
}

func isSingle(key keyInterval) bool { return bytes.Equal(key.first, key.last) }

// singleKey returns the only key. It returns false unless there is exactly one key, it is a single
// value, and it has the given length.
func singleKey(keys []keyInterval, length int) ([]byte, bool) {
	if len(keys) != 1 || len(keys[0].first) != length || !isSingle(keys[0]) {
		return nil, false
	}
	return keys[0].first, true
}

// unmaskedMatch returns the condition that an operand without a mask equals one of the values or,
// if negated, none of the values. It returns false if the model does not support the condition.
func (d *ruleDecoder) unmaskedMatch(op operand, negated bool, v values) (rules.Match, bool) {
	switch op.field {
	case fieldIn, fieldOut:
		names, ok := cached(v, op, interfaceNames)
		return rules.MatchInterface{Out: op.field == fieldOut, Not: negated, Names: names}, ok
	case fieldInIndex, fieldOutIndex:
		return rules.MatchInterface{
			Out: op.field == fieldOutIndex, Not: negated,
			Names: []rules.InterfaceName{{Name: "lo"}},
		}, isLoopback(v.keys)
	case fieldFamily:
		f, ok := familyKey(v.keys, negated)
		return rules.MatchFamily{Family: f}, ok
	case fieldProtocol:
		protocols, ok := cached(v, op, protocolKeys)
		return rules.MatchProtocol{Not: negated, Protocols: protocols}, ok
	case fieldSource, fieldDestination:
		return addrMatch(d.family, op.field, negated, v)
	case fieldSourcePort, fieldDestinationPort:
		if !op.hasPorts {
			return nil, false
		}
		ports, ok := cached(v, op, func(keys []keyInterval) ([]rules.PortRange, bool) {
			return numberRanges(keys, networkNumber[uint16])
		})
		return rules.MatchPort{Side: fieldSide(op.field), Not: negated, Ports: ports}, ok
	case fieldTCPFlags:
		if flags, ok := singleKey(v.keys, 1); ok {
			return rules.MatchTCPFlags{Not: negated, Mask: 0xff, Value: rules.TCPFlags(flags[0])}, true
		}
	case fieldICMPType, fieldICMPCode, fieldICMPTypeCode:
		if op.field == fieldICMPCode && !d.spend(len(v.keys)<<8) { // one range for each type
			return nil, false
		}
		icmp, ok := cached(v, op, op.icmpRanges)
		return rules.MatchICMP{V6: op.ipv6, Not: negated, Values: icmp}, ok
	case fieldUID, fieldGID:
		ids, ok := cached(v, op, op.hostRanges)
		return rules.MatchOwner{Group: op.field == fieldGID, Not: negated, IDs: ids}, ok
	case fieldState:
		states, ok := statesIn(v.keys)
		return stateMatch(negated, states), ok
	case fieldMark, fieldConntrackMark:
		marks, ok := cached(v, op, op.hostRanges)
		if ok && len(marks) == 1 && marks[0].IsSingle() {
			return rules.MatchMark{
				Conntrack: op.field == fieldConntrackMark, Not: negated,
				Value: marks[0].First, Mask: ^uint32(0),
			}, true
		}
		return rules.MatchMarkRange{
			Conntrack: op.field == fieldConntrackMark, Not: negated, Values: marks,
		}, ok
	case fieldDirection:
		reply, ok := directionKey(v.keys)
		return rules.MatchDirection{Reply: reply != negated}, ok
	case fieldSourceType, fieldDestinationType:
		types, ok := addrTypes(v.keys)
		return rules.MatchAddrType{Side: fieldSide(op.field), Not: negated, Types: types}, ok
	case fieldReversePath, fieldReversePathIndex:
		missing, ok := missingPath(op.field, v.keys)
		return rules.MatchReversePath{Not: missing != negated, Kind: string(op.constant)}, ok
	case fieldCgroup:
		// A socket in a cgroup above the level matches neither the comparison nor the negated one.
		id, ok := cgroupKey(v.keys)
		return rules.MatchCgroup{Level: op.constant[0], ID: id}, ok && !negated
	case fieldTransparentSocket:
		// The model cannot represent a packet whose socket is not transparent.
		flag, ok := singleKey(v.keys, 1)
		return rules.MatchSocket{Kind: rules.NFTSocket}, ok &&
			(flag[0] == 1 && !negated || flag[0] == 0 && negated)
	}
	return nil, false
}

// maxJoinedPorts bounds the number of port ranges in a combined match, because addPort copies all
// ranges for each port that it adds.
const maxJoinedPorts = 64

// addPort adds a port match. It combines negated matches of the same side.
func (d *ruleDecoder) addPort(m rules.MatchPort) {
	if !d.hasActed && m.Not {
		for i, other := range d.rule.Matches {
			o, ok := other.(rules.MatchPort)
			if ok && o.Not && o.Side == m.Side && len(o.Ports)+len(m.Ports) <= maxJoinedPorts {
				o.Ports = rules.Normalize(slices.Concat(o.Ports, m.Ports))
				d.rule.Matches[i] = o
				return
			}
		}
	}
	d.addCondition(m)
}

// fieldSide returns the side of the packet, source or destination, that the field is about.
func fieldSide(f field) rules.Side {
	switch f {
	case fieldDestination, fieldDestinationPort, fieldDestinationType:
		return rules.Destination
	}
	return rules.Source
}

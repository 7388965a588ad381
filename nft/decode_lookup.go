package nft

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// maxExpansion bounds the number of conditions and actions that one read creates from the elements
// of maps and of sets with several fields. They take at most about 50 MB. Without a bound, many
// rules could each expand a map with thousands of keys. Expressions beyond the bound are decoded as
// unknown.
const maxExpansion = 1 << 19

// spend subtracts n conditions and actions from the budget, and reports whether the budget was
// sufficient.
func (d *ruleDecoder) spend(n int) bool {
	if d.budget == nil {
		return true
	}
	if n > *d.budget {
		return false
	}
	*d.budget -= n
	return true
}

// operands returns the operands in the registers from register r on, up to length bytes. They are
// the fields of a concatenation. It returns false if a register is empty, or the length of an
// operand is unknown.
func (d *ruleDecoder) operands(r, length int) ([]operand, bool) {
	var ops []operand
	for length > 0 {
		if r >= registerCount || d.registers[r] == nil {
			return ops, false
		}
		op := *d.registers[r]
		ops = append(ops, op)
		if op.length == 0 {
			return ops, false
		}
		r += words(op.length)
		length -= 4 * words(op.length)
	}
	return ops, true
}

// decodeLookup decodes a lookup. A lookup in a set is a condition. A lookup in a map loads a value,
// or ends the rule with a verdict.
func (d *ruleDecoder) decodeLookup(a attributes) error {
	name := a.Text(unix.NFTA_LOOKUP_SET)
	s, r := d.sets[name], registerIndex(a, unix.NFTA_LOOKUP_SREG)
	var ops []operand
	fit := false // the operands are the fields of the keys
	switch {
	case s != nil && s.keyLength > 0:
		ops, fit = d.operands(r, s.keyLength)
	case r < registerCount && d.registers[r] != nil:
		ops, fit = []operand{*d.registers[r]}, true
	}
	if !fit {
		ops = append(ops, operand{noData: true})
	}
	if fit = fit && s != nil && s.comparesFields(ops); fit && s.hasSeveralFields() {
		for i := range ops {
			ops[i].length = s.fieldLengths[i]
		}
	}
	switch {
	case a.Get(unix.NFTA_LOOKUP_DREG) == nil:
		d.addSetMatch(ops, fit, a.Number(unix.NFTA_LOOKUP_FLAGS)&unix.NFT_LOOKUP_F_INV != 0, name, s)
		return nil
	case a.Number(unix.NFTA_LOOKUP_DREG) == unix.NFT_REG_VERDICT:
		if !fit {
			return errUnsupported
		}
		return d.decodeVerdictMap(ops, s)
	}
	return d.loadMapValue(ops, fit, name, s, a)
}

// addSetMatch adds the condition that the operands are, or are not, in a set. fit is false if the
// operands are not the fields of the keys, for example because a register is empty. The set is nil
// if it does not exist.
func (d *ruleDecoder) addSetMatch(ops []operand, fit, negated bool, name string, s *decodedSet) {
	v := values{set: s, name: name}
	if s == nil {
		d.addUnknownCondition(append(ops, operand{noData: true}), negated, v)
		return
	}
	if s.anonymous {
		v.name = ""
	}
	if matches, supported := d.setMatches(ops, negated, v); fit && supported {
		d.clearPending(ops...)
		for _, m := range matches {
			d.addMatch(m)
		}
		return
	}
	if m, supported := d.listMatch(ops, negated, name, s); fit && supported {
		d.clearPending(ops...)
		d.addMatch(m)
		return
	}
	d.addUnknownCondition(ops, negated, v)
}

// setMatches returns the conditions that the operands are, or are not, in a set.
func (d *ruleDecoder) setMatches(ops []operand, negated bool, v values) ([]rules.Match, bool) {
	if len(ops) == 1 && d.isAddr(ops[0]) {
		if ranges := v.set.addrRanges(); len(ranges) > 0 &&
			ranges[0].From().BitLen() == 8*ops[0].length {
			return []rules.Match{rules.MatchAddr{
				Side: fieldSide(ops[0].field), Not: negated, Ranges: ranges, Set: v.name,
			}}, true
		}
	}
	keys, err := v.set.keys()
	if err != nil || v.set.catchall != nil {
		return nil, false
	}
	if len(keys) == 0 && !negated {
		return []rules.Match{rules.MatchTuple{}}, true // no packet matches
	}
	v.keys = keys
	if len(ops) == 1 && !v.set.hasSeveralFields() {
		if matches, err := d.comparisonMatches(ops[0], negated, v); err == nil {
			return matches, true
		}
	}
	alternatives, ok := d.tupleAlternatives(ops, v)
	switch {
	case !ok || len(alternatives) == 0, negated && !isNegatable(ops):
		return nil, false
	case len(alternatives) == 1 && !negated:
		return alternatives[0], true
	}
	return []rules.Match{rules.MatchTuple{Not: negated, Alternatives: alternatives}}, true
}

// isNegatable reports whether the model supports a negated comparison of several operands. The
// model cannot represent a packet that lacks the looked-up socket. unmaskedMatch has the same
// restrictions for one operand.
func isNegatable(ops []operand) bool {
	return !mayCompareOtherData(ops) && !slices.ContainsFunc(ops, func(op operand) bool {
		return op.field == fieldCgroup || op.field == fieldTransparentSocket
	})
}

// mayCompareOtherData reports whether an operand is a port only in packets of some protocols. In
// packets of other protocols the kernel compares other data at the same offset. Such a packet may
// match a negated lookup.
func mayCompareOtherData(ops []operand) bool {
	return slices.ContainsFunc(ops, func(op operand) bool {
		return (op.field == fieldSourcePort || op.field == fieldDestinationPort) && !op.hasPorts
	})
}

// tupleAlternatives returns the conditions of each key of a concatenation.
func (d *ruleDecoder) tupleAlternatives(ops []operand, v values) ([][]rules.Match, bool) {
	cacheOp := operand{field: fieldNone, ipv6: d.family == rules.IPv6, text: d.operandsCacheKey(ops)}
	return cached(v, cacheOp, func(keys []keyInterval) ([][]rules.Match, bool) {
		if !d.spend(len(keys) * (len(ops) + 1)) {
			return nil, false
		}
		// Sort: the kernel lists keys in unspecified order.
		keys = slices.Clone(keys)
		slices.SortFunc(keys, func(a, b keyInterval) int { return slices.Compare(a.first, b.first) })
		alternatives := make([][]rules.Match, 0, len(keys))
		for _, key := range keys {
			matches, supported, ok := d.tupleMatches(ops, key)
			if !ok || !supported {
				return nil, false
			}
			alternatives = append(alternatives, matches)
		}
		return alternatives, true
	})
}

// operandsCacheKey returns a cache key for the decoding of keys as the operands.
func (d *ruleDecoder) operandsCacheKey(ops []operand) string {
	text := ""
	for _, op := range ops {
		text += fmt.Sprintf("%d %d %t %t %t %x %x %s;",
			op.field, op.length, op.networkOrder, op.hasPorts, op.ipv6, op.mask, op.xor,
			op.constant)
	}
	return text
}

// tupleMatches returns the conditions of one key of a concatenation. supported reports that the
// model can represent all conditions. ok is false if the key does not consist of one field for each
// operand, or if the model has no match for an operand that is random.
func (d *ruleDecoder) tupleMatches(
	ops []operand, key keyInterval,
) (matches []rules.Match, supported, ok bool) {
	fieldKeys := make([]keyInterval, len(ops))
	from := 0
	hasPorts := false // the key has a protocol with ports
	for i, op := range ops {
		to, next := from+op.length, from+4*words(op.length)
		if to > len(key.first) || len(key.first) != len(key.last) {
			return nil, false, false
		}
		next = min(next, len(key.first))
		fieldKeys[i] = keyInterval{key.first[from:to], key.last[from:to]}
		if !isZero(key.first[to:next]) || !isZero(key.last[to:next]) {
			return nil, false, false // never matches: the kernel pads registers with zeros
		}
		if op.field == fieldProtocol && op.mask == nil && op.length == 1 && isSingle(fieldKeys[i]) {
			p := rules.Protocol(fieldKeys[i].first[0])
			hasPorts = hasPorts || p.HasPorts()
		}
		from = next
	}
	if from != len(key.first) {
		return nil, false, false
	}
	supported = true
	matches = make([]rules.Match, 0, len(ops))
	for i, op := range ops {
		if match, ok := typeAndCode(ops[i:], fieldKeys[i:]); ok {
			matches = append(matches, match)
			continue
		}
		if _, ok := typeAndCode(ops[max(i-1, 0):], fieldKeys[max(i-1, 0):]); ok {
			continue // the condition of the type includes the code
		}
		op.hasPorts = op.hasPorts || hasPorts
		fieldMatches, err := d.comparisonMatches(op, false,
			singleInterval(fieldKeys[i].first, fieldKeys[i].last))
		if err != nil {
			supported = false
			data := op.data
			if op.noData {
				data = rules.NoData
			}
			fieldMatches = []rules.Match{rules.Unknown{
				Text:   conditionText(op.String(), rangeText(fieldKeys[i]), false),
				Effect: rules.Reads, Data: data,
			}}
			if op.effect != rules.Reads {
				return nil, false, false
			}
		}
		matches = append(matches, fieldMatches...)
	}
	return matches, supported, true
}

// typeAndCode returns the condition of an ICMP type and a code, if these are the first two
// operands.
func typeAndCode(ops []operand, parts []keyInterval) (rules.Match, bool) {
	if len(ops) < 2 || ops[0].field != fieldICMPType || ops[1].field != fieldICMPCode ||
		ops[0].mask != nil || ops[1].mask != nil || !isSingle(parts[0]) {
		return nil, false
	}
	kind := uint16(parts[0].first[0]) << 8
	r := rules.Range[uint16]{
		First: kind | uint16(parts[1].first[0]), Last: kind | uint16(parts[1].last[0]),
	}
	return rules.MatchICMP{V6: ops[0].ipv6, Values: []rules.Range[uint16]{r}}, r.First <= r.Last
}

// loadMapValue stores the value that a map contains for the operands. The expression ends the rule
// if the map contains no value. fit and the set are as in addSetMatch.
func (d *ruleDecoder) loadMapValue(
	ops []operand, fit bool, name string, s *decodedSet, a attributes,
) error {
	op := operand{field: fieldUnknown, length: maxValueLength, effect: rules.Reads, noData: s == nil}
	v := values{set: s, name: name}
	if s != nil {
		if s.anonymous {
			v.name = ""
		}
		op.length = s.dataLength
		if op.length <= 0 || op.length > registerCount*4 {
			op.length = registerCount * 4
		}
		if op.data = s.identity(); op.data == rules.NoData {
			op.data, op.noData = "", true
		} else if fit && s.data != nil {
			op.field, op.mapped, op.sources = fieldMapped, s, ops
		}
	}
	op.text = op.dependOnAll(ops) + " map " + v.String()
	return d.storePending(a, unix.NFTA_LOOKUP_DREG, op)
}

// isMutable reports whether another chain may change the value of the operand before the packet
// returns. A value that the model does not represent may be a state that rules write, such as the
// priority or a label.
func (o operand) isMutable() bool {
	switch o.field {
	case fieldMark, fieldConntrackMark, fieldUnknown, fieldMapped:
		return true
	case fieldReversePath, fieldReversePathIndex:
		return len(o.constant) > 0 // the lookup depends on the mark
	}
	return false
}

// mayOverlap reports whether two keys of a concatenation may have a common value. It returns true
// for more than 64 keys, without comparing them.
func mayOverlap(ops []operand, keys []keyInterval) bool {
	const maxCompared = 64
	if len(keys) > maxCompared {
		return true
	}
	for i, a := range keys {
		overlapsA := func(b keyInterval) bool { return keysOverlap(ops, a, b) }
		if slices.ContainsFunc(keys[:i], overlapsA) {
			return true
		}
	}
	return false
}

// keysOverlap reports whether two keys of a concatenation may have a common value.
func keysOverlap(ops []operand, a, b keyInterval) bool {
	from := 0
	for _, op := range ops {
		to := from + op.length
		if to > len(a.first) || to > len(b.first) {
			return true
		}
		if slices.Compare(a.last[from:to], b.first[from:to]) < 0 ||
			slices.Compare(b.last[from:to], a.first[from:to]) < 0 {
			return false
		}
		from += 4 * words(op.length)
	}
	return true
}

package nft

import (
	"bytes"
	"cmp"
	"math/bits"
	"net/netip"
	"slices"

	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// compare adds the match of a register with a constant. The two comparisons of an interval become one match.
func (d *ruleDecoder) compare(a attributes) error {
	op, value := d.load(a, unix.NFTA_CMP_SREG), constant(a, unix.NFTA_CMP_DATA)
	switch kind := a.number(unix.NFTA_CMP_OP); kind {
	case unix.NFT_CMP_EQ, unix.NFT_CMP_NEQ:
		return d.match(op, kind == unix.NFT_CMP_NEQ, [][2][]byte{{value, value}}, "")
	case unix.NFT_CMP_GTE:
		d.interval = interval{open: true, register: registerIndex(a, unix.NFTA_CMP_SREG), op: op, lower: value}
		return nil
	case unix.NFT_CMP_LTE:
		lower := make([]byte, len(value))
		if d.interval.open {
			lower = d.interval.lower
			d.interval = interval{}
		}
		return d.match(op, false, [][2][]byte{{lower, value}}, "")
	}
	return errUnsupported
}

// An interval is open after a comparison with its lower end, of which the next expression may compare with the upper one.
type interval struct {
	open     bool
	register int
	op       operand
	lower    []byte
}

// continues tells whether an expression compares the same register with the upper end.
func (i interval) continues(name []byte, a attributes) bool {
	return i.open && string(name) == "cmp" && a.number(unix.NFTA_CMP_OP) == unix.NFT_CMP_LTE && registerIndex(a, unix.NFTA_CMP_SREG) == i.register
}

// closeInterval adds the match of an interval that reaches to the last value.
func (d *ruleDecoder) closeInterval() {
	i := d.interval
	if !i.open {
		return
	}
	d.interval = interval{}
	if err := d.match(i.op, false, [][2][]byte{{i.lower, slices.Repeat([]byte{0xff}, len(i.lower))}}, ""); err != nil {
		d.unknown("cmp: " + err.Error())
	}
}

// match adds the match of a field with intervals of values; set names the set that holds them.
func (d *ruleDecoder) match(op operand, negated bool, keys [][2][]byte, set string) error {
	if len(keys) == 0 || slices.ContainsFunc(keys, func(key [2][]byte) bool {
		// A longer key is compared with other fields too: a concatenation.
		return len(key[0]) == 0 || len(key[0]) > op.length || len(key[0]) != len(key[1])
	}) {
		return errUnsupported
	}
	if op.mask != nil {
		return d.maskedMatch(op, negated, keys)
	}
	switch op.field {
	case fieldIn, fieldOut:
		return d.matchInterface(op.field == fieldOut, negated, keys)
	case fieldFamily:
		return d.matchFamily(negated, keys)
	case fieldProtocol:
		m := rules.MatchProtocol{Not: negated}
		for _, key := range keys {
			if len(key[0]) != 1 || !bytes.Equal(key[0], key[1]) {
				return errUnsupported
			}
			m.Protocols = append(m.Protocols, rules.Protocol(key[0][0]))
		}
		slices.Sort(m.Protocols)
		return d.add(m)
	case fieldSource, fieldDestination:
		return d.matchAddr(op.field, negated, keys, set)
	case fieldSourcePort, fieldDestinationPort:
		ports, ok := numberRanges(keys, numberKey[uint16])
		if !ok {
			return errUnsupported
		}
		return d.addPort(rules.MatchPort{Side: sideOf(op.field), Not: negated, Ports: ports})
	case fieldUID, fieldGID:
		ids, ok := d.ids(op, keys)
		if !ok {
			return errUnsupported
		}
		return d.add(rules.MatchOwner{Group: op.field == fieldGID, Not: negated, IDs: ids})
	case fieldMark, fieldConntrackMark:
		value, ok := hostNumber(keys[0][0])
		if !ok || op.network || len(keys) != 1 || !bytes.Equal(keys[0][0], keys[0][1]) {
			return errUnsupported
		}
		return d.add(rules.MatchMark{Conntrack: op.field == fieldConntrackMark, Not: negated, Value: value, Mask: ^uint32(0)})
	}
	return errUnsupported
}

func (d *ruleDecoder) add(m rules.Match) error {
	if slices.ContainsFunc(d.rule.Actions, func(a rules.Action) bool { return a != rules.Action(rules.Count{}) }) {
		// What an action has done before stays done when this does not match.
		return errUnsupported
	}
	d.rule.Matches = append(d.rule.Matches, m)
	return nil
}

// addPort adds a match of ports. Not this and not that is one match with both.
func (d *ruleDecoder) addPort(m rules.MatchPort) error {
	for i, other := range d.rule.Matches {
		if o, ok := other.(rules.MatchPort); ok && o.Not && m.Not && o.Side == m.Side {
			o.Ports = rules.Normalise(append(o.Ports, m.Ports...))
			d.rule.Matches[i] = o
			return nil
		}
	}
	return d.add(m)
}

func sideOf(f field) rules.Side {
	if f == fieldDestination || f == fieldDestinationPort {
		return rules.Destination
	}
	return rules.Source
}

// ids reads user or group ids: numbers of the machine, or turned into network order where they are intervals.
func (d *ruleDecoder) ids(op operand, keys [][2][]byte) ([]rules.IDRange, bool) {
	if op.network {
		return numberRanges(keys, numberKey[uint32])
	}
	if slices.ContainsFunc(keys, func(key [2][]byte) bool { return !bytes.Equal(key[0], key[1]) }) {
		return nil, false // the kernel would compare the bytes in the wrong order
	}
	return numberRanges(keys, hostNumber)
}

// numberRanges reads intervals of numbers.
func numberRanges[T uint16 | uint32](keys [][2][]byte, read func([]byte) (T, bool)) ([]rules.Range[T], bool) {
	ranges := make([]rules.Range[T], 0, len(keys))
	for _, key := range keys {
		first, okFirst := read(key[0])
		last, okLast := read(key[1])
		if !okFirst || !okLast || first > last {
			return nil, false
		}
		ranges = append(ranges, rules.Range[T]{First: first, Last: last})
	}
	return rules.Normalise(ranges), true
}

func (d *ruleDecoder) matchInterface(out, negated bool, keys [][2][]byte) error {
	m := rules.MatchInterface{Out: out, Not: negated}
	for _, key := range keys {
		name := key[0]
		if !bytes.Equal(name, key[1]) {
			return errUnsupported
		}
		n := rules.InterfaceName{Name: zeroTerminated(name), Prefix: !bytes.Contains(name, []byte{0})}
		m.Names = append(m.Names, n)
	}
	slices.SortFunc(m.Names, func(a, b rules.InterfaceName) int { return cmp.Compare(a.Name, b.Name) })
	return d.add(m)
}

func (d *ruleDecoder) matchFamily(negated bool, keys [][2][]byte) error {
	if len(keys) != 1 || len(keys[0][0]) != 1 {
		return errUnsupported
	}
	f, ok := familyOf(keys[0][0][0])
	if !ok || f == rules.Inet {
		return errUnsupported
	}
	if negated {
		f = map[rules.Family]rules.Family{rules.IPv4: rules.IPv6, rules.IPv6: rules.IPv4}[f]
	}
	d.family = f
	return d.add(rules.MatchFamily{Family: f})
}

func (d *ruleDecoder) matchAddr(f field, negated bool, keys [][2][]byte, set string) error {
	m := rules.MatchAddr{Side: sideOf(f), Not: negated, Set: set}
	ranges := make([]netipx.IPRange, 0, len(keys))
	size := int(addrField(d.family, m.Side).length)
	for _, key := range keys {
		// A prefix of whole bytes is compared as those bytes.
		first, last := extend(key[0], size, 0), extend(key[1], size, 0xff)
		r, ok := addrRange(first, last)
		if !ok {
			return errUnsupported
		}
		ranges = append(ranges, r)
	}
	m.Ranges = rules.NormaliseAddrs(ranges)
	return d.add(m)
}

func extend(key []byte, size int, fill byte) []byte {
	key = slices.Clone(key)
	for len(key) < size {
		key = append(key, fill)
	}
	return key
}

// maskedMatch adds the match of some bits of a field.
func (d *ruleDecoder) maskedMatch(op operand, negated bool, keys [][2][]byte) error {
	value := keys[0][0]
	zeroXor := !slices.ContainsFunc(op.xor, func(b byte) bool { return b != 0 })
	if len(keys) != 1 || !bytes.Equal(value, keys[0][1]) || len(value) != len(op.mask) || !zeroXor {
		return errUnsupported
	}
	number, _ := hostNumber(value)
	mask, isNumber := hostNumber(op.mask)
	switch op.field {
	case fieldSource, fieldDestination:
		first, ok := netip.AddrFromSlice(value)
		ones, contiguous := prefixLength(op.mask)
		p := netip.PrefixFrom(first, ones)
		if !ok || !contiguous || p.Masked().Addr() != first {
			return errUnsupported
		}
		return d.add(rules.MatchAddr{Side: sideOf(op.field), Not: negated, Ranges: rules.AddrRanges([]netip.Prefix{p})})
	case fieldTCPFlags:
		return d.add(rules.MatchTCPFlags{Not: negated, Mask: rules.TCPFlags(op.mask[0]), Value: rules.TCPFlags(value[0])})
	case fieldMark, fieldConntrackMark:
		if !isNumber || op.network {
			return errUnsupported
		}
		return d.add(rules.MatchMark{Conntrack: op.field == fieldConntrackMark, Not: negated, Value: number, Mask: mask})
	case fieldState:
		states, ok := statesOf(mask)
		if !ok || !isNumber || number != 0 {
			return errUnsupported
		}
		return d.add(rules.MatchState{Not: !negated, States: states})
	}
	return errUnsupported
}

// statesOf reads nf_tables' bits of states.
func statesOf(mask uint32) (rules.StateSet, bool) {
	var states rules.StateSet
	for state, bit := range stateBits {
		if mask&bit != 0 {
			states |= rules.States(state)
			mask &^= bit
		}
	}
	return states, mask == 0
}

// prefixLength counts the leading ones of a mask and tells whether no other bit is set.
func prefixLength(mask []byte) (int, bool) {
	ones := 0
	for i, b := range mask {
		n := bits.LeadingZeros8(^b)
		ones += n
		if n < 8 {
			rest := b<<n != 0
			return ones, !rest && !slices.ContainsFunc(mask[i+1:], func(b byte) bool { return b != 0 })
		}
	}
	return ones, true
}

package nft

import (
	"bytes"
	"slices"

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
	case unix.NFT_CMP_GT:
		lower := slices.Clone(value)
		if increment(lower); bytes.Compare(lower, value) > 0 {
			return d.match(op, false, [][2][]byte{{lower, slices.Repeat([]byte{0xff}, len(value))}}, "")
		}
	case unix.NFT_CMP_LT:
		upper := slices.Clone(value)
		if decrement(upper); bytes.Compare(upper, value) < 0 {
			return d.match(op, false, [][2][]byte{{make([]byte, len(value)), upper}}, "")
		}
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
		d.unknown(unknownText("cmp", err))
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
	case fieldInIndex, fieldOutIndex:
		return d.matchLoopback(op.field == fieldOutIndex, negated, keys)
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
	case fieldState:
		states, ok := singleStates(keys)
		if !ok {
			return errUnsupported
		}
		return d.add(rules.MatchState{Not: negated, States: states})
	case fieldMark, fieldConntrackMark:
		value, ok := hostNumber(keys[0][0])
		if !ok || op.network || len(keys) != 1 || !bytes.Equal(keys[0][0], keys[0][1]) {
			return errUnsupported
		}
		return d.add(rules.MatchMark{Conntrack: op.field == fieldConntrackMark, Not: negated, Value: value, Mask: ^uint32(0)})
	}
	return errUnsupported
}

// acted tells whether an action has done something that stays done when a later match does not match.
func (d *ruleDecoder) acted() bool {
	return slices.ContainsFunc(d.rule.Actions, func(a rules.Action) bool { return a != rules.Action(rules.Count{}) })
}

func (d *ruleDecoder) add(m rules.Match) error {
	if d.acted() {
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

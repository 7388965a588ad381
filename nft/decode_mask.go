package nft

import (
	"bytes"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

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
			states |= rules.States(rules.State(state))
			mask &^= bit
		}
	}
	return states, mask == 0
}

// singleStates reads values of which each is the bit of one state: a packet has only one.
func singleStates(keys [][2][]byte) (rules.StateSet, bool) {
	var states rules.StateSet
	for _, key := range keys {
		bit, ok := hostNumber(key[0])
		state, known := statesOf(bit)
		if !ok || !known || bits.OnesCount32(bit) != 1 || !bytes.Equal(key[0], key[1]) {
			return 0, false
		}
		states |= state
	}
	return states, true
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

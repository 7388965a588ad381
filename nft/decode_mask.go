package nft

import (
	"math/bits"
	"net"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// maskedMatches returns the conditions that the masked bits of a field equal the only key.
func (d *ruleDecoder) maskedMatches(
	op operand, negated bool, keys []keyInterval,
) ([]rules.Match, error) {
	value := keys[0].first
	if len(keys) != 1 || !isSingle(keys[0]) || len(value) != len(op.mask) || op.networkOrder {
		return nil, errUnsupported
	}
	value = slices.Clone(value)
	for i := range value { // x & m ^ y = v if x & m = v ^ y
		value[i] ^= op.xor[i]
	}
	number, _ := nlmsg.HostNumber(value)
	mask, isNumber := nlmsg.HostNumber(op.mask)
	oneMatch := func(m rules.Match) ([]rules.Match, error) { return []rules.Match{m}, nil }
	switch op.field {
	case fieldSource, fieldDestination:
		first, ok := netip.AddrFromSlice(value)
		ones, maskBits := net.IPMask(op.mask).Size() // 0 bits if the ones are not contiguous
		p := netip.PrefixFrom(first, ones)
		length := int(addrField(d.family, fieldSide(op.field)).length)
		if !ok || maskBits == 0 || len(value) != length || p.Masked().Addr() != first {
			return nil, errUnsupported
		}
		ranges := rules.AddrRanges([]netip.Prefix{p})
		return oneMatch(rules.MatchAddr{Side: fieldSide(op.field), Not: negated, Ranges: ranges})
	case fieldTCPFlags:
		return oneMatch(rules.MatchTCPFlags{
			Not: negated, Mask: rules.TCPFlags(op.mask[0]), Value: rules.TCPFlags(value[0]),
		})
	case fieldMark, fieldConntrackMark:
		if !isNumber {
			return nil, errUnsupported
		}
		return oneMatch(rules.MatchMark{
			Conntrack: op.field == fieldConntrackMark, Not: negated, Value: number, Mask: mask,
		})
	case fieldState:
		states, ok := decodeStates(mask)
		if !ok || !isNumber || number != 0 || states == 0 {
			return nil, errUnsupported
		}
		return oneMatch(rules.MatchState{Not: !negated, States: states})
	case fieldStatus:
		if isNumber {
			return statusMatches(mask, number, negated)
		}
	}
	return nil, errUnsupported
}

// statusMatches returns the conditions that the masked bits of a connection's status equal the
// value.
func statusMatches(mask, value uint32, negated bool) ([]rules.Match, error) {
	if mask == 0 || mask&^uint32(rules.AllStatus) != 0 || value&^mask != 0 {
		return nil, errUnsupported
	}
	status := rules.Status(mask)
	switch {
	case value == 0:
		return []rules.Match{rules.MatchStatus{Not: !negated, Status: status}}, nil
	case bits.OnesCount32(mask) == 1:
		return []rules.Match{rules.MatchStatus{Not: negated, Status: status}}, nil
	case negated:
		return nil, errUnsupported
	}
	var matches []rules.Match
	for rest := mask; rest != 0; rest &= rest - 1 {
		bit := rest & -rest
		matches = append(matches, rules.MatchStatus{Not: value&bit == 0, Status: rules.Status(bit)})
	}
	return matches, nil
}

// decodeStates decodes the state bits of nf_tables, and reports whether the model supports all of
// them.
func decodeStates(mask uint32) (rules.StateSet, bool) {
	var states rules.StateSet
	for state, bit := range stateBits {
		if mask&bit != 0 {
			states |= rules.States(rules.State(state))
			mask &^= bit
		}
	}
	return states, mask == 0
}

// singleStates decodes keys that each have the bit of one state. It returns false if a key is an
// interval, has several bits, or has a bit that is not a state.
func singleStates(keys []keyInterval) (rules.StateSet, bool) {
	var states rules.StateSet
	for _, key := range keys {
		bit, ok := nlmsg.HostNumber(key.first)
		state, known := decodeStates(bit)
		if !ok || !known || bits.OnesCount32(bit) != 1 || !isSingle(key) {
			return 0, false
		}
		states |= state
	}
	return states, true
}

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
	case fieldSourcePort, fieldDestinationPort:
		if ports, ok := maskedPorts(value, op.mask); ok && op.hasPorts {
			// For the budget, four ranges, which take 16 bytes, count as one value.
			if !d.spend(len(ports) / 4) {
				return nil, errTooMany
			}
			return oneMatch(rules.MatchPort{Side: fieldSide(op.field), Not: negated, Ports: ports})
		}
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
		if !isNumber {
			return nil, errUnsupported
		}
		if number == 0 { // the form in which nft writes several states
			return oneMatch(stateMatch(!negated, statesWith(func(bit uint32) bool {
				return bit&mask != 0
			})))
		}
		return oneMatch(stateMatch(negated, statesWith(func(bit uint32) bool {
			return bit&mask == number
		})))
	case fieldStatus:
		if isNumber {
			return statusMatches(mask, number, negated)
		}
	}
	return nil, errUnsupported
}

// maskedPorts returns the ports whose bits under the mask equal the value. It returns false if the
// mask is 0, if there are no such ports, or if they form more than maxJoinedPorts ranges.
func maskedPorts(valueKey, maskKey []byte) ([]rules.PortRange, bool) {
	value, ok := networkNumber[uint16](valueKey)
	mask, _ := networkNumber[uint16](maskKey)
	// The bits below the lowest bit of the mask vary within a range. Each combination of the other
	// bits outside the mask is the beginning of a range.
	low := uint16(1)<<bits.TrailingZeros16(mask) - 1
	others := ^mask &^ low
	if !ok || mask == 0 || value&^mask != 0 || 1<<bits.OnesCount16(others) > maxJoinedPorts {
		return nil, false
	}
	var ports []rules.PortRange
	for subset := uint16(0); ; {
		first := value | subset
		ports = append(ports, rules.PortRange{First: first, Last: first | low})
		if subset = (subset - others) & others; subset == 0 {
			return rules.Normalize(ports), true
		}
	}
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
	}
	var matches []rules.Match
	for rest := mask; rest != 0; rest &= rest - 1 {
		bit := rest & -rest
		matches = append(matches, rules.MatchStatus{Not: value&bit == 0, Status: rules.Status(bit)})
	}
	if negated {
		not := rules.MatchTuple{Not: true, Alternatives: [][]rules.Match{matches}}
		return []rules.Match{not}, nil
	}
	return matches, nil
}

// statesWith returns the states whose bits in nf_tables meet the condition.
func statesWith(condition func(bit uint32) bool) rules.StateSet {
	var states rules.StateSet
	for state, bit := range stateBits {
		if condition(bit) {
			states |= rules.States(rules.State(state))
		}
	}
	return states
}

// stateMatch returns the condition that the state is one of the states or, if negated, none of
// them. There may be no states.
func stateMatch(negated bool, states rules.StateSet) rules.Match {
	if states == 0 {
		negated, states = !negated, statesWith(func(uint32) bool { return true })
	}
	return rules.MatchState{Not: negated, States: states}
}

// statesIn returns the states that the keys contain. Other keys match no packet, because a packet
// has the bit of exactly one state (nft_ct_get_eval in net/netfilter/nft_ct.c). statesIn returns
// false if a key is an interval.
func statesIn(keys []keyInterval) (rules.StateSet, bool) {
	var states rules.StateSet
	for _, key := range keys {
		number, ok := nlmsg.HostNumber(key.first)
		if !ok || !isSingle(key) {
			return 0, false
		}
		states |= statesWith(func(bit uint32) bool { return bit == number })
	}
	return states, true
}

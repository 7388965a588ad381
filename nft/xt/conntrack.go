package xt

import "github.com/sluice-mesh/sluice/rules"

// Where struct xt_conntrack_mtinfo1, 2 and 3 have what they compare. The masks of state and status
// have 8 bits in 1 and 16 bits in the others.
const (
	conntrackAsked   = 146
	conntrackNegated = 148
	conntrackMasks   = 150
)

// conntrackSizes are those of the structures by revision.
var conntrackSizes = [...]int{1: 152, 2: 156, 3: 164}

// Bits of what is asked for: XT_CONNTRACK_STATE and its likes.
const (
	askState      = 1 << 0
	askStatus     = 1 << 6
	askDirection  = 1 << 12
	askStateAlias = 1 << 13 // written as -m state, which means the same
)

// conntrackStates are the bits of the states (XT_CONNTRACK_STATE_BIT and its likes).
var conntrackStates = [...]uint16{
	rules.Invalid:     1 << 0,
	rules.Established: 1 << 1,
	rules.Related:     1 << 2,
	rules.New:         1 << 3,
	rules.SNAT:        1 << 6,
	rules.DNAT:        1 << 7,
	rules.Untracked:   1 << 8,
}

// oldStates are the bits of struct xt_state_info, which has no translation
// (linux/netfilter/xt_state.h).
var oldStates = [...]uint16{
	rules.Invalid:     1 << 0,
	rules.Established: 1 << 1,
	rules.Related:     1 << 2,
	rules.New:         1 << 3,
	rules.Untracked:   1 << 6,
}

// knownStatus are the bits that the model has.
const knownStatus = rules.StatusExpected | rules.StatusSeenReply | rules.StatusAssured |
	rules.StatusConfirmed | rules.StatusSNAT | rules.StatusDNAT

// decodeConntrack reads a structure that asks for the state, the status or the direction alone.
// Several in one match are more than their conjunction: for a packet without a connection,
// conntrack_mt (net/netfilter/xt_conntrack.c) looks at the state only.
func decodeConntrack(revision uint32, info []byte) ([]rules.Match, bool) {
	if len(info) < conntrackSizes[revision] {
		return nil, false
	}
	asked := native.Uint16(info[conntrackAsked:]) &^ askStateAlias
	negated := native.Uint16(info[conntrackNegated:]) &^ askStateAlias
	if negated&^asked != 0 {
		return nil, false
	}
	not := negated != 0
	state, status := uint16(info[conntrackMasks]), uint16(info[conntrackMasks+1])
	if revision > 1 {
		state, status = native.Uint16(info[conntrackMasks:]), native.Uint16(info[conntrackMasks+2:])
	}
	switch asked {
	case askState:
		states, ok := statesOf(state, conntrackStates[:])
		return []rules.Match{rules.MatchState{Not: not, States: states}}, ok
	case askStatus:
		m := rules.MatchStatus{Not: not, Status: rules.Status(status)}
		return []rules.Match{m}, status&^uint16(knownStatus) == 0
	case askDirection:
		return []rules.Match{rules.MatchDirection{Reply: not}}, true
	}
	return nil, false
}

// decodeState reads struct xt_state_info, which iptables before 1.4.18 writes for -m state.
func decodeState(info []byte) ([]rules.Match, bool) {
	if len(info) < 4 {
		return nil, false
	}
	mask := native.Uint32(info)
	states, ok := statesOf(uint16(mask), oldStates[:])
	return []rules.Match{rules.MatchState{States: states}}, ok && mask>>16 == 0
}

// statesOf returns the states of a mask, and whether all bits of the mask are known.
func statesOf(mask uint16, bits []uint16) (rules.StateSet, bool) {
	var states rules.StateSet
	for state, bit := range bits {
		if mask&bit != 0 {
			states |= rules.States(rules.State(state))
			mask &^= bit
		}
	}
	return states, mask == 0
}

// encodeConntrack writes a structure that asks for one thing.
func encodeConntrack(ask uint16, not bool, state, status uint16) Extension {
	const revision = 3
	data := make([]byte, conntrackSizes[revision])
	native.PutUint16(data[conntrackAsked:], ask)
	if not {
		native.PutUint16(data[conntrackNegated:], ask)
	}
	native.PutUint16(data[conntrackMasks:], state)
	native.PutUint16(data[conntrackMasks+2:], status)
	return Extension{Name: "conntrack", Revision: revision, Data: data}
}

func encodeState(m rules.MatchState) Extension {
	var mask uint16
	for state, bit := range conntrackStates {
		if m.States.Has(rules.State(state)) {
			mask |= bit
		}
	}
	return encodeConntrack(askState, m.Not, mask, 0)
}

func encodeStatus(m rules.MatchStatus) Extension {
	return encodeConntrack(askStatus, m.Not, 0, uint16(m.Status))
}

func encodeDirection(m rules.MatchDirection) Extension {
	return encodeConntrack(askDirection, m.Reply, 0, 0)
}

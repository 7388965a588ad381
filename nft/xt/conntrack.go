package xt

import "github.com/sluice-mesh/sluice/rules"

// Offsets in struct xt_conntrack_mtinfo1, 2 and 3. The masks of state and status have 8 bits in
// revision 1 and 16 bits in the others.
const (
	conntrackFlagsOffset  = 146
	conntrackInvertOffset = 148
	conntrackMaskOffset   = 150
)

// conntrackSizes contains the sizes of the structures by revision.
var conntrackSizes = [...]int{1: 152, 2: 156, 3: 164}

// Flags of compared fields (XT_CONNTRACK_STATE and others).
const (
	stateFlag      = 1 << 0
	statusFlag     = 1 << 6
	directionFlag  = 1 << 12
	stateAliasFlag = 1 << 13 // iptables sets it for -m state, which is equivalent
)

// conntrackStates contains the bits of the states (XT_CONNTRACK_STATE_BIT and others).
var conntrackStates = [...]uint16{
	rules.Invalid:     1 << 0,
	rules.Established: 1 << 1,
	rules.Related:     1 << 2,
	rules.New:         1 << 3,
	rules.SNAT:        1 << 6,
	rules.DNAT:        1 << 7,
	rules.Untracked:   1 << 8,
}

// oldStates contains the bits of the states in struct xt_state_info (linux/netfilter/xt_state.h),
// which has no bits for SNAT and DNAT.
var oldStates = [...]uint16{
	rules.Invalid:     1 << 0,
	rules.Established: 1 << 1,
	rules.Related:     1 << 2,
	rules.New:         1 << 3,
	rules.Untracked:   1 << 6,
}

// decodeConntrack decodes a structure that compares one field: the state, the status or the
// direction. A match of several fields is not equivalent to one match of each field: for a packet
// without a connection, conntrack_mt (net/netfilter/xt_conntrack.c) compares only the state.
func decodeConntrack(revision uint32, info []byte) ([]rules.Match, bool) {
	if len(info) < conntrackSizes[revision] {
		return nil, false
	}
	flags := native.Uint16(info[conntrackFlagsOffset:]) &^ stateAliasFlag
	negated := native.Uint16(info[conntrackInvertOffset:]) &^ stateAliasFlag
	if negated&^flags != 0 {
		return nil, false
	}
	not := negated != 0
	state, status := uint16(info[conntrackMaskOffset]), uint16(info[conntrackMaskOffset+1])
	if revision > 1 {
		state, status = native.Uint16(info[conntrackMaskOffset:]),
			native.Uint16(info[conntrackMaskOffset+2:])
	}
	switch flags {
	case stateFlag:
		states, ok := statesOf(state, conntrackStates[:])
		return []rules.Match{rules.MatchState{Not: not, States: states}}, ok
	case statusFlag:
		m := rules.MatchStatus{Not: not, Status: rules.Status(status)}
		return []rules.Match{m}, status&^uint16(rules.AllStatus) == 0
	case directionFlag:
		return []rules.Match{rules.MatchDirection{Reply: not}}, true
	}
	return nil, false
}

// decodeState decodes struct xt_state_info, which iptables before 1.4.18 uses for -m state.
func decodeState(info []byte) ([]rules.Match, bool) {
	if len(info) < 4 {
		return nil, false
	}
	mask := native.Uint32(info)
	states, ok := statesOf(uint16(mask), oldStates[:])
	return []rules.Match{rules.MatchState{States: states}}, ok && mask>>16 == 0
}

// statesOf returns the states of a mask, and whether all bits of the mask are supported.
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

// encodeConntrack encodes a structure that compares one field.
func encodeConntrack(field uint16, not bool, state, status uint16) Extension {
	const revision = 3
	data := make([]byte, conntrackSizes[revision])
	native.PutUint16(data[conntrackFlagsOffset:], field)
	if not {
		native.PutUint16(data[conntrackInvertOffset:], field)
	}
	native.PutUint16(data[conntrackMaskOffset:], state)
	native.PutUint16(data[conntrackMaskOffset+2:], status)
	return Extension{Name: "conntrack", Revision: revision, Data: data}
}

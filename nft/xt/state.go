package xt

import "github.com/sluice-mesh/sluice/rules"

// Where struct xt_conntrack_mtinfo1, 2 and 3 have what they compare with a connection's state: in 1 the state has 8 bits.
const (
	stateAsked   = 146
	stateNegated = 148
	stateMask    = 150
)

// stateSizes are those of the structures by revision.
var stateSizes = [...]int{1: 152, 2: 156, 3: 164}

// Bits of what is asked for.
const (
	askState      = 1 << 0
	askStateAlias = 1 << 13 // written as -m state, which means the same
)

// stateBits are those of the states (XT_CONNTRACK_STATE_BIT and its likes).
var stateBits = [...]uint16{
	rules.Invalid:     1 << 0,
	rules.Established: 1 << 1,
	rules.Related:     1 << 2,
	rules.New:         1 << 3,
	rules.Untracked:   1 << 8,
}

// decodeState reads a structure that asks for the state only, and not whether addresses were translated.
func decodeState(revision uint32, info []byte) ([]rules.Match, bool) {
	if len(info) < stateSizes[revision] {
		return nil, false
	}
	asked, negated := native.Uint16(info[stateAsked:])&^askStateAlias, native.Uint16(info[stateNegated:])&^askStateAlias
	if asked != askState || negated&^askState != 0 {
		return nil, false
	}
	mask := uint16(info[stateMask])
	if revision > 1 {
		mask = native.Uint16(info[stateMask:])
	}
	m := rules.MatchState{Not: negated != 0}
	for state, bit := range stateBits {
		if mask&bit != 0 {
			m.States |= rules.States(rules.State(state))
			mask &^= bit
		}
	}
	return []rules.Match{m}, mask == 0
}

func encodeState(m rules.MatchState) Extension {
	const revision = 3
	x := Extension{Name: "conntrack", Revision: revision, Data: make([]byte, stateSizes[revision])}
	var mask uint16
	for state, bit := range stateBits {
		if m.States.Has(rules.State(state)) {
			mask |= bit
		}
	}
	native.PutUint16(x.Data[stateAsked:], askState)
	native.PutUint16(x.Data[stateNegated:], uint16(flag(m.Not, askState)))
	native.PutUint16(x.Data[stateMask:], mask)
	return x
}

package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// updates contains the writes of rules to the states that packets share, and the conditions of
// rules on these states, for the rules of a walk or of a chain.
//
// If each packet makes the same writes in the same order in two walks, both walks leave equal
// states. If it has also made the same writes before each condition, conditions in the same rule
// have equal results.
type updates struct {
	states  []string // in the order of their first use
	byState map[string]*stateUpdates
}

// A stateUpdates contains the writes to a state and the conditions on it.
type stateUpdates struct {
	// writes contains the packets that write the state, by the key of the write, in the order of
	// evaluation.
	writes keyedSets[string]
	// conditions contains the packets for which a condition is evaluated, by the key of the
	// condition. writesBefore contains the packets that make a write before a condition is
	// evaluated, by the keys of the condition and of the write.
	conditions   keyedSets[string]
	writesBefore keyedSets[[2]string]
	// unordered reports that a packet makes writes in another order than writes.keys, or makes a
	// write repeatedly.
	unordered bool
}

// A keyedSets contains sets of packets by key, and the keys in the order in which they were added.
type keyedSets[K comparable] struct {
	keys []K
	sets map[K]set
}

// addSet adds packets to the set of a key.
func addSet[K comparable](s *space, to *keyedSets[K], key K, packets set) {
	if packets == none {
		return
	}
	known, ok := to.sets[key]
	if !ok {
		storeIn(&to.sets, key, none)
		to.keys = append(to.keys, key)
		s.meter.alloc(textEntrySize)
	}
	to.sets[key] = s.or(known, packets)
}

// stateUpdatesSize is the size of empty updates of a state in bytes.
const stateUpdatesSize = 256

// forState returns the updates of a state. It creates them if necessary.
func (u *updates) forState(s *space, state string) *stateUpdates {
	found := u.byState[state]
	if found == nil {
		found = &stateUpdates{}
		storeIn(&u.byState, state, found)
		u.states = append(u.states, state)
		s.meter.alloc(stateUpdatesSize)
	}
	return found
}

// addWrite adds packets that write the state after all packets that were added before.
func (s *space) addWrite(to *stateUpdates, key string, packets set) {
	if known, ok := to.writes.sets[key]; ok && !to.unordered {
		// The order is kept only if no packet has made this write, or a later write, before.
		to.unordered = s.and(known, packets) != none
		for i := len(to.writes.keys) - 1; to.writes.keys[i] != key && !to.unordered; i-- {
			s.meter.step()
			to.unordered = s.and(to.writes.sets[to.writes.keys[i]], packets) != none
		}
	}
	addSet(s, &to.writes, key, packets)
}

// addCondition adds packets for which a condition is evaluated after all writes that were added
// before.
func (s *space) addCondition(to *stateUpdates, key string, packets set) {
	for _, write := range to.writes.keys {
		s.meter.step()
		addSet(s, &to.writesBefore, [2]string{key, write}, s.and(to.writes.sets[write], packets))
	}
	addSet(s, &to.conditions, key, packets)
}

// addUpdates adds the updates of a chain for the given packets.
func (s *space) addUpdates(to, from *updates, packets set) {
	for _, state := range from.states {
		toState, fromState := to.forState(s, state), from.byState[state]
		for _, key := range fromState.conditions.keys {
			s.addCondition(toState, key, s.and(fromState.conditions.sets[key], packets))
		}
		for _, key := range fromState.writesBefore.keys {
			s.meter.step()
			addSet(s, &toState.writesBefore, key, s.and(fromState.writesBefore.sets[key], packets))
		}
		for _, key := range fromState.writes.keys {
			s.meter.step()
			s.addWrite(toState, key, s.and(fromState.writes.sets[key], packets))
		}
		toState.unordered = toState.unordered || fromState.unordered
	}
}

// recordWrite adds a write by the current rule.
func (e *evaluator) recordWrite(u rules.Unknown, packets []flow, part rulePart) {
	expression := e.expressionKey(u, part)
	for _, f := range packets {
		key := expression + keySeparator + e.inputKey(u, f)
		e.recordCondition(u, key, f.packets)
		e.addWrite(e.summary.updates.forState(e.space, u.State), key, f.packets)
	}
}

// recordCondition adds the evaluation, for some packets, of a condition or a value that may depend
// on states.
func (e *evaluator) recordCondition(u rules.Unknown, key string, packets set) {
	if len(e.shared.written) == 0 || packets == none {
		return
	}
	for _, state := range e.shared.statesOf(u) {
		e.addCondition(e.summary.updates.forState(e.space, state), key, packets)
	}
}

// compareUpdates adds states to found: the states that two walks write differently, and the states
// that a condition reads after different writes.
func (shared sharedState) compareUpdates(s *space, left, right *updates) {
	for state := range shared.written {
		l, r := left.forState(s, state), right.forState(s, state)
		if !shared.differing[state] && !s.sameUpdates(l, r) {
			shared.found[state] = true
		}
	}
}

// sameUpdates reports whether packets make the same writes on both sides, and have made the same
// writes before each condition.
func (s *space) sameUpdates(left, right *stateUpdates) bool {
	if left.unordered || right.unordered || !slices.Equal(left.writes.keys, right.writes.keys) {
		return false
	}
	for _, key := range left.writes.keys {
		s.meter.step()
		if s.anyPossible(s.xor(left.writes.sets[key], right.writes.sets[key])) {
			return false
		}
	}
	for _, keys := range [...][][2]string{left.writesBefore.keys, right.writesBefore.keys} {
		for _, key := range keys {
			s.meter.step()
			both := s.and(left.conditions.sets[key[0]], right.conditions.sets[key[0]])
			l, r := left.writesBefore.sets[key], right.writesBefore.sets[key]
			if s.anyPossible(s.and(both, s.xor(l, r))) {
				return false
			}
		}
	}
	return true
}

package nft

import (
	"errors"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A step leads from what is there to the wanted ruleset.
type step struct {
	outcome Outcome
	// transaction is nil if nothing is to be done. Others fail when the ruleset has changed since
	// they were planned.
	transaction *Transaction
}

// plan looks at what is there, unless that has just been read, and returns the step that makes the
// wanted ruleset of it.
func (a *applier) plan() (step, error) {
	a.count()
	if s := a.planAfter(); s.transaction != nil {
		return s, nil
	}
	// Of a reading that is of no use nothing stays.
	a.result.Kept, a.found = 0, nil
	// A first installation needs no complete reading: its transaction fails if the table comes into
	// being meanwhile.
	present, err := a.conn.findOurs()
	if err != nil {
		return step{}, err
	}
	if present == nil {
		t, err := a.creation()
		return step{Created, t}, err
	}
	table := &a.want.Tables[0]
	expected := newExpectation(table)
	found, err := a.conn.readOurs(present, expected)
	if err != nil {
		return step{}, err
	}
	if len(found.tables) == 0 {
		return step{}, errVanished
	}
	old := &found.tables[0]
	if expected.met(old) {
		a.found = []rules.Table{old.Table}
		return step{Unchanged, nil}, nil
	}
	return a.planFrom(old, found.generation)
}

// planFrom is the step from a table that was read at a generation.
func (a *applier) planFrom(old *foundTable, generation uint32) (step, error) {
	table := &a.want.Tables[0]
	a.found = []rules.Table{old.Table}
	update, sameButSets := changedSets(table, old)
	if !sameButSets {
		t, err := encodeReplacement(table, old, generation)
		return step{Replaced, t}, err
	}
	a.result.Kept = kept(&old.Table)
	if len(update) == 0 {
		return step{Unchanged, nil}, nil
	}
	return step{Updated, encodeUpdate(table, update, generation)}, nil
}

// planAfter is the step from what was read before this call: none if there was nothing, or if it
// needs no transaction, whose refusal would tell that it is no longer so. It is tried once.
func (a *applier) planAfter() step {
	last := a.last
	a.last = Reading{}
	if len(last.found) != 1 || last.Generation == 0 {
		return step{}
	}
	s, err := a.planFrom(&last.found[0], last.Generation)
	if err != nil {
		return step{}
	}
	return s
}

// Plan returns what [Apply] would do to the tables of the namespace now, and the transaction that
// it would send: nil if none. It reads, and changes nothing.
func Plan(ns *netns.NS, rs rules.Ruleset) (Outcome, *Transaction, error) {
	p, err := Prepare(rs)
	if err != nil {
		return "", nil, err
	}
	var s step
	err = inside(ns, func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		a := newApplier(c, p, ApplyOptions{})
		for range maxAttempts {
			if s, err = a.plan(); !errors.Is(err, errVanished) {
				break
			}
		}
		return err
	})
	return s.outcome, s.transaction, err
}

// errVanished reports that the table was deleted between two looks.
var errVanished = errors.New("the table has gone")

package nft

import (
	"errors"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A step is a planned change from the current to the wanted ruleset.
type step struct {
	outcome Outcome
	// transaction is nil if no change is needed. It fails if the ruleset has changed since the
	// plan.
	transaction *Transaction
	// gated, unless nil, must be executed first, because the transaction moves capture; see [gate].
	// Afterwards plan again.
	intermediate *Transaction
	// moves reports that gated replaces the rules, because the gate is in place.
	intermediateReplaces bool
}

// plan reads the current table, unless the caller has passed a reading, and returns the step to the
// wanted ruleset.
func (a *applier) plan() (step, error) {
	a.count()
	if s := a.planFromSnapshot(); s.transaction != nil {
		return s, nil
	}
	// Discard the results of the earlier reading.
	a.result.EstablishedPackets, a.found = 0, nil
	// A first installation needs no complete reading, because its transaction fails if another
	// process creates the table in the meantime.
	present, err := a.conn.findSluiceTable()
	if err != nil {
		return step{}, err
	}
	if present == nil {
		t, err := a.creation()
		return step{outcome: Created, transaction: t}, err
	}
	table := &a.desired.Tables[0]
	expected := newExpectation(table)
	found, err := a.conn.readSluiceTable(present, expected)
	if err != nil {
		return step{}, err
	}
	if len(found.tables) == 0 {
		return step{}, errTableDeleted
	}
	old := &found.tables[0]
	if expected.isMet(old) {
		a.found = []rules.Table{old.Table}
		a.result.EstablishedPackets = establishedPackets(&old.Table)
		return step{outcome: Unchanged}, nil
	}
	return a.planFrom(old, found.generation)
}

// planFrom returns the step from a table that was read at a generation.
func (a *applier) planFrom(old *foundTable, generation uint32) (step, error) {
	table := &a.desired.Tables[0]
	a.found = []rules.Table{old.Table}
	update, onlySetsDiffer := changedSets(table, old)
	if !onlySetsDiffer {
		return planReplacement(table, old, generation)
	}
	a.result.EstablishedPackets = establishedPackets(&old.Table)
	if len(update) == 0 {
		return step{outcome: Unchanged}, nil
	}
	return step{outcome: Updated, transaction: encodeUpdate(table, update, generation)}, nil
}

// planFromSnapshot returns the step from the reading that the caller has passed, without a transaction
// if there is none. A step without a transaction must not be used, because only the kernel's
// rejection of a transaction reports that the reading is outdated. The reading is used once.
func (a *applier) planFromSnapshot() step {
	last := a.snapshot
	a.snapshot = Snapshot{}
	if len(last.found) != 1 || last.Generation == 0 {
		return step{}
	}
	s, err := a.planFrom(&last.found[0], last.Generation)
	// Counters change without a new generation, and a replacement restores their values.
	if err != nil || s.outcome == Replaced && hasCounters(&last.found[0].Table) {
		return step{}
	}
	return s
}

// Plan returns the outcome that [Apply] would have for the tables of the namespace, and the
// transaction that it would send, nil if none. It changes nothing.
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
			if s, err = a.plan(); !errors.Is(err, errTableDeleted) {
				break
			}
		}
		return err
	})
	return s.outcome, s.transaction, err
}

// errTableDeleted is the error if the table was deleted between two requests.
var errTableDeleted = errors.New("the table was deleted concurrently")

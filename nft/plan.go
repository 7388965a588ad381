package nft

import (
	"errors"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A step is a planned change from the current to the desired ruleset.
type step struct {
	outcome Outcome
	// transaction is nil if no change is needed. The kernel rejects it if the ruleset has changed
	// since it was read.
	transaction *Transaction
	// intermediate, if not nil, must be committed before transaction: it drops new TCP connections
	// while capture moves to another base chain; see [gate]. After this commit, plan again.
	intermediate *Transaction
	// intermediateReplaces reports whether intermediate replaces the rules. It does if the gate
	// already exists.
	intermediateReplaces bool
}

// plan returns the step to the desired ruleset. It reads the current table, unless the snapshot
// from the caller is sufficient.
func (a *applier) plan() (step, error) {
	a.resetResult()
	if s := a.planFromSnapshot(); s.transaction != nil {
		return s, nil
	}
	// Discard the values that planFromSnapshot has set.
	a.result.EstablishedPackets, a.found = 0, nil
	// A first installation does not read the rules, because its transaction fails if another
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

// planFrom returns the step from the old table, which was read at the generation, to the desired
// table.
func (a *applier) planFrom(old *foundTable, generation uint32) (step, error) {
	table := &a.desired.Tables[0]
	a.found = []rules.Table{old.Table}
	changes, onlySetsDiffer := changedSets(table, old)
	if !onlySetsDiffer {
		return planReplacement(table, old, generation)
	}
	a.result.EstablishedPackets = establishedPackets(&old.Table)
	if len(changes) == 0 {
		return step{outcome: Unchanged}, nil
	}
	return step{outcome: Updated, transaction: encodeUpdate(table, changes, generation)}, nil
}

// planFromSnapshot returns the step from the snapshot that the caller of Apply has passed, and
// clears the snapshot. Discard the step if it has no transaction: the snapshot may be outdated, and
// only the kernel's generation check of a transaction detects this.
func (a *applier) planFromSnapshot() step {
	s := a.snapshot
	a.snapshot = Snapshot{}
	if len(s.found) != 1 || s.Generation == 0 {
		return step{}
	}
	planned, err := a.planFrom(&s.found[0], s.Generation)
	// A replacement restores the values of counters, which change without a new generation.
	if err != nil || planned.outcome == Replaced && hasCounters(&s.found[0].Table) {
		return step{}
	}
	return planned
}

// Plan returns the outcome that [Apply] would have for the nftables table, and the last transaction
// that Apply would commit, or nil if the table is up to date. Plan omits the additional
// transactions that move capture to another base chain, ignores routes, and changes nothing.
func Plan(ns *netns.NS, rs rules.Ruleset) (Outcome, *Transaction, error) {
	p, err := Prepare(rs)
	if err != nil {
		return "", nil, err
	}
	s, err := withSocket(ns, func(c *conn) (s step, err error) {
		a := newApplier(c, p, ApplyOptions{})
		for range maxAttempts {
			if s, err = a.plan(); !errors.Is(err, errTableDeleted) {
				break
			}
		}
		return s, err
	})
	return s.outcome, s.transaction, err
}

// errTableDeleted is the error if another process deletes the table between two requests of a read.
var errTableDeleted = errors.New("another process deleted the table while it was read")

package compat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A writer replaces tables one after another in the namespace of the thread, and can roll back.
type writer struct {
	replaced []replacedRules
	// rollbackFailed is set if a rollback failed.
	rollbackFailed bool
}

// replacedRules contains Sluice's rules of a table before they were replaced.
type replacedRules struct {
	id      xtables.ID
	rules   encodedRules
	hasGate bool // see step.hasGate
}

// run executes the steps. If one fails, it rolls back all tables that the writer has replaced.
func (w *writer) run(list []step) error {
	for _, s := range list {
		if err := w.write(s); err != nil {
			return w.undo(err)
		}
		if s.hasGate {
			nft.WaitForPackets()
		}
	}
	return nil
}

// write executes one step.
func (w *writer) write(s step) error {
	desired, err := encodeSluiceRules(s.id, s.desired)
	if err != nil {
		return err
	}
	before, err := replaceSluiceRules(s.id, desired)
	if err == nil {
		w.replaced = append(w.replaced, replacedRules{s.id, before, s.hasGate})
	}
	return err
}

// insertGates inserts the gate before the rules of each table that saves marks; see SavesMarks.
func (w *writer) insertGates(current []rules.Table) error {
	var list []step
	for i := range current {
		if t := &current[i]; SavesMarks(t) {
			id := xtables.ID{Family: t.Family, Name: t.Name}
			list = append(list, step{id, withGate(t.Family, t, anyTCP()), true})
		}
	}
	return w.run(list)
}

// undo restores Sluice's rules in the tables, the last replaced table first. It returns the reason
// for the rollback, joined with the errors of the rollback. A table that was created remains,
// without rules.
func (w *writer) undo(reason error) error {
	errs := []error{reason}
	for i, old := range slices.Backward(w.replaced) {
		if i < len(w.replaced)-1 && old.hasGate {
			nft.WaitForPackets()
		}
		if _, err := replaceSluiceRules(old.id, old.rules); err != nil {
			errs, w.rollbackFailed = append(errs, fmt.Errorf("roll back: %w", err)), true
		}
	}
	w.replaced = nil
	return errors.Join(errs...)
}

// resultAfterFailure returns the result of a failed Apply. found contains Sluice's tables before
// the call. The result is zero unless a rollback failed.
func (w *writer) resultAfterFailure(found []rules.Table) Result {
	switch {
	case !w.rollbackFailed:
		return Result{}
	case len(found) == 0:
		return Result{Result: nft.Result{Outcome: nft.Created}, Backend: BackendLegacy}
	}
	return Result{Result: nft.Result{Outcome: nft.Replaced}, Backend: BackendLegacy}
}

// replaceSluiceRules atomically replaces Sluice's rules in a table, without changing foreign rules,
// and returns the old rules. Rules that the table already contains keep their counters.
func replaceSluiceRules(id xtables.ID, desired encodedRules) (before encodedRules, err error) {
	err = changeTable(id, func(t *xtables.Table) error {
		counted := desired.withCounters(t)
		if before, err = removeSluiceRules(t); err != nil {
			return err
		}
		return counted.insertInto(t)
	})
	return before, err
}

// changeTable changes a table atomically in the namespace of the thread. If another process changes
// the table at the same time, changeTable reads the table again and repeats the change.
func changeTable(id xtables.ID, change func(*xtables.Table) error) error {
	var err error
	for range maxAttempts {
		var t *xtables.Table
		if t, err = xtables.Open(nil, id.Family, id.Name); err != nil {
			return err
		}
		if err = change(t); err != nil {
			return err
		}
		err = xtables.Replace(nil, t)
		// A ReplacedError may report that another process changed the table afterwards. The
		// caller's next read finds such changes.
		if replaced := (*xtables.ReplacedError)(nil); errors.As(err, &replaced) {
			return nil
		}
		if !errors.Is(err, xtables.ErrChanged) {
			return err
		}
	}
	return fmt.Errorf("gave up after %d attempts: %w", maxAttempts, err)
}

// withLock runs do while it holds the lock of the thread's namespace, so that other processes that
// apply rules wait. The lock is advisory. If another process does not release the lock within
// [netns.LockTimeout], or if the namespace has no lock, withLock runs do without it and exclusive
// is false.
func withLock(do func(exclusive bool) error) error {
	release, acquired, err := (*netns.NS)(nil).Lock(netns.LockTimeout)
	if err != nil {
		return do(false)
	}
	defer release()
	return do(acquired)
}

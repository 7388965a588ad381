package compat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// A writer replaces tables in the namespace of the thread in sequence, and can roll back.
type writer struct {
	log []written
	// stuck reports that a rollback failed.
	stuck bool
}

// written contains Sluice's rules of a table before they were replaced.
type written struct {
	id     xtables.ID
	before encoded
	gated  bool // as in step
}

// do executes the steps. If one fails, it rolls back.
func (w *writer) do(list []step) error {
	for _, s := range list {
		if err := w.write(s); err != nil {
			return w.undo(err)
		}
		if s.gated {
			nft.WaitForPackets()
		}
	}
	return nil
}

// write executes one step.
func (w *writer) write(s step) error {
	want, err := encodeOwn(s.id, s.want)
	if err != nil {
		return err
	}
	before, err := replaceOwn(s.id, want)
	if err == nil {
		w.log = append(w.log, written{s.id, before, s.gated})
	}
	return err
}

// gateMarks puts the gate before the rules of mangle that interfere with rules in nf_tables; see
// savesMarks.
func (w *writer) gateMarks(current []rules.Table) error {
	var list []step
	for i := range current {
		if t := &current[i]; savesMarks(t) {
			id := xtables.ID{Family: t.Family, Name: t.Name}
			list = append(list, step{id, withGate(t.Family, t, anyTCP()), true})
		}
	}
	return w.do(list)
}

// undo restores Sluice's rules of the tables, the last one first. It returns the reason, joined
// with the errors of the rollback. Tables that were created remain without rules.
func (w *writer) undo(reason error) error {
	errs := []error{reason}
	for i, done := range slices.Backward(w.log) {
		if i < len(w.log)-1 && done.gated {
			nft.WaitForPackets()
		}
		if _, err := replaceOwn(done.id, done.before); err != nil {
			errs, w.stuck = append(errs, fmt.Errorf("not undone: %w", err)), true
		}
	}
	w.log = nil
	return errors.Join(errs...)
}

// left returns the result of a failed Apply in a namespace that had these tables of Sluice. It is
// zero unless a rollback failed.
func (w *writer) left(found []rules.Table) Result {
	switch {
	case !w.stuck:
		return Result{}
	case len(found) == 0:
		return Result{Result: nft.Result{Outcome: nft.Created}, Backend: BackendLegacy}
	}
	return Result{Result: nft.Result{Outcome: nft.Replaced}, Backend: BackendLegacy}
}

// replaceOwn atomically replaces Sluice's rules of a table, without other changes, and returns the
// old ones. Rules that are equal to present ones keep their counters.
func replaceOwn(id xtables.ID, want encoded) (encoded, error) {
	for range maxAttempts {
		t, err := xtables.Open(nil, id.Family, id.Name)
		if err != nil {
			return encoded{}, err
		}
		counted := want.withCounters(t)
		before, err := removeOwn(t)
		if err != nil {
			return encoded{}, err
		}
		if err := counted.insertInto(t); err != nil {
			return encoded{}, err
		}
		err = xtables.Replace(nil, t)
		// The next read finds changes that another process made immediately after.
		if replaced := (*xtables.ReplacedError)(nil); err == nil || errors.As(err, &replaced) {
			return before, nil
		}
		if !errors.Is(err, xtables.ErrChanged) {
			return encoded{}, err
		}
	}
	return encoded{}, fmt.Errorf("given up after %d attempts: %w", maxAttempts, xtables.ErrChanged)
}

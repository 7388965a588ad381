package compat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// A writer replaces tables in the namespace of the thread, one after the other, and can roll back.
type writer struct {
	log []written
	// stuck reports that something could not be rolled back.
	stuck bool
}

// written is our share of a table before it was replaced.
type written struct {
	id     xtables.ID
	before encoded
}

// do carries out the steps. When one fails, it rolls back.
func (w *writer) do(list []step) error {
	for _, s := range list {
		if err := w.write(s); err != nil {
			return w.undo(err)
		}
	}
	return nil
}

// write carries out one step.
func (w *writer) write(s step) error {
	want, err := encodeOwn(s.id, s.want)
	if err != nil {
		return err
	}
	before, err := replaceOwn(s.id, want)
	if err == nil {
		w.log = append(w.log, written{s.id, before})
	}
	return err
}

// gateMarks replaces the rules of mangle that disturb those of nf_tables by the gate: see
// savesMarks.
func (w *writer) gateMarks(current []rules.Table) error {
	var list []step
	for i := range current {
		if t := &current[i]; savesMarks(t) {
			list = append(list, step{xtables.ID{Family: t.Family, Name: t.Name}, withGate(t.Family, nil)})
		}
	}
	return w.do(list)
}

// undo restores our share of the tables, the last one first. It returns the reason, joined with the
// errors of the rollback. Tables that were created stay, without rules.
func (w *writer) undo(reason error) error {
	errs := []error{reason}
	for _, done := range slices.Backward(w.log) {
		if _, err := replaceOwn(done.id, done.before); err != nil {
			errs, w.stuck = append(errs, fmt.Errorf("not undone: %w", err)), true
		}
	}
	w.log = nil
	return errors.Join(errs...)
}

// left returns the result of an Apply that has failed in a namespace that had these tables of ours.
// It is zero unless something could not be rolled back.
func (w *writer) left(found []rules.Table) Result {
	switch {
	case !w.stuck:
		return Result{}
	case len(found) == 0:
		return Result{Result: nft.Result{Outcome: nft.Created}, Backend: BackendLegacy}
	}
	return Result{Result: nft.Result{Outcome: nft.Replaced}, Backend: BackendLegacy}
}

// replaceOwn replaces our share of a table, atomically and with nothing else changed, and returns
// what it was.
func replaceOwn(id xtables.ID, want encoded) (encoded, error) {
	for range maxAttempts {
		t, err := xtables.Open(nil, id.Family, id.Name)
		if err != nil {
			return encoded{}, err
		}
		before, err := removeOwn(t)
		if err != nil {
			return encoded{}, err
		}
		if err := want.insertInto(t); err != nil {
			return encoded{}, err
		}
		err = xtables.Replace(nil, t)
		// What another process did to the table right after is found by the next reading.
		if replaced := (*xtables.ReplacedError)(nil); err == nil || errors.As(err, &replaced) {
			return before, nil
		}
		if !errors.Is(err, xtables.ErrChanged) {
			return encoded{}, err
		}
	}
	return encoded{}, fmt.Errorf("given up after %d attempts: %w", maxAttempts, xtables.ErrChanged)
}

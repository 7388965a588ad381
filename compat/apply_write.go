package compat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// A writer replaces tables in the namespace of the thread, one after the other, and can take all of that back.
type writer struct {
	log []written
	// stuck tells that something could not be taken back.
	stuck bool
}

// written is what a table had of ours before it was replaced.
type written struct {
	id     xtables.ID
	before part
}

// do carries out the steps. When one fails, it takes back what has been written.
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
	want, err := newPart(s.id, s.want)
	if err != nil {
		return err
	}
	before, err := exchange(s.id, want)
	if err == nil {
		w.log = append(w.log, written{s.id, before})
	}
	return err
}

// gateMarks puts the gate in the place of mangle's rules that disturb those of nftables: see savesMarks.
func (w *writer) gateMarks(live []rules.Table) error {
	var list []step
	for i := range live {
		if t := &live[i]; savesMarks(t) {
			list = append(list, step{xtables.ID{Family: t.Family, Name: t.Name}, withGate(t.Family, nil)})
		}
	}
	return w.do(list)
}

// undo puts back what the tables had of ours, the last one first, and returns the error that was the reason with those that it meets.
// Tables that came into being stay, without rules.
func (w *writer) undo(reason error) error {
	faults := []error{reason}
	for _, done := range slices.Backward(w.log) {
		if _, err := exchange(done.id, done.before); err != nil {
			faults, w.stuck = append(faults, fmt.Errorf("not undone: %w", err)), true
		}
	}
	w.log = nil
	return errors.Join(faults...)
}

// left is the result of an Apply that has failed, in a namespace where these tables of ours were found: nothing, unless something could not
// be taken back.
func (w *writer) left(found []rules.Table) Result {
	switch {
	case !w.stuck:
		return Result{}
	case len(found) == 0:
		return Result{Result: nft.Result{Outcome: nft.Created}, Engine: EngineLegacy}
	}
	return Result{Result: nft.Result{Outcome: nft.Replaced}, Engine: EngineLegacy}
}

// exchange replaces what is ours in a table, at once and with nothing else of it changed, and returns what that was.
func exchange(id xtables.ID, want part) (part, error) {
	for range maxAttempts {
		t, err := xtables.Open(nil, id.Family, id.Name)
		if err != nil {
			return part{}, err
		}
		before, err := takePart(t)
		if err != nil {
			return part{}, err
		}
		if err := want.putInto(t); err != nil {
			return part{}, err
		}
		err = xtables.Replace(nil, t)
		// What somebody else has done to the table right after is for the next reading to find.
		if replaced := (*xtables.ReplacedError)(nil); err == nil || errors.As(err, &replaced) {
			return before, nil
		}
		if !errors.Is(err, xtables.ErrChanged) {
			return part{}, err
		}
	}
	return part{}, fmt.Errorf("given up after %d attempts: %w", maxAttempts, xtables.ErrChanged)
}

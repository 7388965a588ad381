package compat

import (
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// A legacyApplier is one call of the legacy backend's Apply, in the namespace of the thread.
type legacyApplier struct {
	want tables
	// result has an outcome as soon as the rules are in place.
	result Result
	writer writer
	// found are Sluice's tables of both backends before the call.
	found []rules.Table
}

// run applies the rules, with their routes before and after. exclusive reports whether other
// processes wait for the lock.
func (a *legacyApplier) run(want rules.Routing, exclusive bool) (Result, error) {
	routes, err := route.Ensure(nil, want)
	if err != nil {
		return Result{}, err
	}
	if err = a.apply(); err != nil {
		stay := a.found
		if a.result.Moved {
			stay = a.want.list()
		}
		if exclusive {
			err = errors.Join(err, routes.Rollback(stay))
		}
		if a.result.Outcome == "" {
			return a.writer.left(a.found), err
		}
		return a.result, err
	}
	a.result.Routes, err = routes.Finish(len(a.found) > 0, exclusive)
	if a.result.Outcome == nft.Unchanged && a.result.Routes > 0 {
		a.result.Outcome = nft.Updated
	}
	return a.result, err
}

// apply replaces the tables, and then removes Sluice's rules from nf_tables.
func (a *legacyApplier) apply() error {
	others, err := nftTables()
	if err != nil {
		return err
	}
	a.found = others
	if len(others) == 0 {
		a.result, err = a.replace(a.want)
		if err != nil {
			a.result = Result{}
		}
		return err
	}
	gated, err := a.replace(gateSavedMarks(a.want))
	if err != nil {
		return err
	}
	nft.WaitForPackets()
	if _, err := nft.RemoveRules(nil); err != nil {
		return a.writer.undo(fmt.Errorf("remove our rules from nftables: %w", err))
	}
	// From here on nothing can be rolled back, because the rules in nf_tables are removed.
	a.writer, a.result = writer{}, gated
	a.result.Moved, a.result.Outcome = true, nft.Replaced
	if _, err := a.replace(a.want); err != nil {
		return fmt.Errorf("the rules are in place, but do not let TCP through yet: %w", err)
	}
	a.result.Rules = a.want.count()
	return nil
}

// gateSavedMarks returns the tables with a gate before rules that must not read the marks of the
// rules in nf_tables.
func gateSavedMarks(want tables) tables {
	gated := tables{}
	for id, t := range want {
		gated[id] = t
		if savesMarks(t) {
			gated[id] = withGate(id.Family, t, anyTCP())
		}
	}
	return gated
}

// replace replaces tables until the kernel holds the desired ones. A process that ignores the lock
// may write meanwhile; the process that reads last wins.
func (a *legacyApplier) replace(want tables) (Result, error) {
	result := Result{Backend: BackendLegacy, Result: nft.Result{Rules: want.count()}}
	own := ownAndPreceding
	for range maxAttempts {
		current, err := readLegacy(own)
		if err != nil {
			return result, a.writer.undo(err)
		}
		// Move Sluice's rules to the front only once, because two programs that both do so would
		// never stop.
		own = ownRules
		list := steps(want, current)
		if result.Outcome == "" {
			result.Outcome = outcomeOf(current, list)
			a.found = append(a.found, current.list()...)
		}
		if len(list) == 0 {
			result.EstablishedPackets = establishedPackets(want, current)
			return result, nil
		}
		if err := a.writer.do(list); err != nil {
			return result, err
		}
	}
	const format = "gave up after %d attempts because of concurrent changes by other processes"
	return result, a.writer.undo(fmt.Errorf(format, maxAttempts))
}

// outcomeOf returns the outcome of the steps from the current tables.
func outcomeOf(current tables, list []step) nft.Outcome {
	switch {
	case len(list) == 0:
		return nft.Unchanged
	case len(current) == 0:
		return nft.Created
	}
	return nft.Replaced
}

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
	desired tables
	// result is zero until the rules are replaced.
	result Result
	writer writer
	// found contains Sluice's tables of both backends before the call.
	found []rules.Table
}

// run adds missing routes, applies the rules, and removes unneeded routes. exclusive reports
// whether the caller holds the lock of the namespace.
func (a *legacyApplier) run(desired rules.Routing, exclusive bool) (Result, error) {
	routes, err := route.Ensure(nil, desired)
	if err != nil {
		return Result{}, err
	}
	if err = a.apply(); err != nil {
		remaining := a.found
		if a.result.Moved {
			remaining = a.desired.list()
		}
		if exclusive {
			err = errors.Join(err, routes.Rollback(remaining))
		}
		if a.result.Outcome == "" {
			return a.writer.resultAfterFailure(a.found), err
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
	inNFT, err := nftTables()
	if err != nil {
		return err
	}
	a.found = inNFT
	if len(inNFT) == 0 {
		a.result, err = a.replace(a.desired)
		if err != nil {
			a.result = Result{}
		}
		return err
	}
	gated, err := a.replace(gateSavedMarks(a.desired))
	if err != nil {
		return err
	}
	nft.WaitForPackets()
	if _, err := nft.RemoveRules(nil); err != nil {
		return a.writer.undo(fmt.Errorf("remove Sluice's rules from nftables: %w", err))
	}
	// After the rules in nf_tables are removed, nothing can be rolled back.
	a.writer, a.result = writer{}, gated
	a.result.Moved, a.result.Outcome = true, nft.Replaced
	if _, err := a.replace(a.desired); err != nil {
		return fmt.Errorf("the rules are in iptables-legacy, but drop TCP packets, because chain %s"+
			" cannot be removed: %w", gateChain, err)
	}
	a.result.Rules = a.desired.count()
	return nil
}

// gateSavedMarks returns the tables with a gate before rules that must not read the marks of the
// rules in nf_tables.
func gateSavedMarks(desired tables) tables {
	gated := tables{}
	for id, t := range desired {
		gated[id] = t
		if SavesMarks(t) {
			gated[id] = withGate(id.Family, t, anyTCP())
		}
	}
	return gated
}

// replace replaces tables until the kernel contains the desired tables. If a process that ignores
// the lock changes them at the same time, the process that reads last prevails.
func (a *legacyApplier) replace(desired tables) (Result, error) {
	result := Result{Backend: BackendLegacy, Result: nft.Result{Rules: desired.count()}}
	selection := ownAndPreceding
	for range maxAttempts {
		current, err := readLegacy(selection)
		if err != nil {
			return result, a.writer.undo(err)
		}
		// Move Sluice's jumps before foreign rules only once. Otherwise two programs that both do
		// so would never stop.
		selection = ownRules
		remaining := steps(desired, current)
		if result.Outcome == "" {
			result.Outcome = outcomeOf(current, remaining)
			a.found = append(a.found, current.list()...)
		}
		if len(remaining) == 0 {
			result.EstablishedPackets = establishedPackets(desired, current)
			return result, nil
		}
		if err := a.writer.do(remaining); err != nil {
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

package compat

import (
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// A legacyApplier is one call of the legacy backend's Apply, in the namespace of the thread.
type legacyApplier struct {
	desired tables
	// result is zero until the rules are in iptables-legacy.
	result Result
	writer writer
	// found contains the tables of Sluice that the call has found in either backend.
	found []rules.Table
	// removeFromNFT is nft.RemoveRules, except in tests.
	removeFromNFT func(*netns.NS) (bool, error)
}

// run adds missing routes, applies the rules, and removes unneeded routes. exclusive reports
// whether the caller holds the lock of the namespace.
func (a *legacyApplier) run(routing rules.Routing, exclusive bool) (Result, error) {
	routes, err := route.Ensure(nil, routing)
	if err != nil {
		return Result{}, err
	}
	if err = a.apply(); err != nil {
		installed := a.found
		if a.result.Moved {
			installed = a.desired.list()
		}
		// After a failed rollback, rules that need the routes may remain.
		if exclusive && !a.writer.rollbackFailed {
			err = errors.Join(err, routes.Rollback(installed))
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
	inNFT, err := nftTables(nil)
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
	result, err := a.replace(withGates(a.desired))
	if err != nil {
		return err
	}
	nft.WaitForPackets()
	if _, err := a.removeFromNFT(nil); err != nil {
		err = fmt.Errorf("remove Sluice's rules from nftables: %w", err)
		// The kernel may have removed the rules although its answer was lost. Without the rules in
		// nf_tables, a rollback would leave no rules.
		remaining, readErr := nftTables(nil)
		switch {
		case readErr != nil:
			a.setMoved(result)
			return fmt.Errorf("the rules are in iptables-legacy, but drop TCP packets, because it is"+
				" unknown whether the rules in nftables were removed: %w",
				errors.Join(err, readErr))
		case len(remaining) > 0:
			return a.writer.undo(err)
		}
	}
	a.setMoved(result)
	if _, err := a.replace(a.desired); err != nil {
		return fmt.Errorf("the rules are in iptables-legacy, but drop TCP packets, because chain %s"+
			" cannot be removed: %w", gateChain, err)
	}
	a.result.Rules = a.desired.count()
	return nil
}

// setMoved records that the rules are in iptables-legacy. From then on nothing is rolled back,
// because the rules in nf_tables may have been removed.
func (a *legacyApplier) setMoved(result Result) {
	a.writer, a.result = writer{}, result
	a.result.Moved, a.result.Outcome = true, nft.Replaced
}

// withGates returns the tables with the gate before the rules of each table that saves marks; see
// SavesMarks. Without the gate, these rules would mistake marks of the rules in nf_tables for their
// own marks.
func withGates(desired tables) tables {
	changed := tables{}
	for id, t := range desired {
		changed[id] = t
		if SavesMarks(t) {
			changed[id] = withGate(id.Family, t, anyTCP())
		}
	}
	return changed
}

// replace replaces tables until it reads the desired tables from the kernel, at most maxAttempts
// times. It overwrites changes by processes that ignore the lock, except changes after its last
// read.
func (a *legacyApplier) replace(desired tables) (Result, error) {
	result := Result{Backend: BackendLegacy, Result: nft.Result{Rules: desired.count()}}
	selection := sluiceAndPrecedingRules
	for range maxAttempts {
		current, err := readLegacy(selection)
		if err != nil {
			return result, a.writer.undo(err)
		}
		// Only the first attempt reads the foreign rules that precede Sluice's jumps, so that the
		// jumps are moved at most once. Otherwise Sluice and another program that also moves its
		// jumps to the front would undo each other's changes until maxAttempts.
		selection = sluiceRules
		pending := steps(desired, current)
		if result.Outcome == "" {
			result.Outcome = outcomeOf(current, pending)
			a.found = append(a.found, current.list()...)
		}
		if len(pending) == 0 {
			result.EstablishedPackets = establishedPackets(desired, current)
			return result, nil
		}
		if err := a.writer.run(pending); err != nil {
			return result, err
		}
	}
	const format = "replace Sluice's rules in iptables-legacy: gave up after %d attempts: %w"
	return result, a.writer.undo(fmt.Errorf(format, maxAttempts, xtables.ErrChanged))
}

// outcomeOf returns the outcome of executing the steps on the current tables.
func outcomeOf(current tables, list []step) nft.Outcome {
	switch {
	case len(list) == 0:
		return nft.Unchanged
	case len(current) == 0:
		return nft.Created
	}
	return nft.Replaced
}

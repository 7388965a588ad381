package compat

import (
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// nftBackend is package nft, and the removal of what was ours in iptables-legacy.
type nftBackend struct{}

func (nftBackend) Engine() Engine { return EngineNFT }

// Apply implements Backend. Where iptables-legacy has rules of ours that nftables' would disturb, a gate takes their place before.
func (b nftBackend) Apply(ns *netns.NS, rs rules.Ruleset) (Result, error) {
	return b.Mend(ns, rs, Comparison{})
}

// Mend implements Backend.
func (nftBackend) Mend(ns *netns.NS, rs rules.Ruleset, found Comparison) (result Result, err error) {
	err = inside(ns, func() (err error) { // once: to enter takes as long as to look into iptables-legacy
		result, err = applyNFT(rs, func(ns *netns.NS, rs rules.Ruleset) (nft.Result, error) {
			return nft.ApplyAfter(ns, rs, found.reading)
		})
		return err
	})
	return result, err
}

// applyNFT is Mend in the namespace of the thread, where apply is nft.ApplyAfter with what was found.
func applyNFT(rs rules.Ruleset, apply func(*netns.NS, rules.Ruleset) (nft.Result, error)) (Result, error) {
	old, err := legacyHeld(nil)
	if err != nil {
		return Result{}, err
	}
	gates := &writer{}
	if len(old) > 0 {
		if err := locked(func(bool) error { return gates.gateMarks(old) }); err != nil {
			return gates.left(old), err
		}
	}
	applied, err := apply(nil, rs)
	return settle(rs, old, gates, applied, err)
}

// settle ends an Apply of which nftables' part has ended with the error, nil if it did not fail: the old rules in iptables-legacy go, or
// come back behind the gates.
func settle(rs rules.Ruleset, old []rules.Table, gates *writer, applied nft.Result, err error) (Result, error) {
	if err != nil && !tookPlace(applied) {
		if len(gates.log) > 0 {
			err = locked(func(bool) error { return gates.undo(err) })
		}
		return gates.left(old), err
	}
	result := Result{Result: applied, Engine: EngineNFT}
	if applied.Outcome == nft.Unchanged && len(old) == 0 {
		return result, err
	}
	if len(old) > 0 {
		result.Outcome = nft.Replaced
	}
	// Looked at anew: another process may have applied to iptables-legacy while this one waited for it.
	now, clearErr := legacyHeld(nil)
	if clearErr == nil && len(now) > 0 {
		result.Moved, result.Outcome = true, nft.Replaced
		clearErr = locked(func(bool) error { return result.clearLegacy(rs) })
	}
	if clearErr != nil {
		clearErr = fmt.Errorf("the rules are in place in nftables, but not all of ours in iptables-legacy are gone: %w", clearErr)
	}
	return result, errors.Join(err, clearErr)
}

// tookPlace tells whether the rules of an Apply that has failed may be in nftables nevertheless.
func tookPlace(applied nft.Result) bool {
	if applied.Outcome == "" {
		return false
	}
	// The kernel's answer may have been lost; and now it may answer again.
	held, err := nftHeld()
	return len(held) > 0 || err != nil
}

// clearLegacy removes our rules from iptables-legacy, in the namespace of the thread.
func (r *Result) clearLegacy(rs rules.Ruleset) error {
	found, err := nft.Read(nil)
	// Somebody else may have moved the rules the other way meanwhile.
	if len(found.Tables) == 0 || err != nil {
		return err
	}
	if _, err := removeLegacy(); err != nil {
		return err
	}
	if !rules.Equal(rules.Ruleset{Tables: rs.Tables}, rules.Ruleset{Tables: found.Tables}) {
		return nil // somebody else's by now, and so are the routes
	}
	// To nft.Apply ::6 may have been Istio's.
	pruned, err := route.Prune(nil, rs.Routing)
	r.Routes += pruned
	return err
}

// Plan implements Backend.
func (nftBackend) Plan(ns *netns.NS, rs rules.Ruleset) (Plan, error) {
	outcome, transaction, err := nft.Plan(ns, rs)
	if err != nil {
		return Plan{}, err
	}
	old, err := legacyHeld(ns)
	if err != nil {
		return Plan{}, err
	}
	p := nftPlan(outcome, transaction)
	if len(old) > 0 {
		p.Outcome = nft.Replaced
	}
	return p, nil
}

// Draft implements Backend.
func (nftBackend) Draft(rs rules.Ruleset) (Plan, error) {
	transaction, err := nft.Encode(rs)
	if err != nil {
		return Plan{}, err
	}
	return nftPlan(nft.Created, transaction), nil
}

func nftPlan(outcome nft.Outcome, t *nft.Transaction) Plan {
	p := Plan{Engine: EngineNFT, Outcome: outcome}
	if t != nil {
		p.Text, p.Bytes = t.String(), len(t.Bytes())
	}
	return p
}

// Check implements Backend.
func (b nftBackend) Check(ns *netns.NS, rs rules.Ruleset) (Comparison, error) {
	return b.Recheck(ns, rs, Comparison{})
}

// Recheck implements Backend. As long as our table stays untouched, nothing of ours has come into iptables-legacy either: to move rules
// there is to take them out of the table.
func (nftBackend) Recheck(ns *netns.NS, rs rules.Ruleset, last Comparison) (Comparison, error) {
	found, err := nft.ReadSince(ns, last.Generation, rs.Routing)
	if err != nil {
		return Comparison{}, err
	}
	c := Comparison{Engine: EngineNFT, Rules: last.Rules, Generation: found.Generation}
	if c.Generation != 0 && c.Generation == last.Generation {
		c.Differences = rules.Compare(rules.Ruleset{Routing: rs.Routing}, found.Ruleset)
		return c, nil
	}
	old, err := legacyHeld(ns)
	c.Differences = append(rules.Compare(rs, found.Ruleset), elsewhere(EngineLegacy, old)...)
	c.Rules = anyRules(found.Tables)
	if len(c.Differences) > 0 {
		c.reading = found
	}
	return c, err
}

// Read implements Backend.
func (nftBackend) Read(ns *netns.NS) (rules.Ruleset, error) { return nft.Read(ns) }

// Remove implements Backend.
func (nftBackend) Remove(ns *netns.NS) (bool, error) {
	others, err := legacyHeld(ns)
	switch {
	case err != nil:
		return false, err
	case len(others) > 0:
		removed, err := nft.RemoveRules(ns)
		return removed, withoutEngine(err)
	}
	removed, err := nft.Remove(ns)
	return removed, withoutEngine(err)
}

// withoutEngine is nil for the error that the kernel has no nf_tables: there is nothing of ours in what it has not.
func withoutEngine(err error) error {
	if nft.IsNotSupported(err) {
		return nil
	}
	return err
}

// legacyHeld returns the tables of ours in iptables-legacy, none also where it cannot be told for lack of a permission: those who may
// not look there cannot have written there.
func legacyHeld(ns *netns.NS) ([]rules.Table, error) {
	var held []rules.Table
	err := inside(ns, func() error {
		live, err := readLegacy(oursIn)
		held = live.list()
		return err
	})
	if IsNotPermitted(err) || IsNotSupported(err) {
		return nil, nil
	}
	return held, err
}

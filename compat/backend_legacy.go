package compat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// legacyBackend writes the tables of iptables-legacy and ip6tables-legacy: see [Translate] for the rules, and [steps] for their order.
type legacyBackend struct{}

func (legacyBackend) Engine() Engine { return EngineLegacy }

// Apply implements Backend.
func (legacyBackend) Apply(ns *netns.NS, rs rules.Ruleset) (Result, error) {
	want, err := Translate(rs)
	if err != nil {
		return Result{}, err
	}
	result, err := applyLegacy(ns, want)
	return result, diagnose(err, rs)
}

// Mend implements Backend. The kernel cannot tell that nothing has changed since: everything is read again.
func (b legacyBackend) Mend(ns *netns.NS, rs rules.Ruleset, _ Comparison) (Result, error) {
	return b.Apply(ns, rs)
}

// applyLegacy is Apply for tables that have been translated.
func applyLegacy(ns *netns.NS, want Legacy) (result Result, err error) {
	err = inside(ns, func() error {
		return locked(func(taken bool) (err error) {
			a := applier{want: holdingOf(want.Tables)}
			result, err = a.withRoutes(want.Routing, taken)
			return err
		})
	})
	return result, err
}

// Plan implements Backend.
func (legacyBackend) Plan(ns *netns.NS, rs rules.Ruleset) (Plan, error) {
	want, err := Translate(rs)
	if err != nil {
		return Plan{}, err
	}
	var live holding
	var others []rules.Table
	err = inside(ns, func() (err error) {
		if live, err = readLegacy(inPlace); err == nil {
			others, err = nftHeld()
		}
		return err
	})
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Engine: EngineLegacy, Outcome: outcomeOf(live, steps(holdingOf(want.Tables), live))}
	if len(others) > 0 {
		p.Outcome = nft.Replaced
	}
	if p.Outcome != nft.Unchanged {
		p.Text, err = SaveText(want)
	}
	return p, err
}

// Draft implements Backend.
func (legacyBackend) Draft(rs rules.Ruleset) (Plan, error) {
	want, err := Translate(rs)
	if err != nil {
		return Plan{}, err
	}
	text, err := SaveText(want)
	return Plan{Engine: EngineLegacy, Outcome: nft.Created, Text: text}, err
}

// Check implements Backend.
func (legacyBackend) Check(ns *netns.NS, rs rules.Ruleset) (Comparison, error) {
	want, err := Translate(rs)
	if err != nil {
		return Comparison{}, err
	}
	found, err := readRuleset(ns, inPlace)
	if err != nil {
		return Comparison{}, err
	}
	diffs := compare(rules.Ruleset{Tables: want.Tables, Routing: want.Routing}, found)
	others, err := nft.Read(ns)
	if nft.IsNotSupported(err) {
		err = nil
	}
	diffs = append(diffs, elsewhere(EngineNFT, others.Tables)...)
	return Comparison{Engine: EngineLegacy, Differences: diffs, Rules: anyRules(found.Tables)}, err
}

// Recheck implements Backend. The kernel has no number of its changes: everything is read again.
func (b legacyBackend) Recheck(ns *netns.NS, rs rules.Ruleset, _ Comparison) (Comparison, error) {
	return b.Check(ns, rs)
}

// elsewhere are the differences that rules of ours in the engine that should have none are.
func elsewhere(e Engine, tables []rules.Table) []rules.Difference {
	var diffs []rules.Difference
	for i := range tables {
		t := &tables[i]
		n := 0
		for _, c := range t.Chains {
			n += len(c.Rules)
		}
		diffs = append(diffs, rules.Difference{
			Kind: rules.Extra, Where: e.String(), Got: fmt.Sprintf("table %s %s, with rules of ours: %d", t.Family, t.Name, n),
		})
	}
	return diffs
}

// Read implements Backend.
func (legacyBackend) Read(ns *netns.NS) (rules.Ruleset, error) { return readRuleset(ns, oursIn) }

// readRuleset returns what is ours in the tables of iptables-legacy, and our routes.
func readRuleset(ns *netns.NS, ours func(*rules.Table) *rules.Table) (rules.Ruleset, error) {
	var rs rules.Ruleset
	err := inside(ns, func() error {
		live, err := readLegacy(ours)
		if err != nil {
			return err
		}
		rs.Tables = live.list()
		rs.Routing, err = route.Read(nil)
		return err
	})
	return rs, err
}

// Remove implements Backend.
func (legacyBackend) Remove(ns *netns.NS) (bool, error) {
	var removed bool
	err := inside(ns, func() error {
		return locked(func(bool) error {
			had, err := removeLegacy()
			removed = had
			if err != nil {
				return err
			}
			if others, err := nftHeld(); len(others) > 0 || err != nil {
				return err
			}
			n, err := route.PruneAfter(had)
			removed = removed || n > 0
			return err
		})
	})
	return removed, err
}

// removeLegacy takes our rules out of all tables, in the namespace of the thread, and tells whether there were any. Nat goes first, so that
// nothing is redirected into a zone that is not chosen any more. When a table cannot be replaced, the others are nevertheless.
func removeLegacy() (bool, error) {
	live, err := readLegacy(oursIn)
	if err != nil {
		return false, err
	}
	var faults []error
	removed := false
	for _, t := range slices.Backward(live.list()) {
		_, err := exchange(xtables.ID{Family: t.Family, Name: t.Name}, part{})
		faults = append(faults, err)
		removed = removed || err == nil
	}
	return removed, errors.Join(faults...)
}

// nftHeld returns the tables of ours in nftables, in the namespace of the thread.
func nftHeld() ([]rules.Table, error) {
	found, err := nft.Read(nil)
	if nft.IsNotSupported(err) {
		return nil, nil
	}
	return found.Tables, err
}

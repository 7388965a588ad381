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

// legacyBackend is the [Backend] for the tables of iptables-legacy and ip6tables-legacy.
// [Translate] describes the rules, and [steps] the order in which tables are replaced. Except for
// the snapshot of an empty namespace in Plan, it ignores snapshots, because the kernel has no
// generation ID for these tables.
type legacyBackend struct{}

func (legacyBackend) Name() BackendName { return BackendLegacy }

// Apply implements Backend.
func (legacyBackend) Apply(ns *netns.NS, rs rules.Ruleset, _ Snapshot) (Result, error) {
	translated, err := Translate(rs)
	if err != nil {
		return Result{}, err
	}
	result, err := applyLegacy(ns, translated)
	return result, addMissingFeatures(err, rs)
}

// applyLegacy applies a translated ruleset.
func applyLegacy(ns *netns.NS, desired Legacy) (result Result, err error) {
	err = ns.DoNamed(func() error {
		return withLock(func(exclusive bool) (err error) {
			a := legacyApplier{
				desired: tablesOf(desired.Tables), removeFromNFT: nft.RemoveRules,
			}
			result, err = a.run(desired.Routing, exclusive)
			return err
		})
	})
	return result, err
}

// Plan implements Backend.
func (legacyBackend) Plan(ns *netns.NS, rs rules.Ruleset, prev Snapshot) (p Plan, err error) {
	translated, err := Translate(rs)
	if err != nil {
		return Plan{}, err
	}
	p = Plan{Backend: BackendLegacy, Outcome: nft.Created}
	if !prev.empty {
		err = ns.DoNamed(func() (err error) {
			p.Outcome, err = planLegacy(tablesOf(translated.Tables))
			return err
		})
		if err != nil {
			return Plan{}, err
		}
	}
	if p.Outcome != nft.Unchanged {
		p.Text, err = SaveText(translated)
	}
	return p, err
}

// planLegacy returns the outcome that Apply would have in the namespace of the thread. It ignores
// routes: if only routes differ, it returns Unchanged.
func planLegacy(desired tables) (nft.Outcome, error) {
	current, err := readLegacy(sluiceAndPrecedingRules)
	if err != nil {
		return "", err
	}
	inNFT, err := nftTables(nil)
	if len(inNFT) > 0 {
		return nft.Replaced, err
	}
	return outcomeOf(current, steps(desired, current)), err
}

// Check implements Backend.
func (legacyBackend) Check(ns *netns.NS, rs rules.Ruleset, _ Snapshot) (Comparison, error) {
	translated, err := Translate(rs)
	if err != nil {
		return Comparison{}, err
	}
	found, err := readRuleset(ns, sluiceAndPrecedingRules)
	if err != nil {
		return Comparison{}, err
	}
	desired := rules.Ruleset{Tables: translated.Tables, Routing: translated.Routing}
	diffs := compare(desired, found)
	inNFT, err := nftTables(ns)
	c := Comparison{
		Backend:     BackendLegacy,
		Differences: append(diffs, rulesInOtherBackend(BackendNFT, inNFT)...),
		HasRules:    hasRules(found.Tables),
		Snapshot:    Snapshot{backend: BackendLegacy},
	}
	if len(c.Differences) == 0 && rs.HasCounters() {
		c.Packets = rules.PacketsByRule(desired, found)
	}
	return c, err
}

// rulesInOtherBackend returns a difference for each of the given tables, which have rules of Sluice
// in a backend that must not have any.
func rulesInOtherBackend(backend BackendName, tables []rules.Table) []rules.Difference {
	var diffs []rules.Difference
	for i := range tables {
		t := &tables[i]
		diffs = append(diffs, rules.Difference{
			Kind: rules.Extra, Where: backend.String(),
			Got: fmt.Sprintf("table %s %s with %d rules of Sluice", t.Family, t.Name,
				t.CountRules()),
		})
	}
	return diffs
}

// Read implements Backend.
func (legacyBackend) Read(ns *netns.NS) (rules.Ruleset, error) {
	return readRuleset(ns, sluiceRules)
}

// readRuleset returns the tables that readLegacy returns for the selection, and Sluice's routes.
func readRuleset(ns *netns.NS, selection func(*rules.Table) *rules.Table) (rules.Ruleset, error) {
	var rs rules.Ruleset
	err := ns.DoNamed(func() error {
		current, err := readLegacy(selection)
		if err != nil {
			return err
		}
		rs.Tables = current.list()
		rs.Routing, err = route.Read(nil)
		return err
	})
	return rs, err
}

// Remove implements Backend.
func (legacyBackend) Remove(ns *netns.NS) (removed bool, err error) {
	err = ns.DoNamed(func() error {
		return withLock(func(bool) (err error) {
			if removed, err = removeLegacy(); err != nil {
				return err
			}
			if inNFT, err := nftTables(nil); len(inNFT) > 0 || err != nil {
				return err
			}
			n, err := route.PruneAfter(removed)
			removed = removed || n > 0
			return err
		})
	})
	return removed, err
}

// removeLegacy removes Sluice's rules from all tables in the namespace of the thread, and reports
// whether it has replaced a table. In each family it begins with nat, so that no DNS query is
// redirected without the conntrack zone that raw assigns. If a table cannot be replaced, it
// continues with the other tables, and returns all errors.
func removeLegacy() (bool, error) {
	current, err := readLegacy(sluiceRules)
	if err != nil {
		return false, err
	}
	var errs []error
	removed := false
	for _, t := range slices.Backward(current.list()) {
		_, err := replaceSluiceRules(xtables.ID{Family: t.Family, Name: t.Name}, encodedRules{})
		errs = append(errs, err)
		removed = removed || err == nil
	}
	return removed, errors.Join(errs...)
}

// nftTables returns Sluice's tables in nf_tables. A kernel without nf_tables has none.
func nftTables(ns *netns.NS) ([]rules.Table, error) {
	found, err := nft.Read(ns)
	if nft.IsNotSupported(err) {
		return nil, nil
	}
	return found.Tables, err
}

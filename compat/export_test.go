package compat

import (
	"slices"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// ApplyLegacy is the legacy backend's Apply for tables that are already translated to xtables, so
// that tests can pass tables that the kernel rejects.
var ApplyLegacy = applyLegacy

// ApplyLegacyWithFailingRollback is ApplyLegacy with a rollback that fails, because it begins with
// a table that does not exist.
func ApplyLegacyWithFailingRollback(ns *netns.NS, desired Legacy) (result Result, err error) {
	err = ns.Do(func() (err error) {
		a := legacyApplier{desired: tablesOf(desired.Tables), removeFromNFT: nft.RemoveRules}
		a.writer.replaced = []replacedRules{{id: xtables.ID{Family: rules.IPv4, Name: "none"}}}
		result, err = a.run(desired.Routing, true)
		return err
	})
	return result, err
}

// ApplyLegacyWithRemoval is ApplyLegacy with remove instead of nft.RemoveRules.
func ApplyLegacyWithRemoval(
	desired Legacy, remove func(*netns.NS) (bool, error),
) (Result, error) {
	a := legacyApplier{desired: tablesOf(desired.Tables), removeFromNFT: remove}
	return a.run(desired.Routing, true)
}

// ApplyNFT is the nft backend's Apply with apply instead of nft.Apply.
func ApplyNFT(
	ns *netns.NS, rs rules.Ruleset, apply func(*netns.NS, rules.Ruleset) (nft.Result, error),
) (result Result, err error) {
	err = ns.Do(func() (err error) {
		m := migration{ruleset: rs}
		if err := m.begin(true); err != nil {
			return err
		}
		applied, err := apply(nil, rs)
		result, err = m.finish(applied, err)
		return err
	})
	return result, err
}

// HasNFTRules reports whether the snapshot contains the rules of nf_tables. If so, Apply does not
// read them again.
func HasNFTRules(s Snapshot) bool { return len(s.lastRead.Tables) > 0 }

// SetHits sets the counter of the snapshot's first rule for established connections.
func SetHits(s Snapshot, packets uint64) {
	for _, c := range s.lastRead.Tables[0].Chains {
		if i := slices.IndexFunc(c.Rules, func(r rules.Rule) bool {
			return r.KeepsEstablished()
		}); i >= 0 {
			c.Rules[i].Hits.Packets = packets
			return
		}
	}
}

// LegacyTables returns the tables of iptables-legacy that the nft backend reads.
func LegacyTables(ns *netns.NS) ([]rules.Table, error) {
	found, _, err := legacyTables(ns)
	return found, err
}

// IsMissingFeature reports whether the backend auto uses iptables-legacy after the error.
var IsMissingFeature = isMissingFeature

// DescribeFeature returns the name, the source and the first kernel version of a feature.
var DescribeFeature = describeFeature

// Steps returns the family and the table of each step of an Apply. "gate" follows if the step
// writes a table with the gate, and "delete" if it deletes Sluice's rules.
func Steps(desired, current []rules.Table) []string {
	var names []string
	for _, s := range steps(tablesOf(desired), tablesOf(current)) {
		name := s.id.Family.String() + " " + s.id.Name
		if s.desired == nil {
			name += " delete"
		} else if s.desired.Chain(gateChain) != nil {
			name += " gate"
		}
		names = append(names, name)
	}
	return names
}

// WithGate returns an IPv4 mangle table with the gate, which drops packets of new connections while
// tables are replaced. A killed process may leave such a table.
func WithGate() rules.Table { return *withGate(rules.IPv4, nil, notEstablished()) }

// BeginApply executes the first count steps of an Apply, as if the process were killed after them.
// It reports whether there are further steps.
func BeginApply(ns *netns.NS, desired []rules.Table, count int) (more bool, err error) {
	err = ns.Do(func() error {
		current, err := readLegacy(sluiceRules)
		if err != nil {
			return err
		}
		list := steps(tablesOf(desired), current)
		more = count < len(list)
		return (&writer{}).run(list[:min(count, len(list))])
	})
	return more, err
}

// EstablishedPackets returns the number of packets that the rules for established connections have
// accepted, as in Result.EstablishedPackets.
func EstablishedPackets(desired, current []rules.Table) uint64 {
	return establishedPackets(tablesOf(desired), tablesOf(current))
}

// EncodeRule and EncodeForKernel convert the model to the kernel's structures.
var (
	EncodeRule      = encodeRule
	EncodeForKernel = encodeForKernel
)

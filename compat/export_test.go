package compat

import (
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// ApplyLegacy is the legacy backend's Apply without the translation, for tables that the kernel refuses.
var ApplyLegacy = applyLegacy

// ApplyLegacyForGood is ApplyLegacy in which something cannot be taken back: a table that there is not is said to have been written first.
func ApplyLegacyForGood(ns *netns.NS, want Legacy) (result Result, err error) {
	err = ns.Do(func() (err error) {
		a := applier{want: holdingOf(want.Tables)}
		a.written.log = []written{{id: xtables.ID{Family: rules.IPv4, Name: "none"}}}
		result, err = a.withRoutes(want.Routing, true)
		return err
	})
	return result, err
}

// ApplyNFT is the nft backend's Apply with another function in the place of nft.ApplyAfter.
func ApplyNFT(ns *netns.NS, rs rules.Ruleset, apply func(*netns.NS, rules.Ruleset) (nft.Result, error)) (result Result, err error) {
	err = ns.Do(func() (err error) {
		result, err = applyNFT(rs, apply)
		return err
	})
	return result, err
}

// HasReading tells whether a Mend by the comparison need not read nft's rules again.
func HasReading(c Comparison) bool { return len(c.reading.Tables) > 0 }

// SetHits makes the first rule that was read be one that has let so many packets pass.
func SetHits(c Comparison, packets uint64) {
	c.reading.Tables[0].Chains[0].Rules[0].Hits.Packets = packets
}

// LegacyHeld is what the nft backend does beside package nft.
var LegacyHeld = legacyHeld

// Described says what a feature is to people.
var Described = described

// Steps lists, for tests, what is written in which order: the tables, with "gate" behind those in which the gate is shut.
func Steps(want, live []rules.Table) []string {
	var names []string
	for _, s := range steps(holdingOf(want), holdingOf(live)) {
		name := s.id.Family.String() + " " + s.id.Name
		if s.want == nil {
			name += " nothing"
		} else if s.want.Chain(gateChain) != nil {
			name += " gate"
		}
		names = append(names, name)
	}
	return names
}

// WithGate is an IPv4 mangle table that a killed process may leave.
func WithGate() rules.Table { return *withGate(rules.IPv4, nil) }

// BeginApply carries out that many of the steps to the tables, as a process that is then killed, and tells whether there are more.
func BeginApply(ns *netns.NS, want []rules.Table, count int) (more bool, err error) {
	err = ns.Do(func() error {
		live, err := readLegacy(oursIn)
		if err != nil {
			return err
		}
		list := steps(holdingOf(want), live)
		more = count < len(list)
		return (&writer{}).do(list[:min(count, len(list))])
	})
	return more, err
}

// Kept is what a Result says of the packets that rules for older connections have let pass.
func Kept(want, live []rules.Table) uint64 { return kept(holdingOf(want), holdingOf(live)) }

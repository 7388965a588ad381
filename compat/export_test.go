package compat

import (
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// ApplyLegacy is the legacy backend's Apply without the translation, for tables that the kernel refuses.
var ApplyLegacy = applyLegacy

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

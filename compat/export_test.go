package compat

import (
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

package kernels

import "github.com/sluice-mesh/sluice/compat"

// A Shape is which of a kernel's modules a machine has.
type Shape struct {
	// Name says it.
	Name string
	// Without are the modules that are left out, with all that need them.
	Without []string
	// NFT and Legacy tell which engines there are then.
	NFT, Legacy bool
}

// Shapes are those of real nodes.
var Shapes = []Shape{
	{Name: "all modules", NFT: true, Legacy: true},
	{Name: "no nf_tables", Without: []string{"nf_tables"}, Legacy: true},
	{Name: "no iptables-legacy", Without: []string{"ip_tables", "ip6_tables"}, NFT: true},
}

// auto is the engine that must be chosen.
func (s Shape) auto() compat.BackendName {
	if s.NFT {
		return compat.BackendNFT
	}
	return compat.BackendLegacy
}

// has reports whether the engine is there.
func (s Shape) has(e compat.BackendName) bool {
	switch e {
	case compat.BackendNFT:
		return s.NFT
	case compat.BackendLegacy:
		return s.Legacy
	}
	return true
}

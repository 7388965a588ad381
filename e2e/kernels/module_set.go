package kernels

import "github.com/sluice-mesh/sluice/compat"

// A ModuleSet is a selection of a kernel's modules.
type ModuleSet struct {
	// Name is the display name.
	Name string
	// Without contains the modules that the set lacks, besides the modules that depend on them.
	Without []string
	// NFT and Legacy report which backends a machine with these modules supports.
	NFT, Legacy bool
}

// ModuleSets contains the tested sets of modules. Each of them exists on real nodes.
var ModuleSets = []ModuleSet{
	{Name: "all modules", NFT: true, Legacy: true},
	{Name: "no nf_tables", Without: []string{"nf_tables"}, Legacy: true},
	{Name: "no iptables-legacy", Without: []string{"ip_tables", "ip6_tables"}, NFT: true},
}

// auto returns the backend that --backend auto must select.
func (s ModuleSet) auto() compat.BackendName {
	if s.NFT {
		return compat.BackendNFT
	}
	return compat.BackendLegacy
}

// supports reports whether a machine with these modules supports the backend. Every machine
// supports auto.
func (s ModuleSet) supports(name compat.BackendName) bool {
	switch name {
	case compat.BackendNFT:
		return s.NFT
	case compat.BackendLegacy:
		return s.Legacy
	}
	return true
}

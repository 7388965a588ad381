package main

import "github.com/sluice-mesh/sluice/compat"

// chosen is the backend that the parameters name.
func (p *parameters) chosen() (compat.Backend, error) {
	return compat.Choose(compat.BackendName(p.Backend))
}

// concerned are the backends that a look or a removal is about: all with auto.
func (p *parameters) concerned() ([]compat.Backend, error) {
	if p.Backend == string(compat.BackendAuto) {
		return compat.Backends(), nil
	}
	b, err := p.chosen()
	return []compat.Backend{b}, err
}

// other is the backend that is not this one.
func other(e compat.BackendName) compat.BackendName {
	if e == compat.BackendNFT {
		return compat.BackendLegacy
	}
	return compat.BackendNFT
}

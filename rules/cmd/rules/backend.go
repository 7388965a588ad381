package main

import "github.com/sluice-mesh/sluice/compat"

// chosen returns the backend that the parameters name.
func (p *parameters) chosen() (compat.Backend, error) {
	return compat.Choose(compat.BackendName(p.Backend))
}

// backends returns the backends that are read or removed: all if the backend is auto.
func (p *parameters) backends() ([]compat.Backend, error) {
	if p.Backend == string(compat.BackendAuto) {
		return compat.Backends(), nil
	}
	b, err := p.chosen()
	return []compat.Backend{b}, err
}

// other returns the other backend.
func other(e compat.BackendName) compat.BackendName {
	if e == compat.BackendNFT {
		return compat.BackendLegacy
	}
	return compat.BackendNFT
}

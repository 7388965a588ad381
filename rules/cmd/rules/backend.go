package main

import "github.com/sluice-mesh/sluice/compat"

// backend returns the backend that the parameters name.
func (p *parameters) backend() (compat.Backend, error) {
	return compat.Choose(compat.BackendName(p.Backend))
}

// backends returns the backends whose rules are listed or removed: all if the backend is auto.
func (p *parameters) backends() ([]compat.Backend, error) {
	if p.Backend == string(compat.BackendAuto) {
		return compat.Backends(), nil
	}
	b, err := p.backend()
	return []compat.Backend{b}, err
}

// otherBackend returns the backend that is not the named one.
func otherBackend(name compat.BackendName) compat.BackendName {
	if name == compat.BackendNFT {
		return compat.BackendLegacy
	}
	return compat.BackendNFT
}

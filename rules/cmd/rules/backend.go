package main

import "github.com/sluice-mesh/sluice/compat"

// backend returns the backend of Sluice's rules.
func (p *parameters) backend() (compat.Backend, error) { return compat.Choose(p.backendName()) }

// backendName returns the backend that a flag or a variable selects, or otherwise the backend that
// the agent reports for Sluice's rules.
func (p *parameters) backendName() compat.BackendName {
	reported := ""
	switch {
	case p.located != nil:
		reported = p.located.Backend
	case p.host != nil:
		reported = p.host.Backend
	}
	if p.Backend == string(compat.BackendAuto) && reported != "" {
		return compat.BackendName(reported)
	}
	return compat.BackendName(p.Backend)
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

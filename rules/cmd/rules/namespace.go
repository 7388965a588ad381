package main

import (
	"cmp"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// inNamespace opens the namespace that the parameters name for the time of do; nil is the current one.
func (p *parameters) inNamespace(do func(*netns.NS) error) error {
	ns, err := p.openNamespace()
	if err != nil {
		return refused(err)
	}
	defer func() { _ = ns.Close() }()
	return do(ns)
}

func (p *parameters) openNamespace() (*netns.NS, error) {
	path := cmp.Or(p.netnsPath, p.networkNamespace)
	switch {
	case p.pid != 0:
		return netns.OpenPID(p.pid)
	case path != "":
		return netns.Open(path)
	}
	return nil, nil
}

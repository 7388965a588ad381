package main

import (
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// rulesetOf returns the ruleset of the parameters, or with --live the kernel's rules.
func (s *system) rulesetOf(p *parameters) (rules.Ruleset, error) {
	if !p.live {
		return s.compile(p)
	}
	var live rules.Ruleset
	err := p.inNamespace(func(ns *netns.NS) (err error) {
		live, err = s.readLive(ns, compat.BackendName(p.Backend))
		return systemError(err)
	})
	return live, err
}

// readLive reads the rules of all owners: of nf_tables, of iptables-legacy, or of both in the order
// in which packets traverse them. If both are wanted and the rules of iptables-legacy cannot be
// read, it warns and returns the rules of nf_tables.
func (s *system) readLive(ns *netns.NS, name compat.BackendName) (rules.Ruleset, error) {
	origin := compat.OriginAll
	switch name {
	case compat.BackendNFT:
		return nft.ReadAll(ns)
	case compat.BackendLegacy:
		origin = compat.OriginLegacy
	}
	live, err := compat.ReadLive(ns, origin)
	if err != nil && name == compat.BackendAuto {
		if tables, nftErr := nft.ReadAll(ns); nftErr == nil {
			s.warn("rules of iptables-legacy, if there are any, are left out: %s",
				strings.ReplaceAll(err.Error(), "\n", "; "))
			return tables, nil
		}
	}
	if err != nil {
		return rules.Ruleset{}, err
	}
	for _, a := range live.Ambiguous {
		s.warn("%s: the order in the kernel may differ from the order here", a)
	}
	for _, text := range live.UnmodeledChains {
		s.warn("left out: %s", text)
	}
	for _, text := range live.UnmodeledRoutes {
		s.warn("left out: %s", text)
	}
	for _, text := range live.UndecidedEffects() {
		s.warn("%s", text)
	}
	return live.Ruleset, nil
}

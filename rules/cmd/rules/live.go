package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// rulesetOf returns the ruleset of the parameters, or with --live the kernel's rules.
func (s *system) rulesetOf(p *parameters) (rules.Ruleset, error) {
	if !p.live {
		return s.compile(p)
	}
	live, warnings, err := p.readLive()
	new(repeatedWarnings).print(s, warnings)
	return live, err
}

// readLive reads the rules in the namespace of the parameters, and returns them with warnings. It
// ignores the backend that the agent reports: the rules of the other backend affect packets too.
func (p *parameters) readLive() (live rules.Ruleset, warnings []string, err error) {
	err = p.inNamespace(func(ns *netns.NS) (err error) {
		live, warnings, err = readLive(ns, compat.BackendName(p.Backend), compat.ReadLive)
		return systemError(err)
	})
	return live, warnings, err
}

// readLive reads the rules of all owners: of nf_tables, of iptables-legacy, or of both in the order
// in which packets traverse them. If both are wanted and the process may not read the rules of
// iptables-legacy, it returns the rules of nf_tables and a warning. It also returns warnings about
// rules that the model does not contain.
func readLive(
	ns *netns.NS, name compat.BackendName, read func(*netns.NS, compat.Origin) (compat.Live, error),
) (found rules.Ruleset, warnings []string, err error) {
	live, err := read(ns, map[compat.BackendName]compat.Origin{
		compat.BackendNFT: compat.OriginNFTables, compat.BackendLegacy: compat.OriginLegacy,
	}[name])
	if compat.IsNotPermitted(err) && name == compat.BackendAuto {
		if tables, nftErr := read(ns, compat.OriginNFTables); nftErr == nil {
			warnings = append(warnings, "rules of iptables-legacy, if there are any, are left out: "+
				strings.ReplaceAll(err.Error(), "\n", "; "))
			live, err = tables, nil
		}
	}
	if err != nil {
		return rules.Ruleset{}, nil, err
	}
	if name != compat.BackendAuto {
		warnings = append(warnings, fmt.Sprintf("left out: rules of %s, because of --backend %s",
			otherBackend(name), string(name)))
	}
	for _, a := range live.Ambiguous {
		warnings = append(warnings,
			fmt.Sprintf("%s: the order in the kernel may differ from the order here", a))
	}
	for _, text := range slices.Concat(live.UnmodeledChains, live.UnmodeledRoutes) {
		warnings = append(warnings, "left out: "+text)
	}
	return live.Ruleset, append(warnings, live.UndecidedEffects()...), nil
}

// repeatedWarnings are the warnings of a reading that is repeated.
type repeatedWarnings struct{ last []string }

// print prints the warnings that the previous reading did not have.
func (w *repeatedWarnings) print(s *system, warnings []string) {
	for _, text := range warnings {
		if !slices.Contains(w.last, text) {
			s.warn("%s", text)
		}
	}
	w.last = warnings
}

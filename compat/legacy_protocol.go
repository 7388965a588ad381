package compat

import (
	"errors"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// protocols makes a choice of what all matches say of the protocol: ports and flags say something too.
func protocols(matches []rules.Match) (choice, []rules.Match, error) {
	var candidates []rules.Protocol // nil for any
	var list []rules.MatchProtocol
	var excluded []rules.Protocol
	for _, m := range matches {
		switch m := m.(type) {
		case rules.MatchPort:
			if candidates == nil {
				candidates = []rules.Protocol{rules.TCP, rules.UDP}
			}
		case rules.MatchTCPFlags:
			candidates = []rules.Protocol{rules.TCP}
		case rules.MatchProtocol:
			list = append(list, m)
			if m.Not {
				excluded = append(excluded, m.Protocols...)
			}
		}
	}
	for _, m := range list {
		if candidates == nil && !m.Not {
			candidates = append([]rules.Protocol{}, m.Protocols...)
		}
	}
	if slices.Contains(candidates, 0) || slices.Contains(excluded, 0) {
		return nil, nil, errors.New("protocol 0, which xtables takes for any")
	}
	wanted := candidates
	if candidates == nil {
		wanted = excluded
	}
	var singles []rules.MatchProtocol
	for _, p := range wanted {
		fits := candidates == nil || !slices.ContainsFunc(list, func(m rules.MatchProtocol) bool {
			return !m.Matches(&rules.Packet{Protocol: p})
		})
		if fits {
			singles = append(singles, rules.MatchProtocol{Protocols: []rules.Protocol{p}})
		}
	}
	if candidates == nil && len(singles) == 0 {
		return always, nil, nil
	}
	options, except := oneOf(candidates == nil, singles, func(m rules.MatchProtocol) rules.MatchProtocol {
		m.Not = true
		return m
	})
	return options, except, nil
}

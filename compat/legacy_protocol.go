package compat

import (
	"errors"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// protocolConditions returns the protocols to which all matches together limit the rule, as
// alternatives and exceptions. Port and TCP flag matches limit the protocols too.
func protocolConditions(matches []rules.Match) (matchAlternatives, []rules.Match, error) {
	var candidates []rules.Protocol // nil for any
	var protocolMatches []rules.MatchProtocol
	var excluded []rules.Protocol
	portMatched, flagsMatched := false, false
	for _, m := range matches {
		switch m := m.(type) {
		case rules.MatchPort:
			portMatched = true
			if candidates == nil {
				candidates = []rules.Protocol{rules.TCP, rules.UDP}
			}
		case rules.MatchTCPFlags:
			candidates, flagsMatched = []rules.Protocol{rules.TCP}, true
		case rules.MatchProtocol:
			protocolMatches = append(protocolMatches, m)
			if m.Not {
				excluded = append(excluded, m.Protocols...)
			}
		}
	}
	isAllowed := func(p rules.Protocol) bool {
		return !slices.ContainsFunc(protocolMatches, func(m rules.MatchProtocol) bool {
			return slices.Contains(m.Protocols, p) == m.Not
		})
	}
	if portMatched && !flagsMatched &&
		(isAllowed(rules.SCTP) || isAllowed(rules.DCCP) || isAllowed(rules.UDPLite)) {
		return nil, nil, errors.New("port matches are supported only for TCP and UDP")
	}
	for _, m := range protocolMatches {
		if candidates == nil && !m.Not {
			candidates = slices.Clone(m.Protocols)
		}
	}
	if slices.Contains(candidates, 0) || slices.Contains(excluded, 0) {
		return nil, nil, errors.New(
			"protocol 0 is not supported, because it means any protocol in xtables")
	}
	selected := candidates
	if candidates == nil {
		selected = excluded
	}
	var singles []rules.Match
	for _, p := range selected {
		if candidates == nil || isAllowed(p) {
			singles = append(singles, rules.MatchProtocol{Protocols: []rules.Protocol{p}})
		}
	}
	if candidates == nil && len(singles) == 0 {
		return always, nil, nil
	}
	alternatives, except := oneOf(candidates == nil, singles)
	return alternatives, except, nil
}

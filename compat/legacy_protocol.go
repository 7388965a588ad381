package compat

import (
	"errors"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// protocols returns the protocols to which all matches together limit the rule, as alternatives and
// exceptions. Port and TCP flag matches limit the protocols too.
func protocols(matches []rules.Match) (matchAlternatives, []rules.Match, error) {
	var candidates []rules.Protocol // nil for any
	var list []rules.MatchProtocol
	var excluded []rules.Protocol
	ported, flagged := false, false
	for _, m := range matches {
		switch m := m.(type) {
		case rules.MatchPort:
			ported = true
			if candidates == nil {
				candidates = []rules.Protocol{rules.TCP, rules.UDP}
			}
		case rules.MatchTCPFlags:
			candidates, flagged = []rules.Protocol{rules.TCP}, true
		case rules.MatchProtocol:
			list = append(list, m)
			if m.Not {
				excluded = append(excluded, m.Protocols...)
			}
		}
	}
	fits := func(p rules.Protocol) bool {
		return !slices.ContainsFunc(list, func(m rules.MatchProtocol) bool {
			return slices.Contains(m.Protocols, p) == m.Not
		})
	}
	if ported && !flagged && (fits(rules.SCTP) || fits(rules.DCCP) || fits(rules.UDPLite)) {
		return nil, nil, errors.New("port matches are supported only for TCP and UDP")
	}
	for _, m := range list {
		if candidates == nil && !m.Not {
			candidates = append([]rules.Protocol{}, m.Protocols...)
		}
	}
	if slices.Contains(candidates, 0) || slices.Contains(excluded, 0) {
		return nil, nil, errors.New("protocol 0 is not supported, because it means any protocol in xtables")
	}
	selected := candidates
	if candidates == nil {
		selected = excluded
	}
	var singles []rules.MatchProtocol
	for _, p := range selected {
		if candidates == nil || fits(p) {
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

package compat

import (
	"fmt"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// matchAlternatives contains lists of conditions. A packet must satisfy all conditions of one list.
// No packet satisfies two lists.
type matchAlternatives [][]rules.Match

// always has one list without conditions, which every packet satisfies. never has no list.
var (
	always = matchAlternatives{nil}
	never  = matchAlternatives{}
)

// convertMatches converts the matches of a rule to xtables matches. A packet matches the rule if it
// satisfies one of the alternatives, and none of the conditions in except.
func (tr *translator) convertMatches(
	matches []rules.Match,
) (alternatives matchAlternatives, except []rules.Match, err error) {
	alternatives, except, err = protocolConditions(matches)
	for _, m := range matches {
		if err != nil || len(alternatives) == 0 {
			return never, nil, err
		}
		var ofMatch matchAlternatives
		var exceptOfMatch []rules.Match
		if ofMatch, exceptOfMatch, err = tr.convertMatch(m); err == nil {
			alternatives, except = alternatives.and(ofMatch), append(except, exceptOfMatch...)
		}
	}
	for _, list := range alternatives {
		rules.SortMatches(list)
		slices.SortStableFunc(list, outputInterfaceLast)
	}
	return alternatives, except, err
}

// outputInterfaceLast orders input interfaces before output interfaces, as the decoder does.
func outputInterfaceLast(a, b rules.Match) int {
	in, ok := a.(rules.MatchInterface)
	out, both := b.(rules.MatchInterface)
	if !ok || !both || in.Out == out.Out {
		return 0
	}
	if in.Out {
		return 1
	}
	return -1
}

// and returns the conjunction of two lists of alternatives.
func (c matchAlternatives) and(other matchAlternatives) matchAlternatives {
	if len(other) == 1 && len(other[0]) == 0 {
		return c
	}
	product := make(matchAlternatives, 0, len(c)*len(other))
	for _, a := range c {
		for _, b := range other {
			product = append(product, slices.Concat(a, b))
		}
	}
	return product
}

// convertMatch converts a match to xtables matches. It ignores protocol matches, which
// protocolConditions converts.
func (tr *translator) convertMatch(m rules.Match) (matchAlternatives, []rules.Match, error) {
	switch m := m.(type) {
	case rules.MatchFamily:
		if m.Family == rules.Inet || m.Family == tr.family {
			return always, nil, nil
		}
		return never, nil, nil
	case rules.MatchInterface:
		alternatives, except := interfaceConditions(m)
		return alternatives, except, nil
	case rules.MatchAddr:
		alternatives, except := tr.addressConditions(m)
		return alternatives, except, nil
	case rules.MatchProtocol:
		return always, nil, nil // see protocolConditions
	case rules.MatchPort:
		return portConditions(m), nil, nil
	case rules.MatchOwner:
		alternatives, err := tr.ownerConditions(m)
		return alternatives, nil, err
	case rules.MatchTCPFlags:
		if m.Mask == 0 && m.Value == 0 {
			return negateIf(m.Not, always), nil, nil
		}
	case rules.Unknown:
		return nil, nil, fmt.Errorf("%s is unknown to the model", m)
	}
	return matchAlternatives{{m}}, nil, nil
}

// negateIf returns c, which is always or never, or its opposite if not is set.
func negateIf(not bool, c matchAlternatives) matchAlternatives {
	if not == (len(c) > 0) {
		return never
	}
	return always
}

// oneOf returns alternatives and exceptions for packets that satisfy a condition in list. If not is
// set, it returns them for packets that satisfy no condition in list: the negation of a single
// condition as an alternative, or several conditions as exceptions.
func oneOf(not bool, list []rules.Match) (alternatives matchAlternatives, except []rules.Match) {
	switch {
	case not && len(list) == 1:
		return matchAlternatives{{rules.Negated(list[0])}}, nil
	case not:
		return always, list
	}
	for _, m := range list {
		alternatives = append(alternatives, []rules.Match{m})
	}
	return alternatives, nil
}

// interfaceConditions returns the result of oneOf for a list with a condition for each name. It
// omits duplicates, and names that a prefix in m.Names covers.
func interfaceConditions(m rules.MatchInterface) (matchAlternatives, []rules.Match) {
	var list []rules.Match
	for i, n := range m.Names {
		isRedundant := false
		for j, other := range m.Names {
			wider := other.Prefix && other.Contains(n.Name) && (other != n || j < i)
			isRedundant = isRedundant || wider || other == n && j < i
		}
		if !isRedundant {
			list = append(list, rules.MatchInterface{Out: m.Out, Names: []rules.InterfaceName{n}})
		}
	}
	return oneOf(m.Not, list)
}

// addressConditions returns the result of oneOf for a list with a condition for each prefix. No
// packet of this family satisfies a match of the other family's addresses, even a negated one.
func (tr *translator) addressConditions(m rules.MatchAddr) (matchAlternatives, []rules.Match) {
	if m.Family() != tr.family {
		return never, nil
	}
	var list []rules.Match
	for _, r := range m.Ranges {
		for _, p := range r.Prefixes() {
			if p.Bits() == 0 {
				return negateIf(m.Not, always), nil
			}
			list = append(list, rules.MatchAddr{
				Side: m.Side, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(p)},
			})
		}
	}
	return oneOf(m.Not, list)
}

// ownerConditions returns a condition for each range of IDs. If the match is negated, a packet must
// satisfy all conditions.
func (tr *translator) ownerConditions(m rules.MatchOwner) (matchAlternatives, error) {
	if tr.position.hook != rules.Output && tr.position.hook != rules.Postrouting {
		return nil, fmt.Errorf("%s at %s: xtables supports owners at output and postrouting only", m,
			tr.position.hook)
	}
	alternatives, all := matchAlternatives{}, []rules.Match(nil)
	for _, ids := range m.IDs {
		single := m
		single.IDs = []rules.IDRange{ids}
		alternatives, all = append(alternatives, []rules.Match{single}), append(all, single)
	}
	switch {
	case !m.Not:
		return alternatives, nil
	case len(all) == 0 && !m.Socketless: // every packet with a socket matches
		return matchAlternatives{{rules.MatchOwner{IDs: []rules.IDRange{{
			First: 0, Last: ^uint32(0),
		}}}}}, nil
	}
	return matchAlternatives{all}, nil
}

// portConditions returns conditions of up to 15 ports each, the maximum of a multiport match. A
// range counts as two ports.
func portConditions(m rules.MatchPort) matchAlternatives {
	if slices.Equal(m.Ports, []rules.PortRange{{First: 0, Last: 1<<16 - 1}}) {
		return negateIf(m.Not, always)
	}
	alternatives, all := matchAlternatives{}, []rules.Match(nil)
	for rest := m.Ports; len(rest) > 0; {
		n := min(len(rest), xt.MaxSlots)
		for xt.Slots(rest[:n]) > xt.MaxSlots {
			n--
		}
		match := rules.MatchPort{Side: m.Side, Not: m.Not, Ports: rest[:n:n]}
		alternatives, all = append(alternatives, []rules.Match{match}), append(all, match)
		rest = rest[n:]
	}
	if m.Not {
		return matchAlternatives{all}
	}
	return alternatives
}

package livetrace

import (
	"reflect"
	"slices"

	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// The functions of this file find the element of a map that a packet matched. The model represents
// a rule with a map as several rules with the same handle. These rules are the branches of the
// rule. The kernel reports only the handle and the verdict.

// maxBranches is the maximum number of branches with equal verdicts that are compared with a
// packet. The limit bounds the work for one event.
const maxBranches = 256

// selectBranch sets Index to the branch that the packet matched, or sets Ambiguous if this branch
// is unknown. current is the packet in the base chain, or nil if the packet is unknown.
func (s *Step) selectBranch(current *rules.Packet) {
	list := s.Chain.Rules
	var sameVerdict []int
	branches := 0
	for i := s.Index; i < len(list) && list[i].Handle == s.Event.Handle; i++ {
		branches++
		if s.hasVerdict(&list[i]) {
			sameVerdict = append(sameVerdict, i)
		}
	}
	switch {
	case branches == 1:
		// If the event has another verdict, the map has the verdict "continue" for the packet.
		s.Ambiguous = len(sameVerdict) == 0
	case len(sameVerdict) == 1:
		s.Index = sameVerdict[0]
	default:
		i, ok := matchingBranch(s.Table, list, sameVerdict, current)
		s.Ambiguous = !ok
		if ok {
			s.Index = i
		}
	}
}

// hasVerdict reports whether the rule may end with the verdict of the event.
func (s *Step) hasVerdict(r *rules.Rule) bool {
	if len(r.Actions) == 0 {
		return s.Event.Verdict == trace.Continue
	}
	switch a := r.Actions[len(r.Actions)-1].(type) {
	case rules.Verdict:
		return s.Event.Verdict == map[rules.Verdict]trace.Verdict{
			rules.Accept: trace.Accept, rules.Drop: trace.Drop, rules.Return: trace.Returned,
		}[a]
	case rules.Jump:
		verdict := trace.Jump
		if a.Goto {
			verdict = trace.Goto
		}
		return s.Event.Verdict == verdict && s.Event.Target == a.Chain
	}
	return true
}

// matchingBranch returns the index of the branch whose conditions the packet meets. branches
// contains the indexes of the candidates in list. matchingBranch returns false if it cannot
// determine exactly one branch.
func matchingBranch(
	t *rules.Table, list []rules.Rule, branches []int, current *rules.Packet,
) (int, bool) {
	if current == nil || len(branches) == 0 || len(branches) > maxBranches {
		return 0, false
	}
	chain := rules.Chain{
		Name: "branches", Base: &rules.Base{Hook: current.Hook, Type: rules.Filter},
	}
	shared := sharedMatches(list, branches)
	// Each branch sets its number as the mark, so that the outcome shows which branch matched.
	const wholeMark = ^uint32(0)
	for n, i := range branches {
		matches := slices.DeleteFunc(slices.Clone(list[i].Matches), func(m rules.Match) bool {
			return contains(shared, m)
		})
		if slices.ContainsFunc(matches, func(m rules.Match) bool {
			return !dependsOnlyOnHeader(m)
		}) {
			return 0, false
		}
		chain.Rules = append(chain.Rules, rules.Rule{
			Matches: matches,
			Actions: []rules.Action{
				rules.SetMark{Value: uint32(n + 1), Mask: wholeMark}, rules.Accept,
			},
		})
	}
	o := diff.Explain(&rules.Ruleset{Tables: []rules.Table{{
		Family: t.Family, Name: t.Name, Chains: []rules.Chain{chain},
	}}}, *current).Outcome
	if o.Undecided != "" || o.UnknownMarks != "" || o.Mark == 0 {
		return 0, false
	}
	return branches[o.Mark-1], true
}

// sharedMatches returns the conditions that all branches have. The packet meets these conditions,
// because it matched the rule.
func sharedMatches(list []rules.Rule, branches []int) []rules.Match {
	shared := slices.Clone(list[branches[0]].Matches)
	for _, i := range branches[1:] {
		shared = slices.DeleteFunc(shared, func(m rules.Match) bool {
			return !contains(list[i].Matches, m)
		})
	}
	return shared
}

// contains reports whether the list contains an equal match.
func contains(list []rules.Match, m rules.Match) bool {
	return slices.ContainsFunc(list, func(other rules.Match) bool {
		return reflect.DeepEqual(other, m)
	})
}

// dependsOnlyOnHeader reports whether a match depends only on header fields that an event contains.
func dependsOnlyOnHeader(m rules.Match) bool {
	switch m := m.(type) {
	case rules.MatchFamily, rules.MatchProtocol, rules.MatchAddr, rules.MatchPort,
		rules.MatchTCPFlags, rules.MatchICMP:
		return true
	case rules.MatchTuple:
		for _, matches := range m.Alternatives {
			if slices.ContainsFunc(matches, func(match rules.Match) bool {
				return !dependsOnlyOnHeader(match)
			}) {
				return false
			}
		}
		return true
	}
	return false
}

// currentPacket returns the packet as it enters a base chain, after NAT by earlier chains. h is the
// header of the packet in this chain. currentPacket returns nil if base or h is nil.
func currentPacket(base *rules.Base, h *trace.Header) *rules.Packet {
	if base == nil || h == nil {
		return nil
	}
	p := rules.Packet{
		Hook: rules.Output, OutInterface: loopback, Owner: &rules.Owner{}, Protocol: h.Protocol,
		Source: h.Source, Destination: h.Destination, Flags: h.Flags, ICMPType: h.ICMPType,
		ICMPCode: h.ICMPCode,
	}
	if base.Hook == rules.Prerouting {
		p.Hook, p.InInterface, p.OutInterface, p.Owner = rules.Prerouting, loopback, "", nil
	}
	return &p
}

// loopback is an interface on which packets with any addresses can arrive.
const loopback = "lo"

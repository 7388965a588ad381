package livetrace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// legacyStep returns the step for an event of iptables-legacy. Index is -1 if the event is at the
// end of a chain, or if the ruleset lacks the chain.
func legacyStep(rs *rules.Ruleset, e trace.Event) Step {
	s := Step{Event: e, Owner: foreign.OwnerLegacy, Hook: e.Hook}
	s.Index = -1
	for i := range rs.Tables {
		t := &rs.Tables[i]
		if t.Name != e.Table || t.Family != e.Family || !compat.IsLegacyTable(t) {
			continue
		}
		for j := range t.Chains {
			if b := t.Chains[j].Base; b != nil && b.Hook == e.Hook {
				s.Base = b
			}
		}
		if s.Table, s.Chain = t, t.Chain(e.Chain); s.Chain == nil {
			break
		}
		switch { // the event of a chain's end has the number after the last rule
		case e.Number <= len(s.Chain.Rules):
			s.Index = e.Number - 1
			s.Event.Verdict = legacyVerdict(s.Rule())
		case s.Chain.Base != nil && s.Chain.Base.Drop:
			s.Event.Verdict = trace.Drop
		default:
			s.Event.Verdict = trace.Accept
		}
		s.Owner = foreign.OwnerOf(rs, &s.Step)
	}
	return s
}

// legacyVerdict derives the verdict of a rule of iptables-legacy from the actions of the rule. The
// events contain no verdict, because the kernel reports a rule before it runs the target.
func legacyVerdict(r *rules.Rule) trace.Verdict {
	for _, a := range r.Actions {
		switch a := a.(type) {
		case rules.Verdict:
			switch a {
			case rules.Drop:
				return trace.Drop
			case rules.Accept:
				return trace.Accept
			case rules.Return:
				return trace.Returned
			}
		case rules.Reject:
			return trace.Drop
		case rules.RedirectTo, rules.DNATTo, rules.DNATPort, rules.SNATTo:
			return trace.Accept
		case rules.TProxyDrop:
			return trace.Accept // assumes that a proxy listens
		case rules.Jump:
			return trace.Jump
		}
	}
	return trace.Continue
}

// sortSteps sorts the steps by hook, and at each hook in the order of the base chains. The kernel
// reports the steps of the two backends separately.
func sortSteps(rs *rules.Ruleset, steps []Step) {
	position := map[*rules.Base]int{}
	for h := rules.Prerouting; h <= rules.Postrouting; h++ {
		for i, c := range rs.BaseChains(h) {
			position[c.Chain.Base] = i
		}
	}
	// A packet on lo traverses output and postrouting before prerouting and input.
	hooks := []rules.Hook{
		rules.Output, rules.Postrouting, rules.Prerouting, rules.Input, rules.Forward,
	}
	if len(steps) > 0 && steps[0].Event.In != 0 {
		hooks = []rules.Hook{rules.Prerouting, rules.Input, rules.Forward, rules.Postrouting}
	}
	slices.SortStableFunc(steps, func(x, y Step) int {
		return cmp.Or(slices.Index(hooks, x.Hook)-slices.Index(hooks, y.Hook),
			position[x.Base]-position[y.Base])
	})
}

// legacyOrigin is the beginning of the position of a rule of iptables-legacy.
const legacyOrigin = "iptables-legacy "

// legacyPosition returns the position of a rule of iptables-legacy as text.
func legacyPosition(f rules.Family, table, chain string, number int) string {
	return fmt.Sprintf("%s%s %s %s rule %d", legacyOrigin, f, table, chain, number)
}

// isTraceMark reports whether the step is a rule that marks packets for tracing, or a rule that
// jumps to such rules.
func isTraceMark(s *Step) bool {
	return s.Chain != nil &&
		(s.Chain.Name == trace.Chain || s.Index >= 0 && compat.JumpsToTraceChain(s.Rule()))
}

// hasTraceMarks reports whether rules of iptables-legacy mark packets for tracing.
func hasTraceMarks(rs *rules.Ruleset) bool {
	return slices.ContainsFunc(rs.Tables, func(t rules.Table) bool {
		return compat.IsLegacyTable(&t) && t.Chain(trace.Chain) != nil
	})
}

// withoutTraceMarks returns the ruleset without the effect of rules that mark packets for tracing.
// The numbers of other rules stay the same.
func withoutTraceMarks(rs *rules.Ruleset) rules.Ruleset {
	without := *rs
	without.Tables = slices.DeleteFunc(slices.Clone(rs.Tables), func(t rules.Table) bool {
		return t.Name == trace.Table && t.Family == rules.Inet
	})
	for i := range without.Tables {
		t := &without.Tables[i]
		if t.Chain(trace.Chain) == nil || !compat.IsLegacyTable(t) {
			continue
		}
		t.Chains = slices.Clone(t.Chains)
		t.Chain(trace.Chain).Rules = nil
	}
	return without
}

// RemoveStale removes the rules of a killed trace from both backends, and reports whether it has
// removed a rule or a table. In nf_tables such rules remain only on a kernel without owner tables,
// because the kernel deletes an owner table with its process. RemoveStale keeps the rules of a
// running trace, and creates no table.
func RemoveStale(ns *netns.NS) (removed bool, err error) {
	table, err := trace.Remove(ns)
	if nft.IsNotSupported(err) {
		err = nil
	}
	chain, legacyErr := compat.UnmarkTraces(ns)
	return table || chain, errors.Join(err, legacyErr)
}

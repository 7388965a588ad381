package istio

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A run is a sequence of adjacent rules of the form "-i X -j RETURN" or "-o X -j RETURN".
type run struct {
	start int // the index of the first rule
	names []rules.InterfaceName
	// precedesIstio reports whether the rule directly after the run is Istio's, and Istio appended
	// it to the chain. Istio inserts the rules for rerouted interfaces at the head of the chain
	// instead.
	precedesIstio bool
}

// runs returns the maximal runs of a chain. Their rules have -o if out is true, otherwise -i.
func (f *finder) runs(chain int, out bool) []run {
	var found []run
	var current run
	chainRules := f.table.Chains[chain].Rules
	for j := range chainRules {
		if name, ok := returnRuleInterface(&chainRules[j], out); ok {
			if current.names == nil {
				current.start = j
			}
			current.names = append(current.names, name)
			continue
		}
		if current.names != nil {
			current.precedesIstio = f.has(chain, j) && !reroutes(&chainRules[j])
			found = append(found, current)
			current = run{}
		}
	}
	if current.names != nil {
		found = append(found, current)
	}
	return found
}

// returnRuleInterface returns the interface of a rule of the form "-o X -j RETURN" if out is true,
// otherwise "-i X -j RETURN". It returns false for other rules.
func returnRuleInterface(r *rules.Rule, out bool) (rules.InterfaceName, bool) {
	isInterface := func(m rules.Match) bool {
		_, ok := matchedInterface(m, out)
		return ok
	}
	if !hasShape(r, rules.Return, isInterface) {
		return rules.InterfaceName{}, false
	}
	return matchedInterface(r.Matches[0], out)
}

// reroutes reports whether a rule sends packets from an interface to ISTIO_REDIRECT, as the rules
// for rerouted interfaces do.
func reroutes(r *rules.Rule) bool {
	return jumpTarget(r) == chainRedirect && len(r.Matches) > 0 && isInput(r.Matches[0])
}

// isInput reports whether m matches an input interface.
func isInput(m rules.Match) bool {
	_, ok := matchedInterface(m, false)
	return ok
}

// addExcluded adds the rules for --istio-exclude-interfaces. For each interface, Istio appends a
// rule to PREROUTING and one to OUTPUT, before its other rules. Foreign rules of the same form may
// directly precede them.
func (f *finder) addExcluded() {
	in, out := f.base(prerouting), f.base(output)
	if in < 0 || out < 0 {
		return
	}
	inRuns := f.runs(in, false)
	for _, o := range f.runs(out, true) {
		if !o.precedesIstio {
			continue
		}
		// The first rules of the run may be foreign: find the longest suffix of the run that has
		// counterparts in PREROUTING.
		for skip := range o.names {
			names := o.names[skip:]
			start := f.findSequence(inRuns, in, names)
			if start < 0 {
				continue
			}
			for k := range names {
				f.add(in, start+k)
				f.add(out, o.start+skip+k)
			}
			break
		}
	}
}

// findSequence returns the index of the first rule of the last sequence in PREROUTING with exactly
// these interfaces, or -1. If the chain has other rules that Istio appended, the sequence must
// directly precede one of them.
func (f *finder) findSequence(runs []run, chain int, names []rules.InterfaceName) int {
	chainRules := f.table.Chains[chain].Rules
	mustPrecedeIstio := slices.ContainsFunc(f.Rules, func(p Position) bool {
		return p.Chain == chain && !reroutes(&chainRules[p.Rule]) && !isReturn(&chainRules[p.Rule])
	})
	for _, r := range slices.Backward(runs) {
		last := len(r.names) - len(names)
		for i := last; i >= 0; i-- {
			if slices.Equal(r.names[i:i+len(names)], names) &&
				(!mustPrecedeIstio || r.precedesIstio && i == last) {
				return r.start + i
			}
		}
	}
	return -1
}

// isReturn reports whether the rule has the form "-i X -j RETURN".
func isReturn(r *rules.Rule) bool {
	_, ok := returnRuleInterface(r, false)
	return ok
}

// addRerouted adds the RETURN rules for --kube-virt-interfaces: one for each interface, directly
// after the rules that jump to ISTIO_REDIRECT.
func (f *finder) addRerouted() {
	in := f.base(prerouting)
	if in < 0 {
		return
	}
	// names contains the interfaces of the preceding jumps without a RETURN rule so far.
	var names []rules.InterfaceName
	chainRules := f.table.Chains[in].Rules
	for j := range chainRules {
		if reroutes(&chainRules[j]) {
			name, _ := matchedInterface(chainRules[j].Matches[0], false)
			names = append(names, name)
			continue
		}
		name, ok := returnRuleInterface(&chainRules[j], false)
		if !ok || !slices.Contains(names, name) {
			names = nil
			continue
		}
		names = slices.DeleteFunc(names, func(n rules.InterfaceName) bool { return n == name })
		f.add(in, j)
	}
}

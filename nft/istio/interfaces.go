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
	anyMatch := func(rules.Match) bool { return true }
	if !hasShape(r, rules.Return, anyMatch) {
		return rules.InterfaceName{}, false
	}
	return matchedInterface(r.Matches[0], out)
}

// reroutes reports whether a rule sends packets from an interface to ISTIO_REDIRECT, as the rules
// for rerouted interfaces do.
func reroutes(r *rules.Rule) bool {
	if jumpTarget(r) != chainRedirect || len(r.Matches) == 0 {
		return false
	}
	_, isInput := matchedInterface(r.Matches[0], false)
	return isInput
}

// maxExcluded is the maximum number of interfaces in OUTPUT for which addExcluded searches rules.
// It bounds the time for a chain with very many rules, which a process of the pod can add.
const maxExcluded = 256

// addExcluded adds the rules for --istio-exclude-interfaces. For each interface, Istio appends a
// rule to PREROUTING and one to OUTPUT, before its other rules. Foreign rules of the same form may
// directly precede them.
func (f *finder) addExcluded() {
	inChain, outChain := f.base(prerouting), f.base(output)
	if inChain < 0 || outChain < 0 {
		return
	}
	inRuns := f.runs(inChain, false)
	atEnd := f.hasAppended(inChain) // only rules that directly precede Istio's can be Istio's
	if atEnd {
		inRuns = slices.DeleteFunc(inRuns, func(r run) bool { return !r.precedesIstio })
	}
	remaining := maxExcluded
	for _, o := range f.runs(outChain, true) {
		if !o.precedesIstio || remaining == 0 {
			continue
		}
		names := o.names[max(0, len(o.names)-remaining):]
		remaining -= len(names)
		start, n := findSequence(inRuns, names, atEnd)
		for k := range n {
			f.add(inChain, start+k)
			f.add(outChain, o.start+len(o.names)-n+k)
		}
	}
}

// hasAppended reports whether a chain has rules that Istio appended, other than rules for
// interfaces.
func (f *finder) hasAppended(chain int) bool {
	chainRules := f.table.Chains[chain].Rules
	return slices.ContainsFunc(f.Rules, func(p Position) bool {
		if p.Chain != chain {
			return false
		}
		_, isReturn := returnRuleInterface(&chainRules[p.Rule], false)
		return !isReturn && !reroutes(&chainRules[p.Rule])
	})
}

// findSequence returns the last sequence in the runs with the interfaces of the longest possible
// suffix of names: the index of its first rule, and the number of its rules. If atEnd is true, the
// sequence must end with its run.
func findSequence(runs []run, names []rules.InterfaceName, atEnd bool) (start, length int) {
	for _, r := range slices.Backward(runs) {
		for end := len(r.names); end > 0; end-- {
			if n := commonSuffix(r.names[:end], names); n > length {
				start, length = r.start+end-n, n
			}
			if atEnd {
				break
			}
		}
	}
	return start, length
}

// commonSuffix returns the length of the longest common suffix.
func commonSuffix(a, b []rules.InterfaceName) int {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// addRerouted adds the RETURN rules for --kube-virt-interfaces: one for each interface, directly
// after the rules that jump to ISTIO_REDIRECT.
func (f *finder) addRerouted() {
	inChain := f.base(prerouting)
	if inChain < 0 {
		return
	}
	// names contains the interfaces of the preceding jumps without a RETURN rule so far.
	var names map[rules.InterfaceName]bool
	chainRules := f.table.Chains[inChain].Rules
	for j := range chainRules {
		if reroutes(&chainRules[j]) {
			name, _ := matchedInterface(chainRules[j].Matches[0], false)
			if names == nil {
				names = map[rules.InterfaceName]bool{}
			}
			names[name] = true
			continue
		}
		name, ok := returnRuleInterface(&chainRules[j], false)
		if !ok || !names[name] {
			names = nil
			continue
		}
		delete(names, name)
		f.add(inChain, j)
	}
}

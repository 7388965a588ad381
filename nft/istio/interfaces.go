package istio

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A run is a sequence of rules without a gap, of which each only returns for one interface.
type run struct {
	start int // the index of the first rule
	names []rules.InterfaceName
	// anchored reports that a rule which is surely Istio's follows.
	anchored bool
}

// runs lists the runs of a chain, each as long as it can be.
func (f *finder) runs(chain int, out bool) []run {
	var found []run
	var current run
	list := f.table.Chains[chain].Rules
	for j := range list {
		if name, ok := returnFor(&list[j], out); ok {
			if current.names == nil {
				current.start = j
			}
			current.names = append(current.names, name)
			continue
		}
		if current.names != nil {
			current.anchored = f.taken(chain, j) && !reroutes(&list[j])
			found = append(found, current)
			current = run{}
		}
	}
	if current.names != nil {
		found = append(found, current)
	}
	return found
}

// returnFor is the interface of "-i X -j RETURN" or "-o X -j RETURN".
func returnFor(r *rules.Rule, out bool) (rules.InterfaceName, bool) {
	if !shape(r, rules.Return, func(m rules.Match) bool { _, ok := oneInterface(m, out); return ok }) {
		return rules.InterfaceName{}, false
	}
	return oneInterface(r.Matches[0], out)
}

// reroutes reports whether a rule sends what comes in by an interface to ISTIO_REDIRECT, as for
// virtual machines. Such rules are inserted at the head of the chain, whereas all others are
// appended.
func reroutes(r *rules.Rule) bool {
	return jumpOf(r) == chainRedirect && len(r.Matches) > 0 && isInput(r.Matches[0])
}

func isInput(m rules.Match) bool {
	_, ok := oneInterface(m, false)
	return ok
}

// excluded takes the rules for --istio-exclude-interfaces: for all interfaces one in PREROUTING and
// one in OUTPUT, before what else Istio appends to these chains. Others' rules may stand directly
// before them.
func (f *finder) excluded() {
	in, out := f.base(prerouting), f.base(output)
	if in < 0 || out < 0 {
		return
	}
	inRuns := f.runs(in, false)
	for _, o := range f.runs(out, true) {
		if !o.anchored {
			continue
		}
		for skip := range o.names {
			names := o.names[skip:]
			start := f.find(inRuns, in, names)
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

// find returns the index of the first rule of the last place where PREROUTING returns for just
// these interfaces in this order, or -1. The place ends before another rule of Istio's, if the
// chain has one.
func (f *finder) find(runs []run, chain int, names []rules.InterfaceName) int {
	list := f.table.Chains[chain].Rules
	anchor := slices.ContainsFunc(f.Rules, func(p Position) bool {
		return p.Chain == chain && !reroutes(&list[p.Rule]) && !isReturn(&list[p.Rule])
	})
	for _, r := range slices.Backward(runs) {
		last := len(r.names) - len(names)
		for at := last; at >= 0; at-- {
			if slices.Equal(r.names[at:at+len(names)], names) && (!anchor || r.anchored && at == last) {
				return r.start + at
			}
		}
	}
	return -1
}

// isReturn reports whether the rule is one of a run.
func isReturn(r *rules.Rule) bool {
	_, ok := returnFor(r, false)
	return ok
}

// rerouted takes the rules for --kube-virt-interfaces that return: one an interface, directly after
// those that send to ISTIO_REDIRECT.
func (f *finder) rerouted() {
	in := f.base(prerouting)
	if in < 0 {
		return
	}
	var names []rules.InterfaceName // of the rules just before
	list := f.table.Chains[in].Rules
	for j := range list {
		if reroutes(&list[j]) {
			name, _ := oneInterface(list[j].Matches[0], false)
			names = append(names, name)
			continue
		}
		name, ok := returnFor(&list[j], false)
		if !ok || !slices.Contains(names, name) {
			names = nil
			continue
		}
		names = slices.DeleteFunc(names, func(n rules.InterfaceName) bool { return n == name })
		f.add(in, j)
	}
}

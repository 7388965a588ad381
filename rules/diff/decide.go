package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// Decide tells which packets two rulesets treat differently. It looks at neither text nor samples: the answer holds for every
// packet that can enter at prerouting or output (see [Possible]), and depends on the fates that [rules.Ruleset.Explain] finds.
//
// The time is near-linear in the number of rules, but there are rulesets (a thousand rules that each set other bits of the mark)
// for which it is not. Decide is safe for concurrent use.
func Decide(left, right Side, o Options) Result {
	if o.MaxClasses <= 0 {
		o.MaxClasses = DefaultMaxClasses
	}
	if len(o.Families) == 0 {
		o.Families = []rules.Family{rules.IPv4, rules.IPv6}
	}
	d := newDecision(left, right)
	for _, f := range o.Families {
		for _, h := range []rules.Hook{rules.Output, rules.Prerouting} {
			d.path(f, h)
		}
	}
	d.result.Classes, d.result.More = d.classes(o.MaxClasses)
	if left.RoutingKnown && right.RoutingKnown {
		d.result.RoutingCompared = true
		d.result.Routing = compareRouting(left.Ruleset.Routing, right.Ruleset.Routing)
	}
	d.result.Unreachable = Pair[[]rules.ChainRef]{d.unreachable(false, o.Families), d.unreachable(true, o.Families)}
	d.result.Elsewhere = Pair[[]rules.ChainRef]{elsewhere(d.sides.Left, o.Families), elsewhere(d.sides.Right, o.Families)}
	return d.result
}

// A decision is the work on one question.
type decision struct {
	left, right Side
	// sides are the rulesets, with the routing by which their packets go.
	sides Pair[*rules.Ruleset]
	names []rules.InterfaceName
	// known are the same without some deviations; nil as long as there was no difference.
	known []variant
	// paths are the spaces in which there are differences.
	paths   []path
	reached Pair[map[*rules.Chain]bool]
	result  Result
}

// A path is a family and a hook, and what differs there.
type path struct {
	*space
	differences []difference
}

func newDecision(left, right Side) *decision {
	l, r := left.Ruleset, right.Ruleset
	switch {
	case !left.RoutingKnown && !right.RoutingKnown:
		l.Routing, r.Routing = rules.Routing{}, rules.Routing{}
	case !left.RoutingKnown:
		l.Routing = r.Routing
	case !right.RoutingKnown:
		r.Routing = l.Routing
	}
	names := interfaceNames(l, r)
	for _, side := range []Side{left, right} {
		if side.Redirect != nil { // a deviation may leave out some
			names = append(append(names, side.Redirect.ExcludeInterfaces...), side.Redirect.RerouteInterfaces...)
		}
	}
	return &decision{
		left: left, right: right, sides: Pair[*rules.Ruleset]{&l, &r}, names: names,
		reached: Pair[map[*rules.Chain]bool]{map[*rules.Chain]bool{}, map[*rules.Chain]bool{}},
	}
}

// path decides about the packets of a family that enter at a hook.
func (d *decision) path(f rules.Family, h rules.Hook) {
	s := newSpace(f, h, d.names)
	left, right := walkAll(s, d.sides.Left), walkAll(s, d.sides.Right)
	for c := range left.reached {
		d.reached.Left[c] = true
	}
	for c := range right.reached {
		d.reached.Right[c] = true
	}
	d.undecided(left, false)
	d.undecided(right, true)
	if found := s.differences(left, right); len(found) > 0 {
		d.paths = append(d.paths, path{s, d.explained(s, found)})
	}
}

// undecided reports what the model has no word for, once for each rule.
func (d *decision) undecided(w *walk, right bool) {
	met := make([]set, len(w.unknown))
	for _, f := range w.ended.list {
		if f.undecided != 0 {
			met[f.undecided-1] = w.or(met[f.undecided-1], f.packets)
		}
	}
	for i, u := range w.unknown {
		found := Undecided{Right: right, Text: u.text, Step: u.step, Witness: w.witness(met[i])}
		if !slices.ContainsFunc(d.result.Undecided, found.sameRule) {
			d.result.Undecided = append(d.result.Undecided, found)
		}
	}
}

// unreachable lists the chains of a side to which no packet comes. Where the way of some packets ended at what the model has no word
// for, it is not known to which they would have come.
func (d *decision) unreachable(right bool, families []rules.Family) []rules.ChainRef {
	if slices.ContainsFunc(d.result.Undecided, func(u Undecided) bool { return u.Right == right }) {
		return nil
	}
	if right {
		return unreachable(d.sides.Right, d.reached.Right, families)
	}
	return unreachable(d.sides.Left, d.reached.Left, families)
}

func (u Undecided) sameRule(other Undecided) bool {
	return u.Right == other.Right && u.Text == other.Text && u.Step.Chain == other.Step.Chain && u.Step.Index == other.Step.Index
}

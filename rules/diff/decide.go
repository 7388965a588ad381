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
	d := newDecision(left, right)
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		for _, h := range []rules.Hook{rules.Output, rules.Prerouting} {
			d.path(f, h)
		}
	}
	d.result.Classes, d.result.More = d.classes(o.MaxClasses)
	if left.RoutingKnown && right.RoutingKnown {
		d.result.RoutingCompared = true
		d.result.Routing = compareRouting(left.Ruleset.Routing, right.Ruleset.Routing)
	}
	d.result.Unreachable = Pair[[]rules.ChainRef]{
		unreachable(d.sides.Left, d.reached.Left), unreachable(d.sides.Right, d.reached.Right),
	}
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

func (u Undecided) sameRule(other Undecided) bool {
	return u.Right == other.Right && u.Text == other.Text && u.Step.Chain == other.Step.Chain && u.Step.Index == other.Step.Index
}

// Decided tells whether the sides are known to treat every packet alike, or not to: there is nothing without a word in the model,
// or a difference beside it.
func (r *Result) Decided() bool { return len(r.Undecided) == 0 || r.differs(true) }

// Equivalent tells whether the sides treat every packet alike. Strict counts the deviations that are known, too.
func (r *Result) Equivalent(strict bool) bool { return len(r.Undecided) == 0 && !r.differs(strict) }

// differs tells whether a packet is known that the sides treat differently. Unnamed differences are listed before the named, so
// that none of them is behind the end of the list if all that are listed have a name.
func (r *Result) differs(strict bool) bool {
	return len(r.Routing) > 0 || slices.ContainsFunc(r.Classes, func(c Class) bool { return strict || len(c.Deviations) == 0 })
}

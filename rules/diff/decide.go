package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// Decide returns the packets that two rulesets treat differently. The result holds for every packet
// that can enter at prerouting or output (see [Possible]); the outcome of each packet is the
// outcome that [Explain] returns. Decide assumes that the states of connections are equal on both
// sides. It also reports packets after which these states would differ.
//
// The time is near-linear in the number of rules for all rulesets that programs write. The budget
// limits the work on other rulesets; if the budget is used up, Result.Exhausted is set. Decide is
// safe for concurrent use.
func Decide(left, right Side, o Options) Result {
	d := newDecision(left, right, o)
	d.comparesStates = true
	areIdentical, hasSameRules := false, false
	d.result.Exhausted = runLimited(func() {
		if areIdentical = d.identicalSides(); areIdentical {
			d.meter.divideTime(identicalDivisor)
		}
		d.shared.compareOtherHooks(d.sides.Left, d.sides.Right, d.meter)
		// Each round assumes that the states in shared, except the ones known to differ, are equal
		// on both sides. Differences are valid under this assumption. If a round finds no
		// differences, but finds further states that differ, compare again without assuming that
		// these are equal.
		for {
			d.compareScopes()
			if len(d.spaces) > 0 || !d.shared.addFound() {
				break
			}
			d.shared.addDependentStates(d.sides.Left, d.sides.Right)
		}
		hasSameRules = len(d.spaces) == 0 && len(d.undecided) > 0 && (areIdentical || d.sameRules())
	})
	wasEvaluated := d.result.Exhausted == ""
	if areIdentical && !wasEvaluated && len(d.spaces) == 0 {
		hasSameRules, d.result.Exhausted = true, ""
	}
	if !hasSameRules {
		d.result.Undecided, d.result.MoreUndecided = d.undecided, d.moreUndecided
	}
	d.describeClasses()
	if left.RoutingKnown && right.RoutingKnown {
		d.result.RoutingCompared = true
		d.result.Routing = compareRouting(left.Ruleset.Routing, right.Ruleset.Routing)
	}
	families := d.options.Families
	if wasEvaluated && d.result.Exhausted == "" && !d.moreUndecided {
		// Where packets are undecided, their further path is unknown, even if it is the same on
		// both sides.
		isUndecided := func(right bool) bool {
			return slices.ContainsFunc(d.undecided, func(u Undecided) bool { return u.Right == right })
		}
		if !isUndecided(false) {
			d.result.Unreachable.Left = findUnreachable(d.sides.Left, d.reached.Left, families)
		}
		if !isUndecided(true) {
			d.result.Unreachable.Right = findUnreachable(d.sides.Right, d.reached.Right, families)
		}
	}
	d.result.OtherHooks = Pair[[]rules.ChainRef]{
		Left:  chainsAtOtherHooks(d.sides.Left, families),
		Right: chainsAtOtherHooks(d.sides.Right, families),
	}
	return d.result
}

// identicalDivisor divides the time that remains for the evaluation of identical sides. The
// evaluation does not change the verdict, but finds the chains that no packet reaches.
const identicalDivisor = 10

// either reports whether a condition is true for the ruleset of at least one side.
func (d *decision) either(condition func(*rules.Ruleset) bool) bool {
	return condition(d.sides.Left) || condition(d.sides.Right)
}

// compareScopes compares the packets of all families and hooks, and stores the spaces with
// differences and the reasons why packets are undecided.
func (d *decision) compareScopes() {
	d.stateCause, d.result.UntrackedUndecided = nil, false
	sees := func(rs *rules.Ruleset) bool { return seesTranslations(rs, len(d.shared.hasNAT) > 0) }
	largest := packetScope{
		translations:  d.either(sees),
		boundSockets:  d.either(dependsOnBinding),
		kernelPackets: true,
		// Without rules for several listeners, the field noListener describes the only listener.
		missingListeners: len(d.shared.listeners) > 1,
	}
	result := d.decideScope(largest, rules.Output, rules.Prerouting)
	if result.differs() {
		result = d.decideSmallestScope(largest)
	}
	if !result.differs() && d.either(redirects) {
		result = d.decideScope(packetScope{withoutAddress: true}, rules.Prerouting)
	}
	if !result.differs() && d.either(readsUntracked) {
		untracked := d.decideScope(packetScope{untracked: true}, rules.Output, rules.Prerouting)
		d.result.UntrackedUndecided = len(untracked.undecided) > 0
		if len(untracked.spaces) > 0 {
			untracked.undecided, untracked.moreUndecided = nil, false // see UntrackedUndecided
			result = untracked
		}
	}
	if d.stateCause != nil && !result.differs() {
		result.undecided = []Undecided{*d.stateCause}
	}
	d.scopeResult = result
}

// decideSmallestScope compares the packets of larger and larger scopes, up to the largest one, and
// returns the result of the first scope with packets that differ or are undecided. Therefore
// differences of rare packets are reported only if there are no others.
func (d *decision) decideSmallestScope(largest packetScope) (result scopeResult) {
	translated := packetScope{translations: largest.translations}
	bound := translated
	bound.boundSockets = largest.boundSockets
	missing := bound
	missing.missingListeners = largest.missingListeners
	for _, scope := range slices.Compact([]packetScope{{}, translated, bound, missing, largest}) {
		result = d.decideScope(scope, rules.Output, rules.Prerouting)
		if result.differs() {
			break
		}
	}
	return result
}

// A scopeResult is the result of comparing a scope.
type scopeResult struct {
	// spaces are the spaces with differences.
	spaces []spaceDifferences
	// undecided lists the reasons why packets are undecided. moreUndecided reports that there are
	// more than MaxUndecided.
	undecided     []Undecided
	moreUndecided bool
}

// canAdd reports whether a reason is new, and the list is not full. If the reason is new and the
// list is full, canAdd sets moreUndecided.
func (r *scopeResult) canAdd(u Undecided) bool {
	isNew := !slices.ContainsFunc(r.undecided, u.sameRule)
	isFull := len(r.undecided) == MaxUndecided
	r.moreUndecided = r.moreUndecided || isNew && isFull
	return isNew && !isFull
}

// differs reports whether packets differ or are undecided.
func (r scopeResult) differs() bool { return len(r.spaces) > 0 || len(r.undecided) > 0 }

// decideScope compares the packets of a scope that enter at the given hooks.
func (d *decision) decideScope(scope packetScope, hooks ...rules.Hook) scopeResult {
	d.scopeResult = scopeResult{}
	for _, f := range d.options.Families {
		for _, h := range hooks {
			d.compareSpace(f, h, scope)
		}
	}
	return d.scopeResult
}

// A decision contains the inputs and the intermediate results of one call of Decide or Bypass.
type decision struct {
	left, right Side
	options     Options
	meter       *meter
	// sides are the rulesets with the routing that the evaluation uses.
	sides Pair[*rules.Ruleset]
	// names are the names of interfaces in the rules and in the parameters.
	names []rules.InterfaceName
	// diagrams are shared by the spaces of a family while they have at most maxSharedNodes nodes.
	diagrams       map[rules.Family]*diagrams
	maxSharedNodes int
	// interfaces contains the classes of interfaces; nil until they are needed.
	interfaces *interfaceClasses
	// shared contains the effects of the rules on states that packets share.
	shared sharedState
	// cgroups and runLists are the fields of the same names of each space.
	cgroups  map[cgroupPath]uint64
	runLists runLists
	// variants contains the rulesets without some deviations; nil until there is a difference.
	variants []variant
	// scopeResult is the result of the current or the last scope.
	scopeResult
	// reached contains the chains that packets reach.
	reached Pair[map[*rules.Chain]bool]
	result  Result
	// comparesStates reports that states of connections are compared. stateCause is the reason why
	// they may differ, or nil.
	comparesStates bool
	stateCause     *Undecided
	// compare returns the packets that two walks treat differently.
	compare func(s *space, left, right *walk) comparison
}

// A spaceDifferences contains the differences of the packets of a space.
type spaceDifferences struct {
	*space
	differences []difference
}

// newDecision returns the decision about two sides, before any packets are compared. A side without
// known routing gets the routing of the other side.
func newDecision(left, right Side, o Options) *decision {
	if o.MaxClasses <= 0 {
		o.MaxClasses = DefaultMaxClasses
	}
	if len(o.Families) == 0 {
		o.Families = bothFamilies
	}
	l, r := left.Ruleset, right.Ruleset
	switch {
	case !left.RoutingKnown && !right.RoutingKnown:
		l.Routing, r.Routing = rules.Routing{}, rules.Routing{}
	case !left.RoutingKnown:
		l.Routing = r.Routing
	case !right.RoutingKnown:
		r.Routing = l.Routing
	}
	names := interfaceNames(&l, &r)
	for _, side := range []Side{left, right} {
		if side.Redirect != nil { // the rules may not contain all interfaces of the parameters
			names = append(append(names, side.Redirect.ExcludeInterfaces...),
				side.Redirect.RerouteInterfaces...)
		}
	}
	cgroups := map[cgroupPath]uint64{}
	for _, rs := range []*rules.Ruleset{&l, &r} {
		addCgroups(cgroups, rs)
	}
	return &decision{
		options: o, meter: newMeter(o.Budget), compare: (*space).compare, maxSharedNodes: maxSharedNodes,
		left: left, right: right, sides: Pair[*rules.Ruleset]{&l, &r},
		names: names, cgroups: cgroups, runLists: runLists{lists: map[runKey]addressLists{}},
		shared: newSharedState(&l, &r),
		reached: Pair[map[*rules.Chain]bool]{
			Left: map[*rules.Chain]bool{}, Right: map[*rules.Chain]bool{},
		},
	}
}

// compareSpace compares the packets of a family and a scope that enter at a hook.
func (d *decision) compareSpace(f rules.Family, h rules.Hook, scope packetScope) {
	if d.interfaces == nil {
		d.interfaces = newInterfaceClasses(d.names, d.meter)
	}
	familyDiagrams := d.diagramsOf(f)
	// keptMemory returns the memory that remains in use after the comparison.
	keptMemory := func() int64 { return familyDiagrams.memory() + d.runLists.bytes }
	otherMemory := d.meter.memory - keptMemory()
	s := newSpace(f, h, d.interfaces, familyDiagrams)
	s.packetScope, s.lacksAddress = scope, allIf(scope.withoutAddress)
	s.hostAddresses = d.options.HostAddresses
	s.shared, s.cgroups, s.runLists = d.shared, d.cgroups, &d.runLists
	s.given = map[string]bool{}
	s.mixesRandomForms, s.comparesTexts = compareRandomForms(d.sides.Left, d.sides.Right)
	if scope.redirected {
		s.given[toHostKey] = true
	}
	if !scope.boundSockets {
		s.given[boundKey], s.given[selectsKey] = false, false
	}
	if !scope.missingListeners {
		for _, l := range d.shared.listeners {
			s.given[missingListener(l).key] = false
		}
	}
	s.omitResets()
	if f == rules.IPv6 && d.either(comparesProtocolsOfLegacy) {
		s.excluded = s.is(protocol, number(authenticationHeader))
	}
	if !scope.kernelPackets {
		s.given[copyKey] = false
	}
	left, right := walkAll(s, d.sides.Left, leftSide), walkAll(s, d.sides.Right, rightSide)
	left.addReached(d.reached.Left)
	right.addReached(d.reached.Right)
	d.shared.compareUpdates(s, &left.updates, &right.updates)
	found := d.compare(s, left, right)
	d.addUndecided(s, found, left, right)
	if len(found.differences) > 0 {
		d.spaces = append(d.spaces, spaceDifferences{s, d.splitByDeviation(s, found.differences)})
		return
	}
	if d.comparesStates && d.stateCause == nil && len(d.spaces) == 0 {
		d.compareStates(s, left, right)
	}
	// The space is no longer used, but other spaces of the family may use its diagrams.
	d.meter.release(d.meter.memory - keptMemory() - otherMemory)
	isUsed := func(p spaceDifferences) bool { return p.diagrams == familyDiagrams }
	if len(familyDiagrams.nodes) > d.maxSharedNodes && !slices.ContainsFunc(d.spaces, isUsed) {
		d.meter.release(familyDiagrams.memory())
		delete(d.diagrams, f)
	}
}

// maxSharedNodes is the maximum number of nodes of diagrams that are used for another space.
const maxSharedNodes = 1 << 16

// diagramsOf returns diagrams for a space of the family. Spaces share diagrams, because they have
// most sets in common.
func (d *decision) diagramsOf(f rules.Family) *diagrams {
	familyDiagrams := d.diagrams[f]
	if familyDiagrams == nil || len(familyDiagrams.nodes) > d.maxSharedNodes {
		familyDiagrams = newDiagrams(initialSize, d.meter)
		storeIn(&d.diagrams, f, familyDiagrams)
	}
	return familyDiagrams
}

// addReached adds the user-defined chains that packets reach.
func (w *walk) addReached(reached map[*rules.Chain]bool) {
	// Visit a caller, which was completed later, before the chains that it calls.
	for _, s := range slices.Backward(w.completed) {
		w.meter.charge(1 + len(s.events))
		if s.entered == none {
			continue
		}
		if s.chain.Chain.Base == nil && !reached[s.chain.Chain] && w.anyPossible(s.entered) {
			reached[s.chain.Chain] = true
		}
		for _, e := range s.events {
			if e.call != nil {
				e.call.entered = w.or(e.call.entered, w.and(s.entered, e.packets))
			}
		}
	}
}

// addUndecided adds the reasons why packets are undecided, each reason once for a rule.
func (d *decision) addUndecided(s *space, c comparison, left, right *walk) {
	if !s.anyPossible(c.undecided) {
		return
	}
	// add adds a reason with one of the packets as its witness.
	add := func(u Undecided, packets set) {
		if !d.canAdd(u) {
			return
		}
		if !s.anyPossible(packets) {
			packets = c.undecided
		}
		u.Witness = s.witness(packets)
		d.undecided = append(d.undecided, u)
	}
	for _, w := range []*walk{left, right} {
		undecided := make([]set, len(w.unsupported)) // packets, by unsupported expression
		for _, f := range w.ended.list {
			if f.undecided != 0 {
				i := f.undecided - 1
				undecided[i] = w.or(undecided[i], s.and(s.possibly(f.packets), c.undecided))
			}
		}
		for j, u := range w.unsupported {
			if d.meter.charge(MaxUndecided); d.moreUndecided {
				return
			}
			if s.anyPossible(undecided[j]) {
				add(Undecided{Right: w == right, Text: u.text, Step: u.step}, undecided[j])
			}
		}
	}
	for _, v := range s.unknownsOf(c.differsIf) {
		if d.meter.charge(MaxUndecided); d.moreUndecided {
			return
		}
		u := Undecided{Text: v.text}
		if v.step != nil {
			u.Step = *v.step
			u.Right = !hasChain(d.sides.Left, v.step.Chain)
		}
		add(u, none)
	}
}

// hasChain reports whether a chain belongs to the ruleset.
func hasChain(rs *rules.Ruleset, c *rules.Chain) bool {
	for _, other := range rs.AllChains() {
		if other == c {
			return true
		}
	}
	return false
}

// sameRule reports whether two reasons have the same text and belong to the same rule.
func (u Undecided) sameRule(other Undecided) bool {
	return u.Right == other.Right && u.Text == other.Text && u.Step.Chain == other.Step.Chain &&
		u.Step.Index == other.Step.Index
}

package nft

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// decodeRules decodes a rule as one or more equivalent rules of the model. If the last expression
// looks up a verdict in a map, or uses a value from a map, there are one or more rules for each
// value that has an effect. All of them have the handle of the original rule. These rules cannot be
// written back separately. decodeRules subtracts their size from budget; see maxExpansion.
func decodeRules(budget *int, family rules.Family, sets decodedSets, r rawRule) []rules.Rule {
	d := ruleDecoder{
		family: family, sets: sets, maySplit: true, budget: budget, unknowns: r.unknowns,
		indexScope: r.indexScope,
		// Conditions with a state are equal only in rules with equal expressions. Without all
		// expressions of the rule, equality cannot be decided.
		isIncomplete: r.incomplete,
	}
	d.rule.Line = r.line
	d.decode(r.attrs)
	if d.isSplit {
		return d.branches
	}
	return []rules.Rule{d.rule}
}

// A keyGroup contains the keys of a map with equal values.
type keyGroup[V comparable] struct {
	value V
	keys  []keyInterval
}

// groupKeys groups keys by value, in the order of each value's first key.
func groupKeys[V comparable](
	keys []keyInterval, valueOf func(first string) (V, error),
) ([]keyGroup[V], error) {
	sorted := slices.Clone(keys)
	slices.SortFunc(sorted, func(a, b keyInterval) int { return slices.Compare(a.first, b.first) })
	var groups []keyGroup[V]
	index := map[V]int{}
	for _, key := range sorted {
		value, err := valueOf(string(key.first))
		if err != nil {
			return nil, err
		}
		i, ok := index[value]
		if !ok {
			i = len(groups)
			index[value] = i
			groups = append(groups, keyGroup[V]{value: value})
		}
		groups[i].keys = append(groups[i].keys, key)
	}
	return groups, nil
}

// cachedGroups returns the result of groupKeys for the keys of a set. It caches the result under
// name.
func cachedGroups[V comparable](
	s *decodedSet, name string, valueOf func(first string) (V, error),
) ([]keyGroup[V], error) {
	var err error
	v := values{set: s, keys: s.keyList}
	groups, ok := cached(v, operand{text: name}, func(keys []keyInterval) (g []keyGroup[V], ok bool) {
		g, err = groupKeys(keys, valueOf)
		return g, err == nil
	})
	if !ok && err == nil {
		err = errUnsupported
	}
	return groups, err
}

// groupByVerdict groups the keys of a verdict map by verdict. It omits keys whose verdict has no
// action.
func (s *decodedSet) groupByVerdict() ([]keyGroup[verdict], error) {
	groups, err := cachedGroups(s, "verdicts", func(first string) (verdict, error) {
		return decodeVerdict(s.verdicts[first])
	})
	noAction := func(g keyGroup[verdict]) bool { return g.value.action == nil }
	return slices.DeleteFunc(slices.Clone(groups), noAction), err
}

// groupByValue groups the keys of a data map by value.
func (s *decodedSet) groupByValue() ([]keyGroup[string], error) {
	return cachedGroups(s, "values", func(first string) (string, error) {
		return string(s.data[first]), nil
	})
}

// decodeVerdictMap splits the rule at the lookup in a verdict map. The rule ends if the map does
// not contain the key. The verdict continue also ends the rule, because the lookup is the rule's
// last expression.
func (d *ruleDecoder) decodeVerdictMap(ops []operand, s *decodedSet) error {
	if s.verdicts == nil {
		return errUnsupported
	}
	if err := d.checkSplit(ops, s); err != nil {
		return err
	}
	groups, err := s.groupByVerdict()
	if err != nil {
		return err
	}
	var catchall verdict // without an action if the map has no catchall element
	if s.catchall != nil {
		if catchall, err = decodeVerdict(s.catchall.Get(unix.NFTA_DATA_VERDICT)); err != nil {
			return err
		}
	}
	act := func(branch *ruleDecoder, v verdict) error {
		branch.addAction(v.action)
		return nil
	}
	b := brancher{d: d, ops: ops, set: s}
	if isNumber(ops) {
		if s.catchall != nil {
			return errUnsupported
		}
		return numberBranches(b, groups, verdict.returns, act)
	}
	last := len(groups) - 1
	if catchall.action != nil {
		last++
	}
	for i, g := range groups {
		// The kernel evaluates the operands once. If the packet returns from a chain that may have
		// changed the operands, a later branch would evaluate other values.
		if g.value.returns() && i < last && mayChange(ops, g.keys) {
			return errUnsupported
		}
	}
	if err := addBranches(&b, groups, act); err != nil {
		return err
	}
	if catchall.action != nil {
		err := b.addOtherKeys(s.keyList, func(branch *ruleDecoder) error { return act(branch, catchall) })
		if err != nil {
			return err
		}
	}
	return b.finish()
}

// checkSplit returns an error if a rule cannot be split at a lookup of the operands in a map.
func (d *ruleDecoder) checkSplit(ops []operand, s *decodedSet) error {
	keys, err := s.keys()
	switch {
	case err != nil:
		return err
	case !d.maySplit || len(s.lastKeys) > 0 && mayOverlap(ops, keys):
		return errUnsupported
	case len(keys) > *d.budget:
		return errTooMany
	}
	return nil
}

// mayChange reports whether operands that match one of the keys may match another key when the
// packet returns from a chain. The conntrack state changes only for packets without a connection,
// which have the state invalid.
func mayChange(ops []operand, keys []keyInterval) bool {
	return slices.ContainsFunc(ops, func(op operand) bool {
		if op.field == fieldState {
			states, ok := statesIn(keys)
			return len(ops) > 1 || !ok || states.Has(rules.Invalid)
		}
		return op.isMutable()
	})
}

// decodeMapBranches splits the rule at an expression that ends the rule and uses register r, which
// contains a value of a map. There is one branch for each value of the map. do decodes the
// expression in one branch, after the register was set to the branch's value.
func (d *ruleDecoder) decodeMapBranches(r int, do func(*ruleDecoder) error) error {
	op := d.registers[r]
	if err := d.checkSplit(op.sources, op.mapped); err != nil {
		return err
	}
	if op.mapped.catchall != nil {
		return errUnsupported
	}
	groups, err := op.mapped.groupByValue()
	if err != nil {
		return err
	}
	b := brancher{d: d, ops: op.sources, set: op.mapped, mapped: op}
	withValue := func(branch *ruleDecoder, value string) error {
		branch.registers[r] = &operand{
			field: fieldConstant, length: len(value), constant: []byte(value),
		}
		return do(branch)
	}
	if isNumber(op.sources) {
		return numberBranches(b, groups, func(string) bool { return false }, withValue)
	}
	if err := addBranches(&b, groups, withValue); err != nil {
		return err
	}
	return b.finish()
}

// A brancher splits a rule into branches, each for some keys of a map.
type brancher struct {
	d        *ruleDecoder
	ops      []operand
	set      *decodedSet // the map
	mapped   *operand    // the value that was loaded from the map
	branches []rules.Rule
}

// addBranches adds the branches for groups of keys.
func addBranches[V comparable](
	b *brancher, groups []keyGroup[V], do func(*ruleDecoder, V) error,
) error {
	for _, g := range groups {
		err := b.addBranch(g.keys, func(branch *ruleDecoder) error { return do(branch, g.value) })
		if err != nil {
			return err
		}
	}
	return nil
}

// addBranch adds the branch for keys, or several branches if the model cannot represent all of
// their fields.
func (b *brancher) addBranch(keys []keyInterval, do func(*ruleDecoder) error) error {
	if len(b.ops) == 1 {
		matches, err := b.d.comparisonMatches(b.ops[0], false, values{keys: keys})
		if err == nil {
			return b.addRule(matches, len(keys), do)
		}
	}
	var alternatives [][]rules.Match
	for _, key := range keys {
		if !b.d.spend(len(b.ops) + 1) {
			return errTooMany
		}
		matches, supported, ok := b.d.tupleMatches(b.ops, key)
		if !ok {
			return errUnsupported
		}
		if supported {
			alternatives = append(alternatives, matches)
		} else if err := b.addRule(matches, 0, do); err != nil {
			return err
		}
	}
	switch len(alternatives) {
	case 0:
		return nil
	case 1:
		return b.addRule(alternatives[0], 0, do)
	}
	return b.addRule([]rules.Match{rules.MatchTuple{Alternatives: alternatives}}, 0, do)
}

// addOtherKeys adds the branch for all keys except the given ones.
func (b *brancher) addOtherKeys(keys []keyInterval, do func(*ruleDecoder) error) error {
	var matches []rules.Match
	switch {
	case len(keys) == 0:
		// Every key matches. The only condition is that the loaded fields exist.
		branch := *b.d
		b.d.clearPending(b.ops...)
		for _, p := range branch.pending {
			matches = append(matches, rules.Unknown{
				Text: p.text + " exists", Effect: rules.Reads, Data: rules.NoData,
			})
		}
	case len(b.ops) == 1:
		var err error
		if matches, err = b.d.comparisonMatches(b.ops[0], true, values{keys: keys}); err != nil ||
			len(matches) != 1 {
			return errUnsupported
		}
	default:
		if !b.d.spend(len(keys) * (len(b.ops) + 1)) {
			return errTooMany
		}
		if !isNegatable(b.ops) {
			return errUnsupported
		}
		m := rules.MatchTuple{Not: true}
		for _, key := range keys {
			tuple, supported, ok := b.d.tupleMatches(b.ops, key)
			if !ok || !supported {
				return errUnsupported
			}
			m.Alternatives = append(m.Alternatives, tuple)
		}
		matches = []rules.Match{m}
	}
	return b.addRule(matches, len(keys), do)
}

// errTooMany is the error when maxExpansion is exceeded. It is not the result of fmt.Errorf, which
// would need initialization code at program start.
var errTooMany error = tooManyError{}

type tooManyError struct{}

func (tooManyError) Error() string { return "too many keys, " + errUnsupported.Error() }

func (tooManyError) Unwrap() error { return errUnsupported }

// addRule adds a branch with additional matches. unspent is the number of values of these matches
// that the caller has not subtracted from the budget. do decodes the expression that ends the
// branch.
func (b *brancher) addRule(matches []rules.Match, unspent int, do func(*ruleDecoder) error) error {
	d := b.d
	if !d.spend(unspent + 2 + len(d.rule.Matches) + len(d.rule.Actions) + len(matches)) {
		return errTooMany
	}
	branch := *d
	branch.history, branch.unhashed = nil, nil
	branch.rule.Matches, branch.rule.Actions = slices.Clone(d.rule.Matches),
		slices.Clone(d.rule.Actions)
	branch.protocols = slices.Clip(d.protocols)
	branch.clearPending(b.ops...)
	if b.mapped != nil {
		branch.clearPending(*b.mapped)
	}
	for _, m := range matches {
		branch.addMatch(m)
	}
	if err := do(&branch); err != nil {
		return err
	}
	branch.finish()
	b.branches = append(b.branches, branch.rule)
	return nil
}

// finish stores the branches in the decoder. A rule that already has an action cannot be split into
// several branches, because each branch would repeat the action.
func (b *brancher) finish() error {
	switch d := b.d; {
	case len(b.branches) == 0:
		// No value of the map has an effect, but the lookup ends the rule for some packets. The
		// model has no condition for these packets.
		d.undo = &ruleLength{len(d.rule.Matches), len(d.rule.Actions)}
		d.addCondition(rules.Unknown{
			Text: "map without effect", Effect: rules.Reads, Data: rules.NoData,
		})
	case len(b.branches) > 1 && d.hasActed:
		return errUnsupported
	case len(b.branches) > 1:
		b.identifyStateful()
		fallthrough
	default:
		d.branches, d.isSplit = b.branches, true
	}
	return nil
}

// identifyStateful adds the identities of the rule and of the map to each condition before the map
// that depends on earlier packets, for example a limit. Such a condition has one state for all
// branches. It must not equal a condition of another rule, which has a separate state.
func (b *brancher) identifyStateful() {
	id, set := b.d.identity(), b.set.identity()
	for _, r := range b.branches {
		for i, m := range r.Matches {
			u, ok := m.(rules.Unknown)
			isStateful := u.Effect == rules.ReadsVarying || u.Effect == rules.ReadsHistory
			if !ok || !isStateful || !slices.Contains(b.d.rule.Matches, m) {
				continue
			}
			if u.Data += " " + id + " " + set; id == rules.NoData || set == rules.NoData {
				u.Data = rules.NoData
			}
			r.Matches[i] = u
		}
	}
}

// returns reports whether the packet can return to the chain after the verdict.
func (v verdict) returns() bool {
	jump, ok := v.action.(rules.Jump)
	return ok && !jump.Goto
}

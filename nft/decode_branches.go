package nft

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// decodeRules reads a rule as the rules of the model that do the same: several where a map ends it,
// one for each value, all with the rule's handle. They cannot be written back one by one. Each
// subtracts what it needs from room.
func decodeRules(room *int, family rules.Family, sets setDecoder, a attributes) []rules.Rule {
	d := ruleDecoder{family: family, sets: sets, splits: true, room: room}
	d.decode(a)
	if d.split {
		return d.branches
	}
	return []rules.Rule{d.rule}
}

// A keyGroup is the keys of a map that have the same value.
type keyGroup[V comparable] struct {
	value V
	keys  [][2][]byte
}

// groupKeys groups keys by value, in the order of each value's first key.
func groupKeys[V comparable](keys [][2][]byte, valueOf func(first string) (V, error)) ([]keyGroup[V], error) {
	sorted := slices.Clone(keys)
	slices.SortFunc(sorted, func(a, b [2][]byte) int { return slices.Compare(a[0], b[0]) })
	var groups []keyGroup[V]
	index := map[V]int{}
	for _, key := range sorted {
		value, err := valueOf(string(key[0]))
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

// grouped is groupKeys for the keys of a set, which are grouped once.
func grouped[V comparable](s *decodedSet, how string, valueOf func(first string) (V, error)) ([]keyGroup[V], error) {
	var err error
	groups, ok := cached(values{set: s}, operand{text: how}, func() ([]keyGroup[V], bool) {
		var groups []keyGroup[V]
		groups, err = groupKeys(s.keyList, valueOf)
		return groups, err == nil
	})
	if !ok && err == nil {
		err = errUnsupported
	}
	return groups, err
}

// byVerdict groups the keys of a verdict map, but for those of which the verdict is none.
func (s *decodedSet) byVerdict() ([]keyGroup[verdict], error) {
	groups, err := grouped(s, "verdicts", func(first string) (verdict, error) { return decodeVerdict(s.verdicts[first]) })
	return slices.DeleteFunc(slices.Clone(groups), func(g keyGroup[verdict]) bool { return g.value.action == nil }), err
}

// byValue groups the keys of another map.
func (s *decodedSet) byValue() ([]keyGroup[string], error) {
	return grouped(s, "values", func(first string) (string, error) { return string(s.data[first]), nil })
}

// verdictMap makes branches of a lookup of which the answer is a verdict. Where the map does not
// have the key the rule ends, and so it does, as the lookup is its last expression, where the
// verdict is to continue.
func (d *ruleDecoder) verdictMap(ops []operand, s *decodedSet) error {
	keys, err := s.keys()
	if err != nil {
		return err
	}
	if !d.splits || s.verdicts == nil || len(s.lasts) > 0 && overlap(ops, keys) {
		return errUnsupported
	}
	if len(keys) > *d.room {
		return errTooMany
	}
	groups, err := s.byVerdict()
	if err != nil {
		return err
	}
	var rest *verdict
	if s.catchall != nil {
		v, err := decodeVerdict(s.catchall.Get(unix.NFTA_DATA_VERDICT))
		if err != nil {
			return err
		}
		rest = &v
	}
	if len(ops) == 1 && ops[0].field == fieldNumber && ops[0].mask == nil {
		if rest != nil {
			return errUnsupported
		}
		b := brancher{d: d, ops: ops}
		return numberBranches(b, groups, verdict.comesBack, func(one *ruleDecoder, v verdict) error { one.act(v.action); return nil })
	}
	last := len(groups) - 1
	if rest != nil && rest.action != nil {
		last++
	}
	for i, g := range groups {
		// The kernel looks once. A rule behind one whose chain may have changed what is looked up
		// would look at another.
		if g.value.comesBack() && i < last && mayChange(ops, g.keys) {
			return errUnsupported
		}
	}
	b := brancher{d: d, ops: ops}
	for _, g := range groups {
		if err := b.branch(g.keys, func(one *ruleDecoder) error { one.act(g.value.action); return nil }); err != nil {
			return err
		}
	}
	if rest != nil && rest.action != nil {
		if err := b.others(keys, func(one *ruleDecoder) error { one.act(rest.action); return nil }); err != nil {
			return err
		}
	}
	return b.finish()
}

// mayChange reports whether operands that have one of the keys may have another when the packet
// comes back from a chain. A state changes only for packets that have no connection yet.
func mayChange(ops []operand, keys [][2][]byte) bool {
	return slices.ContainsFunc(ops, func(op operand) bool {
		if op.field == fieldState {
			states, ok := singleStates(keys)
			return len(ops) > 1 || !ok || states.Has(rules.Invalid)
		}
		return op.isMutable()
	})
}

// mapBranches makes branches of an expression that ends the rule, one for each value of the map
// that a register holds the value of.
func (d *ruleDecoder) mapBranches(r int, do func(*ruleDecoder) error) error {
	op := d.registers[r]
	keys, err := op.mapped.keys()
	if err != nil {
		return err
	}
	if !d.splits || op.mapped.catchall != nil || len(op.mapped.lasts) > 0 && overlap(op.sources, keys) {
		return errUnsupported
	}
	if len(keys) > *d.room {
		return errTooMany
	}
	groups, err := op.mapped.byValue()
	if err != nil {
		return err
	}
	b := brancher{d: d, ops: op.sources, mapped: op}
	replaced := func(one *ruleDecoder, value string) error {
		one.registers[r] = &operand{field: fieldConstant, length: len(value), constant: []byte(value)}
		return do(one)
	}
	if len(op.sources) == 1 && op.sources[0].field == fieldNumber && op.sources[0].mask == nil {
		return numberBranches(b, groups, func(string) bool { return false }, replaced)
	}
	for _, g := range groups {
		if err := b.branch(g.keys, func(one *ruleDecoder) error { return replaced(one, g.value) }); err != nil {
			return err
		}
	}
	return b.finish()
}

// A brancher makes the rules of which each is for some keys of a map.
type brancher struct {
	d        *ruleDecoder
	ops      []operand
	mapped   *operand // what is loaded from the map
	branches []rules.Rule
}

// branch adds the rule for keys, or where the model does not have a word for each of their fields
// several.
func (b *brancher) branch(keys [][2][]byte, do func(*ruleDecoder) error) error {
	if len(b.ops) == 1 {
		matches, err := b.d.matchesOf(b.ops[0], false, values{keys: keys})
		if err != nil {
			return err
		}
		return b.rule(matches, len(keys), do)
	}
	var alternatives [][]rules.Match
	for _, key := range keys {
		if !b.d.spend(len(b.ops) + 1) {
			return errTooMany
		}
		matches, known, ok := b.d.tuple(b.ops, key)
		if !ok {
			return errUnsupported
		}
		if known {
			alternatives = append(alternatives, matches)
		} else if err := b.rule(matches, 0, do); err != nil {
			return err
		}
	}
	switch len(alternatives) {
	case 0:
		return nil
	case 1:
		return b.rule(alternatives[0], 0, do)
	}
	return b.rule([]rules.Match{rules.MatchTuple{Alternatives: alternatives}}, 0, do)
}

// others adds the rule for all keys but these.
func (b *brancher) others(keys [][2][]byte, do func(*ruleDecoder) error) error {
	var matches []rules.Match
	switch {
	case len(keys) == 0:
		// What is loaded need not be compared.
		one := *b.d
		b.d.use(b.ops...)
		for _, p := range one.pending {
			matches = append(matches, rules.Unknown{Text: p.text + " exists", Effect: rules.Reads, Data: rules.NoData})
		}
	case len(b.ops) == 1:
		var err error
		if matches, err = b.d.matchesOf(b.ops[0], true, values{keys: keys}); err != nil || len(matches) != 1 {
			return errUnsupported
		}
	default:
		if !b.d.spend(len(keys) * (len(b.ops) + 1)) {
			return errTooMany
		}
		if comparesOtherThanPorts(b.ops) {
			return errUnsupported
		}
		m := rules.MatchTuple{Not: true}
		for _, key := range keys {
			one, known, ok := b.d.tuple(b.ops, key)
			if !ok || !known {
				return errUnsupported
			}
			m.Alternatives = append(m.Alternatives, one)
		}
		matches = []rules.Match{m}
	}
	return b.rule(matches, len(keys), do)
}

// errTooMany reports that maxExpansion is reached.
var errTooMany error = tooMany{}

type tooMany struct{}

func (tooMany) Error() string { return "more than fits, " + errUnsupported.Error() }

func (tooMany) Unwrap() error { return errUnsupported }

// rule adds the rule for packets that fulfil the matches, of which the values take the room as
// well.
func (b *brancher) rule(matches []rules.Match, room int, do func(*ruleDecoder) error) error {
	d := b.d
	if !d.spend(room + 2 + len(d.rule.Matches) + len(d.rule.Actions) + len(matches)) {
		return errTooMany
	}
	one := *d
	one.history, one.list = nil, nil
	one.rule.Matches, one.rule.Actions = slices.Clone(d.rule.Matches), slices.Clone(d.rule.Actions)
	one.protocols = slices.Clip(d.protocols)
	one.use(b.ops...)
	if b.mapped != nil {
		one.use(*b.mapped)
	}
	for _, m := range matches {
		one.addMatch(m)
	}
	if err := do(&one); err != nil {
		return err
	}
	one.finish()
	b.branches = append(b.branches, one.rule)
	return nil
}

// finish makes the branches the rules of the decoder. A rule that has already acted cannot be
// split, because each part would act.
func (b *brancher) finish() error {
	switch d := b.d; {
	case len(b.branches) == 0: // all that is left is that it ends
		d.undo = &cut{len(d.rule.Matches), len(d.rule.Actions)}
	case len(b.branches) > 1 && d.hasActed:
		return errUnsupported
	default:
		d.branches, d.split = b.branches, true
	}
	return nil
}

// comesBack reports whether the packet is back in the chain after the verdict.
func (v verdict) comesBack() bool {
	jump, ok := v.action.(rules.Jump)
	return ok && !jump.Goto
}

// numberBranches makes branches of a map of numbers that are drawn or calculated. Each but the last
// is taken by chance, and the last if no other was and the map has all numbers.
func numberBranches[V comparable](b brancher, groups []keyGroup[V], comesBack func(V) bool, do func(*ruleDecoder, V) error) error {
	d, op := b.d, b.ops[0]
	covered := uint64(0)
	var texts []string
	var taken []V
	for _, g := range groups {
		n, text, ok := op.numbers(g.keys)
		if !ok {
			return errUnsupported
		}
		if n > 0 {
			covered += n
			texts, taken = append(texts, text), append(taken, g.value)
		}
	}
	for i, v := range taken {
		last := i == len(taken)-1
		if comesBack(v) && !last {
			return errUnsupported // to a rule that does not know
		}
		var matches []rules.Match
		if !last || covered < uint64(op.modulus) {
			matches = append(matches, rules.Unknown{Text: op.String() + " " + texts[i], Effect: op.effect, Data: d.drawData(op)})
		}
		if err := b.rule(matches, len(texts[i])/16, func(one *ruleDecoder) error { return do(one, v) }); err != nil {
			return err
		}
	}
	return b.finish()
}

// drawData is the data of a condition that an operand has some value.
func (d *ruleDecoder) drawData(op operand) string {
	if op.noData {
		return rules.NoData
	}
	if op.effect != rules.Draws {
		return op.data
	}
	id := d.identity()
	if id == rules.NoData {
		return id
	}
	return fmt.Sprintf("%d %s", d.draws, id)
}

// numbers counts the values of the operand among the keys, and writes them.
func (o operand) numbers(keys [][2][]byte) (n uint64, text string, ok bool) {
	ranges, ok := hostRanges(o, keys)
	if !ok || o.modulus == 0 {
		return 0, "", false
	}
	first, last := uint64(o.offset), uint64(o.offset)+uint64(o.modulus)-1
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.String()
		if from, to := max(first, uint64(r.First)), min(last, uint64(r.Last)); from <= to {
			n += to - from + 1
		}
	}
	return n, "{ " + strings.Join(texts, ", ") + " }", true
}

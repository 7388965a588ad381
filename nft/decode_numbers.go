package nft

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// numberBranches splits the rule at a map whose keys are random or calculated numbers. The model
// has no condition for such a number. Therefore each branch has an unknown condition. There is one
// exception: if the map contains all possible numbers, the last branch has no condition, because it
// applies if no other branch does.
func numberBranches[V comparable](
	b brancher, groups []keyGroup[V], returns func(V) bool, do func(*ruleDecoder, V) error,
) error {
	d, op := b.d, b.ops[0]
	covered := uint64(0)
	var texts []string
	var possible []V
	for _, g := range groups {
		n, text, ok := op.countNumbers(g.keys)
		if !ok {
			return errUnsupported
		}
		if n > 0 {
			covered += n
			texts, possible = append(texts, text), append(possible, g.value)
		}
	}
	for i, v := range possible {
		last := i == len(possible)-1
		if returns(v) && !last {
			return errUnsupported // after the return, a later branch could apply too
		}
		var matches []rules.Match
		if !last || covered < uint64(op.modulus) {
			matches = append(matches, rules.Unknown{
				Text: op.String() + " " + texts[i], Effect: op.effect, Data: d.numberData(op),
			})
		}
		// For the budget, 16 bytes of the text count as one value.
		err := b.addRule(matches, len(texts[i])/16, func(branch *ruleDecoder) error {
			return do(branch, v)
		})
		if err != nil {
			return err
		}
	}
	return b.finish()
}

// numberData returns the [rules.Unknown.Data] of a condition that compares a number.
func (d *ruleDecoder) numberData(op operand) string {
	if op.noData {
		return rules.NoData
	}
	if op.effect != rules.ReadsVarying {
		return op.data
	}
	id := d.precondition(op.data)
	if id == rules.NoData {
		return id
	}
	return fmt.Sprintf("%d %s", d.varyingCount, id)
}

// countNumbers returns the number of possible values of the operand that the keys contain, and a
// text with the keys.
func (o operand) countNumbers(keys []keyInterval) (n uint64, text string, ok bool) {
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

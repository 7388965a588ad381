package save

import "github.com/sluice-mesh/sluice/rules"

// BlocksOf inserts a rule at each of the indexes into an empty list, and returns the sizes of the
// resulting blocks.
func BlocksOf(indexes []int) []int {
	var l ruleList
	for _, at := range indexes {
		l.insert(at, rules.Rule{})
	}
	var sizes []int
	for _, b := range l.blocks {
		sizes = append(sizes, len(b.entries))
	}
	return sizes
}

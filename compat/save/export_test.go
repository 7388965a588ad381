package save

import "github.com/sluice-mesh/sluice/rules"

// BlocksOf returns the sizes of the blocks of a list after rules have been inserted at those
// indexes.
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

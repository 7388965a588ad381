package save

import "github.com/sluice-mesh/sluice/rules"

// BlocksOf returns the sizes of a list's blocks after rules were inserted at the indexes.
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

package main

import (
	"fmt"
	"strings"
)

// farthest is the edit distance up to which a name counts as misspelt.
const farthest = 2

// didYouMean returns a question about the names that are closest to a wrong one, to be appended to
// an error. It is empty if no name is close. A name that begins with the wrong one is close too.
func didYouMean(wrong, prefix string, names []string) string {
	var found []string
	least := farthest
	for _, name := range names {
		distance := editDistance(wrong, name)
		if len(wrong) > 1 && strings.HasPrefix(name, wrong) {
			distance = min(distance, farthest)
		}
		if distance > least || distance >= len(name) {
			continue
		}
		if distance < least {
			found, least = nil, distance
		}
		found = append(found, prefix+name)
	}
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", strings.Join(found, " or "))
}

// editDistance returns how many bytes must be inserted, removed or replaced to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // of distances between a prefix of a and each prefix of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

package config

import (
	"strings"
	"unicode"
)

// maxSlips is how many letters too much, too few or wrong make a name that is meant to be another. Our names are so long that
// nobody else's is so near.
const maxSlips = 2

// resembled finds the field that a name that is none of ours was probably meant to be.
func resembled(unknown string) (string, bool) {
	unknown = plain(unknown)
	best, slips := "", maxSlips+1
	for _, f := range table() {
		if d := distance(unknown, plain(f.Name)); d < slips {
			best, slips = f.Name, d
		}
	}
	if d := distance(unknown, earlyObject); d < slips {
		best, slips = earlyObject, d
	}
	return best, slips <= maxSlips
}

// plain drops what people mix up: capital letters, and what separates words. Every call of the plugin does that with all names, so that it
// must not take a [strings.Replacer]: the table of one has several pages.
func plain(name string) string {
	return strings.Map(func(letter rune) rune {
		if letter == '_' || letter == '-' {
			return -1
		}
		return unicode.ToLower(letter)
	}, name)
}

// distance is Levenshtein's: the least number of letters to be inserted, deleted or exchanged. Names whose lengths alone differ by more
// than maxSlips are all equally far.
func distance(a, b string) int {
	if diff := len(a) - len(b); diff > maxSlips || -diff > maxSlips {
		return maxSlips + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

package config

import (
	"strings"
	"unicode"
)

// maxSlips is the edit distance up to which a name is taken for a misspelt one. Our names are long,
// and no names of others are so close.
const maxSlips = 2

// resembled returns the field that an unknown name resembles.
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

// plain removes separators of words and folds case. It is called for all names in every run of the
// plugin. It uses no [strings.Replacer], whose table has several pages.
func plain(name string) string {
	return strings.Map(func(letter rune) rune {
		if letter == '_' || letter == '-' {
			return -1
		}
		return unicode.ToLower(letter)
	}, name)
}

// distance returns the Levenshtein distance of two names, or a large number if their lengths differ
// by more than maxSlips.
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

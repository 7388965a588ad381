package config

import (
	"strings"
	"unicode"

	"github.com/sluice-mesh/sluice/plugin/text"
)

// maxSlips is the edit distance up to which a name is taken for a misspelt one. Our names are long,
// and no names of others are so close.
const maxSlips = 2

// resembled returns the field that an unknown name resembles.
func resembled(unknown string) (string, bool) {
	unknown = plain(unknown)
	best, slips := "", maxSlips+1
	for _, f := range Fields() {
		if d := text.Distance(unknown, plain(f.Name), maxSlips); d < slips {
			best, slips = f.Name, d
		}
	}
	if d := text.Distance(unknown, earlyObject, maxSlips); d < slips {
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

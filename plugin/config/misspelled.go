package config

import (
	"strings"
	"unicode"

	"github.com/sluice-mesh/sluice/plugin/text"
)

// maxDistance is the maximum edit distance between a misspelled name and the name of a field. The
// names of the plugin's fields are long, and fields of other programs are less similar to them.
const maxDistance = 2

// resembledField returns the name of the field that an unknown name resembles most. It returns
// false if the unknown name resembles no field.
func resembledField(fields []Field, unknown string) (string, bool) {
	unknown = normalize(unknown)
	best, distance := "", maxDistance+1
	for _, f := range fields {
		if d := text.Distance(unknown, normalize(f.Name), maxDistance); d < distance {
			best, distance = f.Name, d
		}
	}
	if d := text.Distance(unknown, earlyObject, maxDistance); d < distance {
		best, distance = earlyObject, d
	}
	return best, distance <= maxDistance
}

// normalize removes word separators and folds case. It is called for all names in every run of the
// plugin, so it avoids [strings.Replacer], whose table uses several pages of memory.
func normalize(name string) string {
	return strings.Map(func(letter rune) rune {
		if letter == '_' || letter == '-' {
			return -1
		}
		return unicode.ToLower(letter)
	}, name)
}

package agent

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// longestText is how many bytes of a foreign text are passed on.
const longestText = 600

// cut shortens a text.
func cut(text string) string {
	if len(text) <= longestText {
		return text
	}
	return strings.ToValidUTF8(text[:longestText], "") + "…"
}

// printable is an error with a foreign text, which fits into a line.
type printable string

func (p printable) Error() string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return utf8.RuneError
	}, cut(string(p)))
}

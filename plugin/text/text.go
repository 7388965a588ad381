package text

import (
	"strconv"
	"strings"
	"unicode"
)

const mark = "…"

// Cut shortens a text to at most so many bytes with the ellipsis at its end, which is not added to
// a text that is short enough. The result is valid UTF-8 where the text is. The limit is at least
// 3, the length of the ellipsis.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(mark)], "") + mark
}

// Printable makes one line of a text: white space is blanks, and everything else that is not
// printed replacement characters (U+FFFD).
func Printable(text string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case unicode.IsPrint(c):
			return c
		case unicode.IsSpace(c):
			return ' '
		}
		return unicode.ReplacementChar
	}, text)
}

// Quote quotes the beginning of a text, of at most so many bytes, as Go does.
func Quote(text string, most int) string { return strconv.Quote(Cut(text, most)) }

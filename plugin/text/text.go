// Package text makes untrusted text fit into an error or a log line: bounded, and quoted on one
// line. (Printable of package rules makes it printable without quotes.) It shortens lists, and
// computes the edit distance between names, to recognize a misspelled name.
//
//	fmt.Errorf("%s is not a name", text.Quote(name, 100))
package text

import (
	"fmt"
	"strconv"
	"strings"
)

const ellipsis = "…"

// Truncate shortens a text to at most maxLen bytes, including an ellipsis at its end. It does not
// change a text that fits. maxLen must be at least 3, the length of the ellipsis in bytes.
func Truncate(text string, maxLen int) string {
	if len(text) <= maxLen {
		return text
	}
	// ToValidUTF8 removes the beginning of a character that was cut.
	return strings.ToValidUTF8(text[:maxLen-len(ellipsis)], "") + ellipsis
}

// Quote truncates a text to maxLen bytes and quotes it with Go's syntax.
func Quote(text string, maxLen int) string { return strconv.Quote(Truncate(text, maxLen)) }

// List joins texts with commas. Of more than maxListed texts, it returns the first maxListed and
// the number of the others.
func List(texts []string, maxListed int) string {
	if len(texts) <= maxListed {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:maxListed], ", "), len(texts)-maxListed)
}

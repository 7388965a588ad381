package decide

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/plugin/text"
)

// maxQuoted is the maximum number of bytes of an invalid value in an error.
const maxQuoted = 64

// quote quotes an untrusted value on one line with limited length.
func quote(value string) string { return text.Quote(value, maxQuoted) }

// maxListed bounds the number of elements that a list in a message names, and the number of invalid
// elements of a value that are reported.
const maxListed = 8

// shortList quotes untrusted names and joins at most maxListed of them.
func shortList(names []string) string {
	shown := make([]string, 0, maxListed+1)
	for i, name := range names {
		if i == maxListed {
			shown = append(shown, fmt.Sprintf("and %d more", len(names)-maxListed))
			break
		}
		shown = append(shown, quote(name))
	}
	return strings.Join(shown, ", ")
}

package main

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/plugin/text"
)

// farthest is the edit distance up to which a name counts as misspelt.
const farthest = 2

// didYouMean returns a question about the names that are closest to a wrong one, to be appended to
// an error. It is empty if no name is close. A name that begins with the wrong one is close too.
func didYouMean(wrong, prefix string, names []string) string {
	var found []string
	least := farthest
	for _, name := range names {
		distance := text.Distance(wrong, name, farthest)
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

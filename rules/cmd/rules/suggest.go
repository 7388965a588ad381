package main

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/plugin/text"
)

// maxDistance is the maximum edit distance of a misspelled name.
const maxDistance = 2

// didYouMean returns a question for the end of an error: the names that are most similar to a wrong
// name, each after the prefix. The question is empty if no name is similar. A name that begins with
// the wrong name is similar, unless the wrong name is a single byte.
func didYouMean(wrong, prefix string, names []string) string {
	var found []string
	least := maxDistance
	for _, name := range names {
		distance := text.Distance(wrong, name, maxDistance)
		if len(wrong) > 1 && strings.HasPrefix(name, wrong) {
			distance = min(distance, maxDistance)
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

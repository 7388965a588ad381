package nft

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// formatRule formats a rule as its matches, "|", and its actions. A match after an action is in
// brackets.
func formatRule(r rules.Rule) string {
	var words []string
	for _, m := range r.Matches {
		words = append(words, formatPart(m))
	}
	words = append(words, "|")
	for _, a := range r.Actions {
		if q, ok := a.(rules.Require); ok {
			words = append(words, "["+formatPart(q.Match)+"]")
		} else {
			words = append(words, formatPart(a))
		}
	}
	return strings.Join(words, " ")
}

// formatPart formats a match or an action. An unknown is formatted as its effect and its text, and
// has a question mark if it never equals another unknown.
func formatPart(part interface{ String() string }) string {
	u, ok := part.(rules.Unknown)
	if !ok {
		return part.String()
	}
	names := [...]string{
		rules.AnyEffect: "anything", rules.Reads: "reads", rules.ReadsVarying: "reads varying",
		rules.ReadsHistory:        "reads history",
		rules.WritesMark:          "writes mark",
		rules.WritesConntrackMark: "writes ct mark",
		rules.TranslatesSource:    "translates source",
	}
	text := names[u.Effect] + "(" + u.Text + ")"
	if u.Data == rules.NoData {
		text += "?"
	}
	return text
}

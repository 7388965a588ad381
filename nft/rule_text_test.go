package nft

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// shape formats a rule as its matches, "|", and its actions. A match after an action is in
// brackets. An unknown has its effect, and a question mark if it never equals another unknown.
func shape(r rules.Rule) string {
	var words []string
	for _, m := range r.Matches {
		words = append(words, shapeOf(m))
	}
	words = append(words, "|")
	for _, a := range r.Actions {
		if q, ok := a.(rules.Require); ok {
			words = append(words, "["+shapeOf(q.Match)+"]")
		} else {
			words = append(words, shapeOf(a))
		}
	}
	return strings.Join(words, " ")
}

func shapeOf(part interface{ String() string }) string {
	u, ok := part.(rules.Unknown)
	if !ok {
		return part.String()
	}
	names := [...]string{
		rules.AnyEffect: "anything", rules.Reads: "reads", rules.ReadsVarying: "draws",
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

package diff

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// String returns the field and its values, such as "destination port 443".
func (c Condition) String() string { return c.Field + " " + c.Values }

// String returns a description of the class in four lines: the packets, with the deviations that
// explain the difference; an example; and for each side the outcome and the rule that determines
// it.
func (c Class) String() string {
	words := make([]string, len(c.Packets))
	for i, condition := range c.Packets {
		words[i] = condition.String()
	}
	packets := strings.Join(words, ", ")
	if len(c.Deviations) > 0 {
		packets += fmt.Sprintf(" (known deviation %s)", joinIDs(c.Deviations))
	}
	return fmt.Sprintf("%s\n\texample: %s\n\tleft:    %s\n\tright:   %s",
		packets, c.Witness, c.Outcome.Left, c.Outcome.Right)
}

// String returns the outcome of the packet and the rule or the reason that determined it.
func (o SideOutcome) String() string {
	switch {
	case o.Decided != nil && o.Decided.Chain != nil:
		return fmt.Sprintf("%s, by %s", o.Outcome, o.Decided)
	case o.Reason != "":
		return fmt.Sprintf("%s, by %s", o.Outcome, o.Reason)
	}
	return o.Outcome.String()
}

// joinIDs returns the ids of deviations as one text.
func joinIDs(ids []rules.DeviationID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = string(id)
	}
	return strings.Join(words, " with ")
}

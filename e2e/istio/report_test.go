package istio_test

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// describe formats the result of a comparison: each class of packets with a witness, both outcomes
// and the deciding rules.
func describe(r diff.Result, left, right string) string {
	var b strings.Builder
	for _, c := range r.Classes {
		b.WriteString(describeClass(c, left, right))
	}
	if r.More {
		b.WriteString("more classes follow\n")
	}
	for _, u := range r.Undecided {
		fmt.Fprintf(&b, "undecided: %q in %s, reached by %s\n", u.Text, u.Step, u.Witness)
	}
	for _, d := range r.Routing {
		fmt.Fprintf(&b, "routing: %s\n", d)
	}
	return b.String()
}

// describeClass formats a class of packets.
func describeClass(c diff.Class, left, right string) string {
	var b strings.Builder
	b.WriteString("packets")
	for _, condition := range c.Packets {
		fmt.Fprintf(&b, " | %s %s", condition.Field, condition.Values)
	}
	if len(c.Deviations) > 0 {
		fmt.Fprintf(&b, "  (deviation %v)", c.Deviations)
	}
	fmt.Fprintf(&b, "\n\t%s\n", c.Witness)
	for _, side := range []struct {
		name string
		diff.SideOutcome
	}{{left, c.Outcome.Left}, {right, c.Outcome.Right}} {
		fmt.Fprintf(&b, "\t%-16s %s\n", side.name+":", side.Outcome)
		if side.Decided != nil {
			fmt.Fprintf(&b, "\t%-16s by %s%s\n", "", side.Decided, positionOf(side.Decided.Rule()))
		}
	}
	return b.String()
}

// positionOf returns the position of a rule in its source, if known.
func positionOf(r *rules.Rule) string {
	switch {
	case r.Line != 0:
		return fmt.Sprintf(" (line %d)", r.Line)
	case r.Handle != 0:
		return fmt.Sprintf(" (handle %d)", r.Handle)
	}
	return ""
}

// deviationsOf returns the deviations in a comparison.
func deviationsOf(r diff.Result) map[rules.DeviationID]bool {
	named := map[rules.DeviationID]bool{}
	for _, c := range r.Classes {
		for _, d := range c.Deviations {
			named[d] = true
		}
	}
	return named
}

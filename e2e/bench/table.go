package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Print writes the costs of a row as a table: ratios are those of the contestant to the first one.
func Print(w io.Writer, row Row, costs []Cost) {
	fmt.Fprintf(w, "\n%s\n", row.Name)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\twall ms\tratio\tfastest ms\tratio\tCPU ms\tmemory MB\tratio\tprograms executed\t")
	for i := range costs {
		c, first := &costs[i], &costs[0]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%.1f\t%s\t%d\t\n", row.Contestants[i].Name,
			milliseconds(c.Wall()), times(c.Wall(), first.Wall()),
			milliseconds(c.Fastest()), times(c.Fastest(), first.Fastest()),
			milliseconds(c.CPU()),
			float64(c.Memory)/1e6, times(c.Memory, first.Memory),
			c.Executed)
	}
	_ = t.Flush()
	for _, line := range verdicts(row, costs) {
		fmt.Fprintf(w, "  %s\n", line)
	}
}

// verdicts says of each goal whether it is reached against every peer.
func verdicts(row Row, costs []Cost) []string {
	var lines []string
	for _, g := range row.Goals {
		var missed []string
		worst := 0.0
		for i := range costs {
			if row.Contestants[i].Ours {
				continue
			}
			part := g.Quantity.Of(&costs[0]) / g.Quantity.Of(&costs[i])
			worst = max(worst, part)
			if part > g.AtMost {
				missed = append(missed, fmt.Sprintf("%.2f of %s", part, row.Contestants[i].Name))
			}
		}
		line := fmt.Sprintf("goal: %s at most %.2f of any peer's: met, %.2f", g.Quantity.Name, g.AtMost, worst)
		if len(missed) > 0 {
			line = fmt.Sprintf("goal: %s at most %.2f of any peer's: MISSED, %s", g.Quantity.Name, g.AtMost, strings.Join(missed, ", "))
		}
		lines = append(lines, line)
	}
	return lines
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e6) }

func times[T ~int64](value, first T) string {
	if first == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fx", float64(value)/float64(first))
}

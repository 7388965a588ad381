package kerneltest

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/rules"
)

// PathCounts counts traced packets by the result of comparing the rules that they matched in the
// kernel with the rules that they match in the model.
type PathCounts struct {
	// Rulesets counts the rulesets that were loaded, and Refused the rulesets that a program
	// rejected.
	Rulesets, Refused int
	// Equal counts the packets that matched equal rules, and Rules these rules.
	Equal, Rules int
	// NotCompared counts traced packets whose path the model does not predict, by cause.
	NotCompared map[string]int
	// NotTraced counts packets that the kernel did not report, because they are not the first
	// packet of their connection or were not sent as described.
	NotTraced int
	// Ambiguous counts the packets with a different path that are not failures, because the order
	// of the ruleset's chains is unknown.
	Ambiguous int
	Failures  []PathFailure
}

// Traced returns the number of packets that the kernel reported.
func (c *PathCounts) Traced() int {
	return c.Equal + c.Ambiguous + len(c.Failures) + sumCounts(c.NotCompared)
}

// Add adds the counts of other.
func (c *PathCounts) Add(other PathCounts) {
	c.Rulesets += other.Rulesets
	c.Refused += other.Refused
	c.Equal += other.Equal
	c.Rules += other.Rules
	c.NotTraced += other.NotTraced
	c.Ambiguous += other.Ambiguous
	c.Failures = append(c.Failures, other.Failures...)
	addCounts(&c.NotCompared, other.NotCompared)
}

// String returns the counts.
func (c *PathCounts) String() string {
	compared := c.Equal + len(c.Failures)
	return fmt.Sprintf("%d rulesets (%d refused), %d packets traced, %d not; "+
		"%d paths compared: %d equal with %d rules, %d differ; "+
		"%d not compared (%d causes), %d of ambiguous order",
		c.Rulesets, c.Refused, c.Traced(), c.NotTraced, compared, c.Equal, c.Rules, len(c.Failures),
		sumCounts(c.NotCompared), len(c.NotCompared), c.Ambiguous)
}

// A PathFailure is a packet whose path differs from the prediction.
type PathFailure struct {
	Seed        uint64
	Ruleset     Ruleset
	Packet      rules.Packet
	Observation livetrace.Observation
}

// String returns the failure, with all data to reproduce it.
func (f PathFailure) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d\n%spacket %s status %s reply %t icmp %d/%d\n", f.Seed,
		f.Ruleset, f.Packet, f.Packet.Status, f.Packet.Reply, f.Packet.ICMPType,
		f.Packet.ICMPCode)
	for _, difference := range f.Observation.Differences {
		fmt.Fprintln(&text, difference)
	}
	for _, pass := range f.Observation.Predicted.Passes {
		for _, step := range pass.Steps {
			fmt.Fprintf(&text, "    predicted %s\n", step)
		}
	}
	for _, step := range f.Observation.Steps {
		fmt.Fprintf(&text, "    traced    %s\n", step)
	}
	return text.String()
}

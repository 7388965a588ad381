package kerneltest

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A PairCounts counts the results of testing decisions about pairs of rulesets.
type PairCounts struct {
	Pairs, Refused, Equivalent, Different, Undecidable int
	// Confirmed counts the witnesses that had the two outcomes of the decision. Unobservable counts
	// the witnesses whose two outcomes have the same observable effect. Unsent counts, by cause,
	// the witnesses that could not be sent or judged.
	Confirmed, Unobservable int
	Unsent                  map[string]int
	// Boundary counts the packets at the boundaries of both rulesets' classes.
	Boundary int
	// Alike counts the packets that had equal effects with both rulesets. Explained counts the
	// packets with different effects that are in a class of the decision or undecided.
	Alike, Explained int
	Failures         []PairFailure
}

// Add adds the counts of other.
func (t *PairCounts) Add(o PairCounts) {
	t.Pairs += o.Pairs
	t.Refused += o.Refused
	t.Equivalent += o.Equivalent
	t.Different += o.Different
	t.Undecidable += o.Undecidable
	t.Confirmed += o.Confirmed
	t.Unobservable += o.Unobservable
	t.Boundary += o.Boundary
	t.Alike += o.Alike
	t.Explained += o.Explained
	t.Failures = append(t.Failures, o.Failures...)
	addCounts(&t.Unsent, o.Unsent)
}

// String returns the counts.
func (t *PairCounts) String() string {
	return fmt.Sprintf(
		"%d pairs of rulesets (%d more were refused): %d equivalent, %d different, %d cannot decide\n"+
			"  witnesses: %d confirmed, %d differ in nothing observable, %d cannot be sent %v\n"+
			"  packets: %d alike, %d different as decided, %d failures; %d were drawn at boundaries\n",
		t.Pairs, t.Refused, t.Equivalent, t.Different, t.Undecidable, t.Confirmed, t.Unobservable,
		sumCounts(t.Unsent), t.Unsent, t.Alike, t.Explained, len(t.Failures), t.Boundary)
}

// A PairFailure is a packet for which a decision is wrong.
type PairFailure struct {
	Seed        uint64
	Left, Right Ruleset
	Packet      rules.Packet
	Listeners   bool
	Claim       string
	Effects     diff.Pair[Effect]
}

// String returns everything that is needed to reproduce the failure.
func (f PairFailure) String() string {
	return fmt.Sprintf("seed %d, listeners %t\nleft:\n%sright:\n%s"+
		"packet %s status %s reply %t icmp %d/%d\nclaim: %s\nleft:  %s\nright: %s\n",
		f.Seed, f.Listeners, f.Left, f.Right, f.Packet, f.Packet.Status, f.Packet.Reply,
		f.Packet.ICMPType, f.Packet.ICMPCode, f.Claim, f.Effects.Left, f.Effects.Right)
}

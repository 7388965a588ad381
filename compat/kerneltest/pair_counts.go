package kerneltest

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// PairCounts counts the results of testing decisions about pairs of rulesets.
type PairCounts struct {
	// Pairs counts the pairs that were compared. Refused counts the other pairs: a program rejected
	// a ruleset, or the order of some of its chains is unknown.
	Pairs, Refused int
	// Equivalent, Different and Undecidable count the pairs by the verdict of the decision.
	Equivalent, Different, Undecidable int
	// Confirmed counts the witnesses that had the two outcomes of the decision. Unobservable counts
	// the witnesses whose two outcomes have the same observable effect. Unsent counts, by cause,
	// the witnesses that could not be sent or compared.
	Confirmed, Unobservable int
	Unsent                  map[string]int
	// Boundary counts the packets at the boundaries of both rulesets' classes.
	Boundary int
	// Alike counts the packets that had equal effects with both rulesets. Explained counts the
	// packets with different effects that are undecided, in a class of the decision, or not covered
	// by the decision.
	Alike, Explained int
	Failures         []PairFailure
}

// Add adds the counts of other.
func (c *PairCounts) Add(other PairCounts) {
	c.Pairs += other.Pairs
	c.Refused += other.Refused
	c.Equivalent += other.Equivalent
	c.Different += other.Different
	c.Undecidable += other.Undecidable
	c.Confirmed += other.Confirmed
	c.Unobservable += other.Unobservable
	c.Boundary += other.Boundary
	c.Alike += other.Alike
	c.Explained += other.Explained
	c.Failures = append(c.Failures, other.Failures...)
	addCounts(&c.Unsent, other.Unsent)
}

// addVerdict counts a pair with the verdict.
func (c *PairCounts) addVerdict(v diff.Verdict) {
	c.Pairs++
	switch v {
	case diff.Equivalent:
		c.Equivalent++
	case diff.Different:
		c.Different++
	default:
		c.Undecidable++
	}
}

// String returns the counts.
func (c *PairCounts) String() string {
	return fmt.Sprintf(
		"%d pairs of rulesets (%d more were refused): "+
			"%d equivalent, %d different, %d undecidable\n"+
			"  witnesses: %d confirmed, %d with equal observable effects, %d not sent or compared %v\n"+
			"  packets: %d alike, %d different as decided, %d failures; "+
			"%d were drawn at boundaries\n",
		c.Pairs, c.Refused, c.Equivalent, c.Different, c.Undecidable, c.Confirmed, c.Unobservable,
		sumCounts(c.Unsent), c.Unsent, c.Alike, c.Explained, len(c.Failures), c.Boundary)
}

// A PairFailure is a packet for which a decision is wrong.
type PairFailure struct {
	Seed        uint64
	Left, Right Ruleset
	Packet      rules.Packet
	Claim       string            // what the decision says about the packet
	Effects     diff.Pair[Effect] // the observed effects
}

// String returns everything that is needed to reproduce the failure.
func (f PairFailure) String() string {
	return fmt.Sprintf("seed %d\nleft:\n%sright:\n%s"+
		"packet %s status %s reply %t icmp %d/%d\nclaim: %s\nleft:  %s\nright: %s\n",
		f.Seed, f.Left, f.Right, f.Packet, f.Packet.Status, f.Packet.Reply,
		f.Packet.ICMPType, f.Packet.ICMPCode, f.Claim, f.Effects.Left, f.Effects.Right)
}

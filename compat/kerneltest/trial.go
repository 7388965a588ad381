package kerneltest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// programs returns the names of the ruleset's programs, such as "legacy+nft".
func (rs Ruleset) programs() string {
	var names []string
	for _, t := range rs {
		names = append(names, string(t.Program))
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "+")
}

// A Failure is a packet for which the model's prediction is wrong.
type Failure struct {
	Seed      uint64
	Ruleset   Ruleset
	Packet    rules.Packet
	Predicted []rules.Outcome
	Observed  Effect
	Entries   []LogEntry
}

// String returns everything that is needed to reproduce the failure.
func (f Failure) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d\n%s", f.Seed, f.Ruleset)
	p := &f.Packet
	fmt.Fprintf(&text, "packet %s status %s reply %t icmp %d/%d redirect to %s\n", p, p.Status,
		p.Reply, p.ICMPType, p.ICMPCode, p.InAddress)
	for _, outcome := range f.Predicted {
		fmt.Fprintf(&text, "predicted %s %+v\n", outcome, outcome)
	}
	fmt.Fprintf(&text, "observed  %s\n", f.Observed)
	for _, e := range f.Entries {
		fmt.Fprintf(&text, "    %s\n", e)
	}
	return text.String()
}

// A comparison is the result of comparing the model with the kernel for a packet.
type comparison struct {
	err          error  // the reason why the packet was not compared
	undecided    string // the reason why the model has no prediction
	marksUnknown bool   // whether the model does not know the marks
	agrees       bool
	failure      Failure // valid if err, undecided and agrees are not set
}

// compare loads the ruleset, sends the packets, and compares the model with the kernel for each
// packet. ambiguous reports whether the order of some chains of the ruleset is unknown.
func (n *Network) compare(
	rs Ruleset, packets []rules.Packet, open []Listener,
) (comparisons []comparison, ambiguous bool, err error) {
	packets = slices.Clone(packets)
	live, err := n.prepare(rs, packets, open)
	if err != nil {
		return nil, false, err
	}
	observations, err := n.Observe(packets)
	if err != nil {
		return nil, false, err
	}
	comparisons = make([]comparison, len(packets))
	for i, o := range observations {
		p := &packets[i]
		c := &comparisons[i]
		if c.err = o.Err; c.err != nil {
			continue
		}
		if reason := causeOfUnknownSockets(rs, p); reason != "" {
			c.err = fmt.Errorf("%w: %s", errUnsendable, reason)
			continue
		}
		effect, err := o.Effect(p)
		if c.err = err; err != nil {
			continue
		}
		outcome, alternatives := Explain(&live.Ruleset, *p)
		c.marksUnknown = outcome.UnknownMarks != ""
		if outcome.Undecided != "" {
			c.undecided = outcome.Undecided
			continue
		}
		outcomes := append([]rules.Outcome{outcome}, alternatives...)
		c.agrees = predictsAny(p, outcomes, effect, open)
		c.failure = Failure{
			Ruleset: rs, Packet: *p, Predicted: outcomes, Observed: effect, Entries: o.Entries,
		}
	}
	return comparisons, len(live.Ambiguous) > 0, nil
}

// prepare loads the ruleset, opens the listeners, and describes them in the packets. It returns the
// model of the rules, as read from the kernel.
func (n *Network) prepare(
	rs Ruleset, packets []rules.Packet, open []Listener,
) (compat.Live, error) {
	if err := n.Load(rs); err != nil {
		return compat.Live{}, err
	}
	live, err := n.Read()
	if err == nil {
		err = n.setListeners(open)
	}
	describeListeners(packets, open, &live.Ruleset)
	return live, err
}

// causeOfUnknownSockets returns the reason why the model cannot represent the listeners that rules
// may find for the packet, or an empty string.
func causeOfUnknownSockets(rs Ruleset, p *rules.Packet) string {
	isPortOpen := slices.ContainsFunc(openListeners(p), func(l Listener) bool {
		return l.Port == p.Destination.Port()
	})
	switch {
	case isPortOpen && rs.Has("socket"):
		return "the model does not know the sockets for the packet"
	case !isPortOpen && !p.NoListener && rs.Has("--on-port 0"):
		return "in the model all ports have a listener or none has"
	}
	return ""
}

// Trial draws a ruleset and packets and compares the model with the kernel for each packet. If a
// program refuses the ruleset, Trial draws another one. In some trials, some or all listeners are
// closed.
func (n *Network) Trial(seed uint64, packets int) (Counts, error) {
	counts := Counts{Undecided: map[string]int{}, NotCompared: map[string]int{}}
	g := newTrialGenerator(seed)
	for {
		rs := g.Ruleset()
		drawn := g.Packets(n, packets)
		comparisons, ambiguous, err := n.compare(rs, drawn, g.drawListeners())
		if IsRefused(err) {
			counts.Refused++
			continue
		}
		if err != nil {
			return counts, fmt.Errorf("seed %d: %w\n%s", seed, err, rs)
		}
		counts.Rulesets++
		for _, c := range comparisons {
			switch {
			case c.err != nil:
				counts.NotCompared[causeOf(c.err)]++
			case c.undecided != "":
				counts.Undecided[c.undecided]++
			case c.agrees:
				counts.Agree++
				if c.marksUnknown {
					counts.UnknownMarks++
				}
			case ambiguous:
				counts.Ambiguous++
			default:
				c.failure.Seed = seed
				counts.Failures = append(counts.Failures, c.failure)
			}
		}
		counts.ByProgram = map[string]Share{
			rs.programs(): {sumCounts(counts.Undecided), counts.Pairs()},
		}
		return counts, nil
	}
}

// causeOf returns the error message, without the log entry of a packet that entered with other
// fields than described.
func causeOf(err error) string {
	text := err.Error()
	if before, _, ok := strings.Cut(text, " entered as"); ok {
		return before + " entered otherwise"
	}
	return text
}

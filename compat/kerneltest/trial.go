package kerneltest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A Counts counts pairs of a ruleset and a packet by the result of the comparison.
type Counts struct {
	Rulesets, Refused int
	Agree             int
	// UnknownMarks counts the pairs in Agree whose marks the model does not know.
	UnknownMarks int
	Undecided    map[string]int // by cause
	Unsendable   map[string]int // by cause
	// Ambiguous counts pairs for which the prediction is wrong, but the order of chains of the
	// ruleset is unknown.
	Ambiguous int
	// ByProgram contains the numbers of pairs and of undecided pairs, by the programs of the
	// ruleset.
	ByProgram map[string]Share
	Failures  []Failure
}

// A Share is the share of undecided pairs.
type Share struct{ Undecided, Pairs int }

// Percent returns the share in percent.
func (s Share) Percent() float64 { return 100 * float64(s.Undecided) / float64(max(s.Pairs, 1)) }

// IPTables returns the share for rulesets of iptables only, of either variant.
func (t *Counts) IPTables() Share {
	var sum Share
	for programs, share := range t.ByProgram {
		if !slices.Contains(strings.Split(programs, "+"), string(NFT)) {
			sum.Undecided += share.Undecided
			sum.Pairs += share.Pairs
		}
	}
	return sum
}

// programs names the programs of the ruleset.
func (rs Ruleset) programs() string {
	var names []string
	for _, t := range rs {
		names = append(names, string(t.Program))
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "+")
}

// Pairs is the number of packets that were sent.
func (t *Counts) Pairs() int { return t.Agree + t.sumUndecided() + t.Ambiguous + len(t.Failures) }

func (t *Counts) sumUndecided() int {
	sum := 0
	for _, count := range t.Undecided {
		sum += count
	}
	return sum
}

// Add adds the counts of other.
func (t *Counts) Add(other Counts) {
	t.Rulesets += other.Rulesets
	t.Refused += other.Refused
	t.Agree += other.Agree
	t.UnknownMarks += other.UnknownMarks
	t.Ambiguous += other.Ambiguous
	t.Failures = append(t.Failures, other.Failures...)
	if t.ByProgram == nil {
		t.ByProgram = map[string]Share{}
	}
	for programs, share := range other.ByProgram {
		sum := t.ByProgram[programs]
		t.ByProgram[programs] = Share{sum.Undecided + share.Undecided, sum.Pairs + share.Pairs}
	}
	addCounts(&t.Undecided, other.Undecided)
	addCounts(&t.Unsendable, other.Unsendable)
}

// addCounts adds the counts by cause. It creates the map if it is nil.
func addCounts(to *map[string]int, from map[string]int) {
	if *to == nil {
		*to = map[string]int{}
	}
	for cause, count := range from {
		(*to)[cause] += count
	}
}

// String returns the counts, most frequent causes first.
func (t *Counts) String() string {
	var text strings.Builder
	fmt.Fprintf(&text,
		"%d rulesets (%d refused), %d pairs: %d agree (%d without their marks), "+
			"%d undecided (%.1f %%), %d of ambiguous order, %d differ\n",
		t.Rulesets, t.Refused, t.Pairs(), t.Agree, t.UnknownMarks, t.sumUndecided(),
		100*float64(t.sumUndecided())/float64(max(t.Pairs(), 1)),
		t.Ambiguous, len(t.Failures))
	for _, programs := range slices.Sorted(maps.Keys(t.ByProgram)) {
		share := t.ByProgram[programs]
		fmt.Fprintf(&text, "  of %s: %d pairs, %.1f %% undecided\n", programs, share.Pairs,
			share.Percent())
	}
	list := func(title string, counts map[string]int) {
		causes := slices.Collect(maps.Keys(counts))
		slices.SortFunc(causes, func(a, b string) int {
			if counts[a] != counts[b] {
				return counts[b] - counts[a]
			}
			return strings.Compare(a, b)
		})
		for i, cause := range causes {
			if i == 25 {
				fmt.Fprintf(&text, "  and %d more causes\n", len(causes)-i)
				break
			}
			fmt.Fprintf(&text, "  %s: %5d %s\n", title, counts[cause], cause)
		}
	}
	list("undecided", t.Undecided)
	list("not sent", t.Unsendable)
	return text.String()
}

// A Failure is a packet for which the model's prediction is wrong.
type Failure struct {
	Seed      uint64
	Ruleset   Ruleset
	Packet    rules.Packet
	Listeners bool // whether the listeners are open
	Predicted []rules.Outcome
	Observed  Effect
	Entries   []LogEntry
}

// String returns everything that is needed to reproduce the failure.
func (f Failure) String() string {
	var text strings.Builder
	fmt.Fprintf(&text,
		"seed %d, listeners %t\n%spacket %s status %s reply %t icmp %d/%d redirect to %s\n", f.Seed,
		f.Listeners,
		f.Ruleset, f.Packet, f.Packet.Status, f.Packet.Reply, f.Packet.ICMPType, f.Packet.ICMPCode,
		f.Packet.InAddress)
	for _, outcome := range f.Predicted {
		fmt.Fprintf(&text, "predicted %s %+v\n", outcome, outcome)
	}
	fmt.Fprintf(&text, "observed  %s\n", f.Observed)
	for _, s := range f.Entries {
		fmt.Fprintf(&text, "    %s\n", s)
	}
	return text.String()
}

// A comparison is the result of comparing the model with the kernel for a packet.
type comparison struct {
	err          error // the reason why the packet was not sent
	undecided    string
	marksUnknown bool // whether the model does not know the marks
	agrees       bool
	failure      Failure
}

// compare loads the ruleset, sends the packets, and compares the model with the kernel for each
// packet. ambiguous reports that the order of the ruleset's chains is unknown.
func (n *Network) compare(
	rs Ruleset, packets []rules.Packet, listeners bool,
) (comparisons []comparison, ambiguous bool, err error) {
	if err := n.Load(rs); err != nil {
		return nil, false, err
	}
	live, err := n.Read()
	if err != nil {
		return nil, false, err
	}
	if err := n.setListeners(listeners); err != nil {
		return nil, false, err
	}
	packets = slices.Clone(packets)
	for i := range packets {
		packets[i].NoListener = !listeners
	}
	observations, err := n.Observe(packets)
	if err != nil {
		return nil, false, err
	}
	openListeners := map[bool][]Listener{true: TProxyListeners}[listeners]
	comparisons = make([]comparison, len(packets))
	for i, o := range observations {
		p := &packets[i]
		c := &comparisons[i]
		if c.err = o.Err; c.err != nil {
			continue
		}
		if reason := modelLacksSockets(rs, p, listeners); reason != "" {
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
		c.agrees = predictsAny(p, outcomes, effect, openListeners)
		c.failure = Failure{
			Ruleset: rs, Packet: *p, Listeners: listeners, Predicted: outcomes,
			Observed: effect, Entries: o.Entries,
		}
	}
	return comparisons, len(live.Ambiguous) > 0, nil
}

// modelLacksSockets returns the reason why the model cannot represent the listening sockets that
// the packet may reach, or an empty string.
func modelLacksSockets(rs Ruleset, p *rules.Packet, listeners bool) string {
	isOpen := listeners && slices.ContainsFunc(TProxyListeners, func(l Listener) bool {
		return l.Port == p.Destination.Port()
	})
	switch {
	case isOpen && rs.Has("socket"):
		return "the model does not know the sockets for it"
	case !isOpen && listeners && rs.Has("--on-port 0"):
		return "in the model all ports have a listener or none has"
	}
	return ""
}

func (n *Network) setListeners(open bool) error {
	if open == (len(n.listeners) > 0) {
		return nil
	}
	if open {
		return n.Listen(TProxyListeners)
	}
	n.CloseListeners()
	return nil
}

// Trial draws a ruleset and packets and compares the model with the kernel for each packet.
func (n *Network) Trial(seed uint64, packets int) (t Counts, err error) {
	t = Counts{Undecided: map[string]int{}, Unsendable: map[string]int{}}
	g := NewGenerator(seed)
	g.Ordinary, g.Wide = seed%4 != 0, seed%4 == 2
	for {
		rs := g.Ruleset()
		drawn := g.Packets(n, packets)
		comparisons, ambiguous, err := n.compare(rs, drawn, !g.oneIn(4))
		if IsRefused(err) {
			t.Refused++
			continue
		}
		if err != nil {
			return t, fmt.Errorf("seed %d: %w\n%s", seed, err, rs)
		}
		t.Rulesets++
		defer func() {
			t.ByProgram = map[string]Share{rs.programs(): {t.sumUndecided(), t.Pairs()}}
		}()
		for _, c := range comparisons {
			switch {
			case c.err != nil:
				t.Unsendable[cause(c.err)]++
			case c.undecided != "":
				t.Undecided[c.undecided]++
			case c.agrees:
				t.Agree++
				if c.marksUnknown {
					t.UnknownMarks++
				}
			case ambiguous:
				t.Ambiguous++
			default:
				c.failure.Seed = seed
				t.Failures = append(t.Failures, c.failure)
			}
		}
		return t, nil
	}
}

// cause returns the part of an error message that is equal for equal causes.
func cause(err error) string {
	text := err.Error()
	if before, _, ok := strings.Cut(text, " entered as"); ok {
		return before + " entered otherwise"
	}
	return text
}

// Shrink removes rules, terms, chains and tables while the packet still fails.
func (n *Network) Shrink(f Failure) (Failure, error) {
	smallest := f
	err := shrink(f.Ruleset, func(rs Ruleset) (bool, error) {
		comparisons, ambiguous, err := n.compare(rs, []rules.Packet{f.Packet}, f.Listeners)
		switch {
		case IsRefused(err):
			return false, nil
		case err != nil:
			return false, err
		}
		c := comparisons[0]
		if c.err != nil || c.undecided != "" || c.agrees || ambiguous {
			return false, nil
		}
		c.failure.Seed = f.Seed
		smallest = c.failure
		return true, nil
	})
	return smallest, err
}

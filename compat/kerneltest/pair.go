package kerneltest

import (
	"errors"
	"fmt"
	"slices"

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
	unsent := 0
	for _, count := range t.Unsent {
		unsent += count
	}
	return fmt.Sprintf(
		"%d pairs of rulesets (%d more were refused): %d equivalent, %d different, %d cannot decide\n"+
			"  witnesses: %d confirmed, %d differ in nothing observable, %d cannot be sent %v\n"+
			"  packets: %d alike, %d different as decided, %d failures; %d were drawn at boundaries\n",
		t.Pairs, t.Refused, t.Equivalent, t.Different, t.Undecidable, t.Confirmed, t.Unobservable,
		unsent, t.Unsent, t.Alike, t.Explained, len(t.Failures), t.Boundary)
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

// A side is one of the two rulesets: its text, and its model as read from the kernel.
type side struct {
	text      Ruleset
	model     rules.Ruleset
	ambiguous bool
}

// loadSide loads the ruleset and reads its model.
func (n *Network) loadSide(rs Ruleset) (side, error) {
	if err := n.Load(rs); err != nil {
		return side{}, err
	}
	live, err := n.Read()
	return side{rs, live.Ruleset, len(live.Ambiguous) > 0}, err
}

// PairTrial draws two rulesets, decides whether they are equivalent, and tests the decision with
// packets.
func (n *Network) PairTrial(seed uint64, packets int) (PairCounts, error) {
	counts := PairCounts{Unsent: map[string]int{}}
	g := NewGenerator(seed)
	g.Ordinary, g.Wide = seed%4 != 0, seed%4 == 2
	for {
		left := g.Ruleset()
		var right Ruleset
		switch g.below(8) {
		case 0:
			right = g.Ruleset()
		case 1:
			right = left.clone()
		case 2:
			right = g.translate(left)
		default:
			right = g.Mutate(left)
		}
		listeners := !g.oneIn(4)
		sent := g.Packets(n, packets)
		err := n.checkPair(&counts, left, right, sent, listeners, g)
		if IsRefused(err) {
			counts.Refused++
			continue
		}
		for i := range counts.Failures {
			counts.Failures[i].Seed = seed
		}
		if err != nil {
			err = fmt.Errorf("seed %d: %w", seed, err)
		}
		return counts, err
	}
}

// translate returns the same rules for the other variant of iptables.
func (g *Generator) translate(rs Ruleset) Ruleset {
	rs = rs.clone()
	for i := range rs {
		switch rs[i].Program {
		case Legacy:
			rs[i].Program = IPTablesNFT
		case IPTablesNFT:
			rs[i].Program = Legacy
		}
	}
	return rs
}

// checkPair decides whether two rulesets are equivalent, and tests the decision with the packets.
// If g is not nil, it also tests packets at the boundaries of the classes.
func (n *Network) checkPair(
	t *PairCounts, left, right Ruleset, packets []rules.Packet, listeners bool, g *Generator,
) error {
	l, err := n.loadSide(left)
	if err != nil {
		return err
	}
	r, err := n.loadSide(right)
	if err != nil {
		return err
	}
	if l.ambiguous || r.ambiguous {
		return fmt.Errorf("%w: ambiguous order", errRefused)
	}
	result := diff.Decide(diff.Side{Ruleset: l.model, RoutingKnown: true},
		diff.Side{Ruleset: r.model, RoutingKnown: true}, diff.Options{})
	t.Pairs++
	switch result.Verdict(true) {
	case diff.Equivalent:
		t.Equivalent++
	case diff.Different:
		t.Different++
	default:
		t.Undecidable++
	}
	// In the model, either all ports have a listener or no port has one. With --on-port 0, TPROXY
	// looks for a listener on the packet's port, where the network has none.
	listeners = listeners && !left.Has("--on-port 0") && !right.Has("--on-port 0")
	if err := n.setListeners(listeners); err != nil {
		return err
	}
	batches := [][]rules.Packet{slices.Clone(packets)}
	if g != nil {
		boundary := g.BoundaryPackets(n, 2*len(packets), &l.model, &r.model)
		t.Boundary += len(boundary)
		batches = append(batches, boundary)
	}
	for _, batch := range batches {
		for i := range batch {
			batch[i].NoListener = !listeners
		}
	}
	var witnesses []rules.Packet
	for _, c := range result.Classes {
		witnesses = append(witnesses, n.sendableOf(c))
	}
	// The right ruleset is still loaded.
	onRight, err := n.observeSide(batches, witnesses, listeners)
	if err != nil {
		return err
	}
	if err := n.Load(left); err != nil {
		return err
	}
	onLeft, err := n.observeSide(batches, witnesses, listeners)
	if err != nil {
		return err
	}
	attempt := pairAttempt{t, &l, &r, result, listeners}
	for i, p := range slices.Concat(batches...) {
		attempt.checkDrawn(p, onLeft.batches[i], onRight.batches[i])
	}
	for i, p := range witnesses {
		attempt.checkWitness(p, result.Classes[i], onLeft.witnesses[i], onRight.witnesses[i])
	}
	return nil
}

// sideObservations contains the observations of the packets of all batches, and of the witnesses.
type sideObservations struct{ batches, witnesses []Observation }

// observeSide sends the packets through the loaded ruleset. It deletes all connections before each
// batch and before each witness.
func (n *Network) observeSide(
	batches [][]rules.Packet, witnesses []rules.Packet, listeners bool,
) (observed sideObservations, err error) {
	for _, batch := range batches {
		if err := n.Flush(); err != nil {
			return observed, err
		}
		o, err := n.Observe(batch)
		if err != nil {
			return observed, err
		}
		observed.batches = append(observed.batches, o...)
	}
	for _, p := range witnesses {
		if err := errors.Join(n.Flush(), n.setListeners(!p.NoListener)); err != nil {
			return observed, err
		}
		o, err := n.Observe([]rules.Packet{p})
		if err != nil {
			return observed, err
		}
		observed.witnesses = append(observed.witnesses, o...)
	}
	return observed, n.setListeners(listeners)
}

// A pairAttempt is a decision under test.
type pairAttempt struct {
	tally       *PairCounts
	left, right *side
	result      diff.Result
	listeners   bool
}

func (a *pairAttempt) fail(p rules.Packet, claim string, left, right Effect) {
	a.tally.Failures = append(a.tally.Failures, PairFailure{
		Left: a.left.text, Right: a.right.text, Packet: p, Listeners: !p.NoListener, Claim: claim,
		Effects: diff.Pair[Effect]{Left: left, Right: right},
	})
}

// effects returns the effects of both sides, or an error with the reason why they are unknown.
func effects(p *rules.Packet, left, right *Observation) (l, r Effect, err error) {
	for _, o := range []*Observation{left, right} {
		if o.Err != nil {
			return l, r, o.Err
		}
	}
	if l, err = left.Effect(p); err == nil {
		r, err = right.Effect(p)
	}
	return l, r, err
}

// checkDrawn checks a random packet, which does not come from the decision.
func (a *pairAttempt) checkDrawn(p rules.Packet, left, right Observation) {
	l, r, err := effects(&p, &left, &right)
	if err != nil {
		return
	}
	leftOutcome, leftOthers := Explain(&a.left.model, p)
	rightOutcome, rightOthers := Explain(&a.right.model, p)
	if mayKeepDestination(leftOutcome, p) || mayKeepDestination(rightOutcome, p) {
		l.To, r.To = p.Destination, p.Destination
	}
	if !l.HasConnection || !r.HasConnection {
		l.HasConnection, l.ConntrackMark, l.Zone = false, 0, 0
		r.HasConnection, r.ConntrackMark, r.Zone = false, 0, 0
	}
	if leftOutcome.UnknownMarks != "" || rightOutcome.UnknownMarks != "" {
		l.Mark, l.ConntrackMark, r.Mark, r.ConntrackMark = 0, 0, 0, 0
	}
	inClass := slices.ContainsFunc(a.result.Classes,
		func(c diff.Class) bool { return c.Contains(p) })
	// A decision that finds a difference does not cover packets of bound sockets, packets whose
	// redirection fails because the interface has no address, and packets that enter untracked.
	rare := p.Bound || p.State == rules.Untracked && p.Owner == nil ||
		p.InAddress.IsValid() && p.InAddress.IsUnspecified()
	inClass = inClass || rare && a.result.Verdict(true) != diff.Equivalent
	switch {
	case l == r:
		a.tally.Alike++
	case inClass, a.result.More, a.result.Exhausted != "", leftOutcome.Undecided != "",
		rightOutcome.Undecided != "", len(leftOthers)+len(rightOthers) > 0:
		a.tally.Explained++
	default:
		a.fail(p, "alike: "+string(a.result.Verdict(true)), l, r)
	}
}

// mayKeepDestination reports whether the kernel may select the original destination of the packet
// again: any port of a range, or an address of a range that contains the packet's address. Then the
// destination depends on chance, and is not compared.
func mayKeepDestination(f rules.Outcome, p rules.Packet) bool {
	if f.RedirectLast != 0 || f.DNATPortLast != 0 {
		return true
	}
	addr := p.Destination.Addr()
	return f.DNATAddrLast.IsValid() && f.DNATAddr.Compare(addr) <= 0 &&
		addr.Compare(f.DNATAddrLast) <= 0
}

// checkWitness checks the witness of a class.
func (a *pairAttempt) checkWitness(p rules.Packet, c diff.Class, left, right Observation) {
	l, r, err := effects(&p, &left, &right)
	if err != nil {
		a.tally.Unsent[cause(err)]++
		return
	}
	var openListeners []Listener
	if !p.NoListener {
		openListeners = TProxyListeners
	}
	leftOutcome, rightOutcome := c.Outcome.Left.Outcome, c.Outcome.Right.Outcome
	leftModel, leftOthers := Explain(&a.left.model, p)
	rightModel, rightOthers := Explain(&a.right.model, p)
	// The outcomes of the class are for its own witness. The model has the outcomes of other
	// packets, and of undecided ones.
	if p != c.Witness || leftModel.Undecided != "" || rightModel.Undecided != "" {
		leftOutcome, rightOutcome = leftModel, rightModel
	}
	claim := fmt.Sprintf("different: %s; %s", leftOutcome, rightOutcome)
	switch {
	case leftOutcome.Undecided != "" || rightOutcome.Undecided != "":
		a.tally.Unsent["undecided for the packet that can be sent"]++
	case !predictsAny(&p, append(leftOthers, leftOutcome), l, openListeners) ||
		!predictsAny(&p, append(rightOthers, rightOutcome), r, openListeners):
		if a.unknownSocket(p) {
			a.tally.Unsent["the model does not know the sockets for it"]++
			return
		}
		a.fail(p, claim, l, r)
	case l == r:
		a.tally.Unobservable++
	default:
		a.tally.Confirmed++
	}
}

// unknownSocket reports whether the packet may have a socket other than the one in the model.
func (a *pairAttempt) unknownSocket(p rules.Packet) bool {
	has := func(word string) bool { return a.left.text.Has(word) || a.right.text.Has(word) }
	if p.NoListener {
		return p.TransparentSocket // without listeners, no transparent socket exists
	}
	return has("socket") || has("--on-port 0")
}

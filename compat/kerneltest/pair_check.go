package kerneltest

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A pairTest tests the decision about two rulesets.
type pairTest struct {
	counts      *PairCounts
	left, right *loadedSide
	result      diff.Result
	verdict     diff.Verdict // the strict verdict of the result
}

// addFailure records a packet whose effects contradict the claim of the decision.
func (t *pairTest) addFailure(p rules.Packet, claim string, left, right Effect) {
	t.counts.Failures = append(t.counts.Failures, PairFailure{
		Left: t.left.text, Right: t.right.text, Packet: p, Claim: claim,
		Effects: diff.Pair[Effect]{Left: left, Right: right},
	})
}

// effects returns the effect of each side on the packet, or an error with the reason why an effect
// is unknown.
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

// checkDrawn compares the decision with the observed effects of both rulesets on a random packet.
func (t *pairTest) checkDrawn(p rules.Packet, left, right Observation) {
	l, r, err := effects(&p, &left, &right)
	if err != nil {
		return
	}
	leftOutcome, leftAlternatives := Explain(&t.left.model, p)
	rightOutcome, rightAlternatives := Explain(&t.right.model, p)
	if hasUnpredictableDestination(leftOutcome, p) || hasUnpredictableDestination(rightOutcome, p) {
		l.To, r.To = p.Destination, p.Destination
	}
	if !l.HasConnection || !r.HasConnection {
		l.HasConnection, l.ConntrackMark, l.Zone = false, 0, 0
		r.HasConnection, r.ConntrackMark, r.Zone = false, 0, 0
	}
	if leftOutcome.UnknownMarks != "" || rightOutcome.UnknownMarks != "" {
		l.Mark, l.ConntrackMark, r.Mark, r.ConntrackMark = 0, 0, 0, 0
	}
	isUndecided := leftOutcome.Undecided != "" || rightOutcome.Undecided != "" ||
		len(leftAlternatives)+len(rightAlternatives) > 0
	switch {
	case l == r:
		t.counts.Alike++
	case t.mayDiffer(p), isUndecided:
		t.counts.Explained++
	default:
		t.addFailure(p, "alike: "+string(t.verdict), l, r)
	}
}

// mayDiffer reports whether, according to the decision, the rulesets may treat the packet
// differently.
func (t *pairTest) mayDiffer(p rules.Packet) bool {
	inClass := func(c diff.Class) bool { return c.Contains(p) }
	if t.result.More || t.result.Exhausted != "" {
		return true
	}
	if slices.ContainsFunc(t.result.Classes, inClass) {
		return true
	}
	// A decision other than Equivalent does not cover these packets: packets of bound sockets,
	// packets on a host without some of the listeners, packets whose redirection fails because the
	// interface has no address, and packets that enter untracked.
	isUncovered := p.Bound || p.MissingListeners != "" ||
		p.State == rules.Untracked && p.Owner == nil ||
		p.InAddress.IsValid() && p.InAddress.IsUnspecified()
	return isUncovered && t.verdict != diff.Equivalent
}

// hasUnpredictableDestination reports whether the model cannot predict the new destination, because
// the kernel selects a port from a range, or an address from a range that contains the original
// address.
func hasUnpredictableDestination(outcome rules.Outcome, p rules.Packet) bool {
	if outcome.RedirectLast != 0 || outcome.DNATPortLast != 0 {
		return true
	}
	addr := p.Destination.Addr()
	return outcome.DNATAddrLast.IsValid() && outcome.DNATAddr.Compare(addr) <= 0 &&
		addr.Compare(outcome.DNATAddrLast) <= 0
}

// checkWitness compares the outcomes of a class with the observed effects of both rulesets on its
// witness, or on the packet that was sent in place of the witness.
func (t *pairTest) checkWitness(p rules.Packet, c diff.Class, left, right Observation) {
	l, r, err := effects(&p, &left, &right)
	if err != nil {
		t.counts.Unsent[causeOf(err)]++
		return
	}
	open := openListeners(&p)
	leftOutcome, rightOutcome := c.Outcome.Left.Outcome, c.Outcome.Right.Outcome
	leftModel, leftAlternatives := Explain(&t.left.model, p)
	rightModel, rightAlternatives := Explain(&t.right.model, p)
	// The outcomes of the class are outcomes of its witness. If another packet was sent, or if
	// Explain cannot decide the witness, use the outcomes of Explain.
	if p != c.Witness || leftModel.Undecided != "" || rightModel.Undecided != "" {
		leftOutcome, rightOutcome = leftModel, rightModel
	}
	claim := fmt.Sprintf("different: %s; %s", leftOutcome, rightOutcome)
	switch {
	case leftOutcome.Undecided != "" || rightOutcome.Undecided != "":
		t.counts.Unsent["undecided for the packet that can be sent"]++
	case !predictsAny(&p, append(leftAlternatives, leftOutcome), l, open) ||
		!predictsAny(&p, append(rightAlternatives, rightOutcome), r, open):
		if t.mayHaveOtherSocket(p) {
			t.counts.Unsent["the model does not know the sockets for the packet"]++
			return
		}
		t.addFailure(p, claim, l, r)
	case l == r:
		t.counts.Unobservable++
	default:
		t.counts.Confirmed++
	}
}

// mayHaveOtherSocket reports whether a rule may find a socket for the packet that the model does
// not know.
func (t *pairTest) mayHaveOtherSocket(p rules.Packet) bool {
	has := func(word string) bool { return t.left.text.Has(word) || t.right.text.Has(word) }
	if p.NoListener {
		return p.TransparentSocket // without listeners, no transparent socket exists
	}
	// In the model, the listener of a rule that names an address may be missing although there is a
	// listener on the port.
	namesAddress := has("--on-ip") || has("tproxy ip")
	return has("socket") || has("--on-port 0") || p.MissingListeners != "" && namesAddress
}

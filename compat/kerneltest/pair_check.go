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
}

func (a *pairTest) fail(p rules.Packet, claim string, left, right Effect) {
	a.counts.Failures = append(a.counts.Failures, PairFailure{
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

// checkDrawn compares the decision with the observed effects of both rulesets on a random packet.
func (a *pairTest) checkDrawn(p rules.Packet, left, right Observation) {
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
		a.counts.Alike++
	case inClass, a.result.More, a.result.Exhausted != "", leftOutcome.Undecided != "",
		rightOutcome.Undecided != "", len(leftOthers)+len(rightOthers) > 0:
		a.counts.Explained++
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

// checkWitness compares the outcomes of a class with the observed effects of both rulesets on its
// witness, or on the packet that was sent in place of the witness.
func (a *pairTest) checkWitness(p rules.Packet, c diff.Class, left, right Observation) {
	l, r, err := effects(&p, &left, &right)
	if err != nil {
		a.counts.Unsent[causeOf(err)]++
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
		a.counts.Unsent["undecided for the packet that can be sent"]++
	case !predictsAny(&p, append(leftOthers, leftOutcome), l, openListeners) ||
		!predictsAny(&p, append(rightOthers, rightOutcome), r, openListeners):
		if a.unknownSocket(p) {
			a.counts.Unsent["the model does not know the sockets for it"]++
			return
		}
		a.fail(p, claim, l, r)
	case l == r:
		a.counts.Unobservable++
	default:
		a.counts.Confirmed++
	}
}

// unknownSocket reports whether the packet may have a socket other than the one in the model.
func (a *pairTest) unknownSocket(p rules.Packet) bool {
	has := func(word string) bool { return a.left.text.Has(word) || a.right.text.Has(word) }
	if p.NoListener {
		return p.TransparentSocket // without listeners, no transparent socket exists
	}
	return has("socket") || has("--on-port 0")
}

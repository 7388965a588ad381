package kerneltest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A loadedSide is one of the two rulesets of a pair: its text, and its model as read from the
// kernel.
type loadedSide struct {
	text  Ruleset
	model rules.Ruleset
}

// errAmbiguousOrder is the error for a ruleset in which the order of some chains is unknown.
var errAmbiguousOrder = errors.New("the order of some chains is unknown")

// loadSide loads a ruleset into the network, and reads its model from the kernel. It returns
// errAmbiguousOrder if the model does not know the order of the chains.
func (n *Network) loadSide(rs Ruleset) (loadedSide, error) {
	if err := n.Load(rs); err != nil {
		return loadedSide{}, err
	}
	live, err := n.Read()
	if err == nil && len(live.Ambiguous) > 0 {
		err = errAmbiguousOrder
	}
	return loadedSide{text: rs, model: live.Ruleset}, err
}

// cannotCompare reports whether the error means that a pair of rulesets cannot be compared.
func cannotCompare(err error) bool {
	return IsRefused(err) || errors.Is(err, errAmbiguousOrder)
}

// PairTrial draws two rulesets, decides whether they are equivalent, and tests the decision with
// packets. If the rulesets cannot be compared, it draws another pair.
func (n *Network) PairTrial(seed uint64, packets int) (PairCounts, error) {
	counts := PairCounts{Unsent: map[string]int{}}
	g := newTrialGenerator(seed)
	for {
		left, right := g.pair()
		open := g.drawListeners()
		drawn := g.Packets(n, packets)
		err := n.checkPair(&counts, left, right, drawn, open, g)
		if cannotCompare(err) {
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

// pair draws two rulesets. In most pairs the rulesets differ little, so that their comparison has
// few classes.
func (g *Generator) pair() (left, right Ruleset) {
	left = g.Ruleset()
	switch g.below(8) {
	case 0:
		return left, g.Ruleset()
	case 1:
		return left, left.clone()
	case 2:
		return left, withOtherIPTables(left)
	}
	return left, g.Mutate(left)
}

// withOtherIPTables returns the ruleset with iptables-legacy and iptables-nft exchanged.
func withOtherIPTables(rs Ruleset) Ruleset {
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

// checkPair decides whether two rulesets are equivalent, and tests the decision with the packets
// and with the witnesses of the decision. If boundaries is not nil, this generator draws further
// packets at the boundaries of the classes.
func (n *Network) checkPair(
	counts *PairCounts, left, right Ruleset, packets []rules.Packet, open []Listener,
	boundaries *Generator,
) error {
	l, err := n.loadSide(left)
	if err != nil {
		return err
	}
	r, err := n.loadSide(right)
	if err != nil {
		return err
	}
	result := diff.Decide(diff.Side{Ruleset: l.model, RoutingKnown: true},
		diff.Side{Ruleset: r.model, RoutingKnown: true}, diff.Options{})
	test := pairTest{counts: counts, left: &l, right: &r, result: result}
	// The strict verdict treats deviations from Istio's rules like other differences.
	test.verdict = result.StrictVerdict()
	counts.addVerdict(test.verdict)

	if left.Has("--on-port 0") || right.Has("--on-port 0") {
		// Such a rule looks for a listener on the packet's own port, but the network opens
		// listeners only on fixed ports.
		open = nil
	}
	batches := [][]rules.Packet{slices.Clone(packets)}
	if boundaries != nil {
		drawn := boundaries.BoundaryPackets(n, 2*len(packets), &l.model, &r.model)
		counts.Boundary += len(drawn)
		batches = append(batches, drawn)
	}
	for _, batch := range batches {
		describeListeners(batch, open, &l.model, &r.model)
	}
	var witnesses []rules.Packet
	for _, c := range result.Classes {
		witnesses = append(witnesses, n.sendableWitness(c))
	}

	// The right ruleset is still loaded.
	onRight, err := n.observeSide(batches, witnesses, open)
	if err != nil {
		return err
	}
	if err := n.Load(left); err != nil {
		return err
	}
	onLeft, err := n.observeSide(batches, witnesses, open)
	if err != nil {
		return err
	}
	for i, p := range slices.Concat(batches...) {
		test.checkDrawn(p, onLeft.batches[i], onRight.batches[i])
	}
	for i, p := range witnesses {
		test.checkWitness(p, result.Classes[i], onLeft.witnesses[i], onRight.witnesses[i])
	}
	return nil
}

// sideObservations contains the observations of the packets of all batches, and of the witnesses.
type sideObservations struct{ batches, witnesses []Observation }

// observeSide sends the packets through the loaded ruleset. It deletes all connections before each
// batch and before each witness. It opens the given listeners for the batches, and for each witness
// the listeners that its fields describe.
func (n *Network) observeSide(
	batches [][]rules.Packet, witnesses []rules.Packet, open []Listener,
) (observed sideObservations, err error) {
	if err := n.setListeners(open); err != nil {
		return observed, err
	}
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
		if err := errors.Join(n.Flush(), n.setListeners(openListeners(&p))); err != nil {
			return observed, err
		}
		o, err := n.Observe([]rules.Packet{p})
		if err != nil {
			return observed, err
		}
		observed.witnesses = append(observed.witnesses, o...)
	}
	return observed, nil
}

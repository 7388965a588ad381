package kerneltest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A loadedSide is one of the two rulesets: its text, and its model as read from the kernel.
type loadedSide struct {
	text      Ruleset
	model     rules.Ruleset
	ambiguous bool // the order of some chains is unknown
}

// loadSide loads a ruleset into the network, and reads its model from the kernel.
func (n *Network) loadSide(rs Ruleset) (loadedSide, error) {
	if err := n.Load(rs); err != nil {
		return loadedSide{}, err
	}
	live, err := n.Read()
	return loadedSide{rs, live.Ruleset, len(live.Ambiguous) > 0}, err
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
	counts *PairCounts, left, right Ruleset, packets []rules.Packet, listeners bool, g *Generator,
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
	counts.Pairs++
	switch result.Verdict(true) {
	case diff.Equivalent:
		counts.Equivalent++
	case diff.Different:
		counts.Different++
	default:
		counts.Undecidable++
	}
	// In the model, either all ports have a listener or no port has one. With --on-port 0, TPROXY
	// looks for a listener on the packet's own port. The network has none there, so that such rulesets
	// are tested without any listeners.
	listeners = listeners && !left.Has("--on-port 0") && !right.Has("--on-port 0")
	if err := n.setListeners(listeners); err != nil {
		return err
	}
	batches := [][]rules.Packet{slices.Clone(packets)}
	if g != nil {
		boundary := g.BoundaryPackets(n, 2*len(packets), &l.model, &r.model)
		counts.Boundary += len(boundary)
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
	test := pairTest{counts, &l, &r, result}
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

package kerneltest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/google/nftables"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// PathTrial draws a ruleset and packets, traces the packets, and compares the rules that each
// packet matches in the kernel and in the model. If a program refuses the ruleset, PathTrial draws
// another one.
func (n *Network) PathTrial(seed uint64, packets int) (PathCounts, error) {
	counts := PathCounts{NotCompared: map[string]int{}}
	g := newTrialGenerator(seed)
	for {
		rs := g.Ruleset()
		err := n.tracePaths(&counts, rs, g.Packets(n, packets), g.drawListeners())
		if IsRefused(err) {
			counts.Refused++
			continue
		}
		if err != nil {
			return counts, fmt.Errorf("seed %d: %w\n%s", seed, err, rs)
		}
		counts.Rulesets++
		for i := range counts.Failures {
			counts.Failures[i].Seed = seed
		}
		return counts, nil
	}
}

// ShrinkPath removes parts of the ruleset of a failure while the path in the kernel still differs
// from the model, and stops after maxShrinking. If the failure does not repeat, it returns the
// failure with [ErrNotRepeated].
func (n *Network) ShrinkPath(f PathFailure) (PathFailure, error) {
	smallest := f
	err := shrink(f.Ruleset, Ruleset.smaller, func(rs Ruleset) (bool, error) {
		counts := PathCounts{NotCompared: map[string]int{}}
		err := n.tracePaths(&counts, rs, []rules.Packet{f.Packet},
			openListeners(&f.Packet))
		switch {
		case IsRefused(err):
			return false, nil
		case err != nil || len(counts.Failures) == 0:
			return false, err
		}
		smallest = counts.Failures[0]
		smallest.Seed = f.Seed
		return true, nil
	})
	return smallest, err
}

// tracePaths loads the ruleset, sends the packets, compares their paths with the model, and adds
// the results to the counts.
func (n *Network) tracePaths(
	counts *PathCounts, rs Ruleset, packets []rules.Packet, open []Listener,
) error {
	live, err := n.prepare(rs, packets, open)
	if err != nil {
		return err
	}
	traced, observations, err := n.sendTraced(packets)
	if err != nil {
		return err
	}
	for i := range packets {
		p := &packets[i]
		if traced[i] == nil || observations[i].Err != nil {
			counts.NotTraced++
			continue
		}
		cause := causeOfUnknownSockets(rs, p)
		if rs.uses(Legacy) && sharesHeader(packets, i) {
			cause = "the log of iptables-legacy has no packet ID, and another packet may have this header"
		}
		if cause != "" {
			counts.NotCompared[cause]++
			continue
		}
		o, ok := livetrace.Match(&live.Ruleset, *traced[i], *p, livetrace.Options{OwnerKnown: true})
		switch {
		case !ok:
			counts.NotTraced++
		case o.NotCompared != "":
			counts.NotCompared[o.NotCompared]++
		case len(o.Differences) == 0:
			counts.Equal++
			counts.Rules += len(o.Steps)
		case len(live.Ambiguous) > 0:
			counts.Ambiguous++
		default:
			counts.Failures = append(counts.Failures, PathFailure{
				Ruleset: rs, Packet: *p, Observation: o,
			})
		}
	}
	return nil
}

// sharesHeader reports whether another packet may have the same header in the log of
// iptables-legacy as packet i. A packet without a socket has the header of the arriving packet of
// which it is a copy. Two packets with the same protocol and source may have the same header,
// because a rule may change their destinations.
func sharesHeader(packets []rules.Packet, i int) bool {
	p := &packets[i]
	if p.Hook == rules.Output && p.Owner == nil {
		return true
	}
	for j := range packets {
		other := &packets[j]
		if j != i && other.Protocol == p.Protocol && other.Source == p.Source {
			return true
		}
	}
	return false
}

// traceRate, in packets per second, is high enough for all packets of a trial.
const traceRate = 1_000_000

// sendTraced sends the packets while they are traced. It returns the trace of each packet, without
// the events of the observer tables, or nil for a packet without a trace.
func (n *Network) sendTraced(packets []rules.Packet) (
	traces []*trace.Packet, observations []Observation, err error,
) {
	log, err := trace.OpenLog(n.Pod, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	session, err := trace.Open(n.Pod, trace.Options{Rate: traceRate})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, session.Close(), n.waitUntilUntraced()) }()
	if observations, err = n.Observe(packets); err != nil {
		return nil, nil, err
	}
	// The kernel has queued all events when the last packet is observed. The events of nf_tables
	// contain an ID of the packet. The collector assigns the events of iptables-legacy to packets
	// by their headers.
	var collector trace.Collector
	fromSession := func() (trace.Batch, error) {
		if err := session.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
			return trace.Batch{}, err
		}
		return session.Next()
	}
	if err := collect(&collector, fromSession); err != nil {
		return nil, nil, err
	}
	fromLog := func() (trace.Batch, error) {
		batch, err := log.Read()
		if err == nil && len(batch.Events) == 0 && batch.Lost == 0 {
			err = os.ErrDeadlineExceeded
		}
		return batch, err
	}
	if err := collect(&collector, fromLog); err != nil {
		return nil, nil, err
	}
	traces = make([]*trace.Packet, len(packets))
	// Take returns the packets whose last event was read before the given time. A time in the
	// future selects all packets.
	for _, p := range collector.Take(time.Now().Add(time.Hour)) {
		i := indexOfHeader(packets, &p)
		p.Events = slices.DeleteFunc(p.Events, func(e trace.Event) bool {
			return e.Table == observerTable
		})
		if i >= 0 && p.Selected() && len(p.Events) > 0 && p.Header() != nil {
			traces[i] = &p
		}
	}
	return traces, observations, nil
}

// collect adds the events of each batch to the collector until next returns
// [os.ErrDeadlineExceeded].
func collect(collector *trace.Collector, next func() (trace.Batch, error)) error {
	for {
		batch, err := next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return err
		case batch.Lost > 0:
			return fmt.Errorf("the kernel dropped %d trace messages", batch.Lost)
		}
		collector.Add(time.Now(), batch.Events...)
	}
}

// waitUntilUntraced waits until the kernel has removed the table of a closed trace session. A
// process that another goroutine is starting may hold a copy of the session's socket for a moment.
func (n *Network) waitUntilUntraced() error {
	for begin := time.Now(); time.Since(begin) < 5*time.Second; time.Sleep(time.Millisecond) {
		tables, err := n.tables.ListTablesOfFamily(nftables.TableFamilyINet)
		if err != nil || !slices.ContainsFunc(tables, func(t *nftables.Table) bool {
			return t.Name == trace.Table
		}) {
			return err
		}
	}
	return fmt.Errorf("table %s of a closed trace session remains", trace.Table)
}

// indexOfHeader returns the index of the packet with the header and the direction of the traced
// packet. It returns -1 unless exactly one packet has them.
func indexOfHeader(packets []rules.Packet, traced *trace.Packet) int {
	h, arrived := traced.Header(), traced.Events[0].In != 0 // In is the index of an interface
	if h == nil {
		return -1
	}
	index := -1
	for i := range packets {
		p := &packets[i]
		if p.Protocol == h.Protocol && p.Source == h.Source && p.Destination == h.Destination &&
			(p.Hook == rules.Prerouting) == arrived {
			if index >= 0 {
				return -1
			}
			index = i
		}
	}
	return index
}

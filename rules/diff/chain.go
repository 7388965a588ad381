package diff

import (
	"fmt"
	"strconv"

	"github.com/sluice-mesh/sluice/rules"
)

// A chainPosition is the position of a base chain in the evaluation.
type chainPosition struct {
	chain rules.ChainRef
	// beforeConntrack reports that conntrack has not run yet, second that the packets were sent
	// over lo and arrive.
	beforeConntrack, loopbackArrival bool
	// atPostrouting reports that the packets are at postrouting, departing that they leave the
	// host, and are not sent over lo.
	atPostrouting, leavesHost bool
	// translated reports that the chain runs after NAT.
	translated bool
	// equalPriority reports that the chain has conntrack's priority and is assumed to run before
	// it.
	equalPriority bool
}

// key identifies the place. It is equal for the same chain of both sides.
func (p *chainPosition) key() string {
	return fmt.Sprint(p.chain.Chain.Base.Hook, p.loopbackArrival, p.equalPriority, chainName(p.chain))
}

// A call is a chain with the progress of the packets at its begin. Packets with equal progress have
// equal results. A call is therefore evaluated once, for all possible packets, independent of the
// number of jumps.
type call struct {
	chain *rules.Chain
	place *chainPosition
	progress
	mark, connection *markBits
	// visit counts the calls by one packet, if the chain has random matches: their results are
	// independent.
	visit int
}

// A summary is the result of a call of a chain.
type summary struct {
	chain rules.ChainRef
	// returned contains the packets at the end of the chain, accepted the packets that leave the
	// base chain, ended the packets whose evaluation has ended.
	returned, accepted, ended flows
	// drawn contains the packets that evaluated a variable, by its key.
	drawn map[string]set
	// updates are the writes of the rules to states.
	updates updates
	// events are the matched rules and calls, in order.
	events []event
	// running reports that the evaluation of the chain is not complete.
	running bool
	// entered contains the packets at the begin of the chain.
	entered set
}

// eventSize is the size of an event in a growing list in bytes.
const eventSize = 80

// An event is a rule that a packet matched, in the space of one packet, or a call of another chain.
type event struct {
	packets set
	index   int // of the rule
	stopped rules.Action
	call    *summary
}

// follow returns the summary of a call, which is running if there is a cycle of jumps.
func (w *walk) follow(k call, c rules.ChainRef) *summary {
	if known, ok := w.summaries[k]; ok {
		return known
	}
	w.meter.alloc(summarySize + stackSize)
	s := &summary{chain: c, running: true}
	w.summaries[k] = s
	var present flows
	w.add(&present, flow{all, k.progress, k.mark, k.connection})
	for _, r := range w.runsOf(c) {
		if len(present.list) == 0 {
			break
		}
		w.meter.step()
		var next flows
		v := visit{
			walk: w, summary: s, chain: c, place: k.place, run: r, number: k.visit,
			source: k.source, next: &next,
		}
		for _, f := range present.list {
			v.flow(f)
		}
		w.meter.release(int64(len(present.list)) * flowSize)
		present = next
	}
	w.add(&s.returned, present.list...)
	s.running = false
	w.meter.release(stackSize)
	w.order = append(w.order, s)
	return s
}

// Sizes in bytes: of a call, and of its stack frames, which are copied when the stack grows.
const (
	summarySize = 512
	stackSize   = 4 << 10
)

// maxVisits is the maximum number of calls of a chain with random matches by one packet from one
// chainPosition.
const maxVisits = 8

// call evaluates another chain, and returns the packets that reach its end. The text names the
// chain if the result is unknown.
func (v *visit) call(c rules.ChainRef, f flow, text string) []flow {
	k := call{c.Chain, v.place, f.progress, f.mark, f.connection, v.number}
	called := v.follow(k, c)
	for !called.running && v.drewBefore(called, f.packets) {
		if k.visit++; k.visit > v.number+maxVisits {
			v.undecided(text+": more than "+strconv.Itoa(maxVisits)+" visits of a chain in which chance decides", f)
			return nil
		}
		called = v.follow(k, c)
	}
	if called.running {
		// The kernel rejects cycles of jumps, but a text may contain one.
		v.undecided(text, f)
		return nil
	}
	for key, packets := range called.drawn {
		v.meter.step()
		v.draw(key, v.or(v.summary.drawn[key], v.and(packets, f.packets)))
	}
	v.addUpdates(&v.summary.updates, &called.updates, f.packets)
	v.note(event{packets: f.packets, index: v.run.first, call: called})
	v.add(&v.summary.accepted, v.part(&called.accepted, f.packets)...)
	v.add(&v.summary.ended, v.part(&called.ended, f.packets)...)
	return v.part(&called.returned, f.packets)
}

// drewBefore reports whether some of the packets already evaluated a random match of the called
// chain.
func (v *visit) drewBefore(called *summary, packets set) bool {
	for key, asked := range called.drawn {
		v.meter.step()
		if v.and(v.and(asked, packets), v.summary.drawn[key]) != none {
			return true
		}
	}
	return false
}

// draw records the packets that evaluated a variable.
func (v *visit) draw(key string, packets set) {
	s := v.summary
	if s.drawn == nil {
		s.drawn = map[string]set{}
	}
	if _, known := s.drawn[key]; !known {
		v.meter.alloc(64)
	}
	s.drawn[key] = packets
}

// part returns the flows of a summary restricted to some packets.
func (w *walk) part(of *flows, packets set) []flow {
	var found []flow
	for _, f := range of.list {
		w.meter.step()
		if f.packets = w.and(f.packets, packets); f.packets != none {
			found = append(found, f)
		}
	}
	return found
}

package diff

import (
	"fmt"
	"strconv"

	"github.com/sluice-mesh/sluice/rules"
)

// A place is where a base chain runs.
type place struct {
	chain rules.ChainRef
	// before reports that conntrack has not seen the packets yet, second that they are on their way
	// back from lo.
	before, second bool
	// leaving reports that they leave by lo and are at postrouting.
	leaving bool
	// translated reports that the chain runs after the place where the kernel translates.
	translated bool
	// tied reports that the chain has conntrack's priority and is taken to run before it.
	tied bool
}

// key tells the place from others, and is the same for the same chain of both sides.
func (p *place) key() string {
	return fmt.Sprint(p.chain.Chain.Base.Hook, p.second, p.tied, chainName(p.chain))
}

// A call is a chain, and how packets come to it. All that come alike are treated alike, so that a
// call is followed once, for all packets there could be, however often a chain is jumped to.
type call struct {
	chain *rules.Chain
	place *place
	progress
	mark, connection *markBits
	// visit numbers the times that a packet comes to the chain, if chance decides there: each time
	// anew.
	visit int
}

// A summary is what becomes of packets in a chain.
type summary struct {
	chain rules.ChainRef
	// returned are the packets that reach the chain's end, accepted the packets that leave the base
	// chain, ended the packets whose evaluation has ended.
	returned, accepted, ended flows
	// drawn are the packets for which a variable was asked, by its key.
	drawn map[string]set
	// updates are what the rules have written to states.
	updates updates
	// events are what happened, in order.
	events []event
	// running reports that the chain has not been followed to its end yet.
	running bool
	// entered are the packets that come to the chain.
	entered set
}

// eventSize is how many bytes an event takes, in a list that grows.
const eventSize = 80

// An event is a rule that matched packets, in the space of one packet, or a call of another chain.
type event struct {
	packets set
	index   int // of the rule
	stopped rules.Action
	call    *summary
}

// follow returns the summary of a call, which is running if the chain is jumped to in a circle.
func (w *walk) follow(k call, c rules.ChainRef) *summary {
	if known, ok := w.summaries[k]; ok {
		return known
	}
	w.meter.take(summarySize + stackSize)
	s := &summary{chain: c, running: true}
	w.summaries[k] = s
	var present flows
	w.add(&present, flow{all, k.progress, k.mark, k.connection})
	for _, r := range w.runsOf(c) {
		if len(present.list) == 0 {
			break
		}
		w.meter.work()
		var next flows
		v := visit{walk: w, summary: s, chain: c, place: k.place, run: r, number: k.visit, source: k.source, next: &next}
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

// How many bytes a call takes: for what is known of it, and on the stack as long as it runs, which
// is copied when it grows.
const (
	summarySize = 512
	stackSize   = 4 << 10
)

// mostVisits is how often a packet may come to a chain in which chance decides, from one place.
const mostVisits = 8

// call leads packets through another chain, and returns the packets that reach its end. The text
// names the chain if that cannot be decided.
func (v *visit) call(c rules.ChainRef, f flow, text string) []flow {
	k := call{c.Chain, v.place, f.progress, f.mark, f.connection, v.number}
	called := v.follow(k, c)
	for !called.running && v.drewBefore(called, f.packets) {
		if k.visit++; k.visit > v.number+mostVisits {
			v.undecided(text+": more than "+strconv.Itoa(mostVisits)+" visits of a chain in which chance decides", f)
			return nil
		}
		called = v.follow(k, c)
	}
	if called.running {
		// No kernel accepts a jump in a circle, but text from elsewhere may hold one.
		v.undecided(text, f)
		return nil
	}
	for key, packets := range called.drawn {
		v.meter.work()
		v.draw(key, v.or(v.summary.drawn[key], v.and(packets, f.packets)))
	}
	v.addUpdates(&v.summary.updates, &called.updates, f.packets)
	v.note(event{packets: f.packets, index: v.run.first, call: called})
	v.add(&v.summary.accepted, v.part(&called.accepted, f.packets)...)
	v.add(&v.summary.ended, v.part(&called.ended, f.packets)...)
	return v.part(&called.returned, f.packets)
}

// drewBefore reports whether chance has decided about some of the packets already where the called
// chain asks for it.
func (v *visit) drewBefore(called *summary, packets set) bool {
	for key, asked := range called.drawn {
		v.meter.work()
		if v.and(v.and(asked, packets), v.summary.drawn[key]) != none {
			return true
		}
	}
	return false
}

// draw notes the packets for which a variable was asked.
func (v *visit) draw(key string, packets set) {
	s := v.summary
	if s.drawn == nil {
		s.drawn = map[string]set{}
	}
	if _, known := s.drawn[key]; !known {
		v.meter.take(64)
	}
	s.drawn[key] = packets
}

// part returns the flows of a summary for some packets.
func (w *walk) part(of *flows, packets set) []flow {
	var found []flow
	for _, f := range of.list {
		w.meter.work()
		if f.packets = w.and(f.packets, packets); f.packets != none {
			found = append(found, f)
		}
	}
	return found
}

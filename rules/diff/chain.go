package diff

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// A chainPosition is the position of a base chain in the evaluation.
type chainPosition struct {
	chain rules.ChainRef
	stage
	// equalPriority reports that the chain has conntrack's priority, and is assumed to run before
	// conntrack.
	equalPriority bool
}

// A stage describes what the kernel has done with packets before a base chain.
type stage struct {
	// beforeConntrack reports that conntrack has not run yet.
	beforeConntrack bool
	// loopbackArrival reports that the packets were sent over lo and arrive now.
	loopbackArrival bool
	// atPostrouting reports that the packets are at postrouting. leavesHost reports that they leave
	// the host, and are not sent over lo.
	atPostrouting, leavesHost bool
	// translated reports that the chain runs after the translation of destinations by NAT, and
	// sourceTranslated that it runs after the translation of sources.
	translated, sourceTranslated bool
	// confirmed reports that the chain is assumed to run after conntrack has confirmed the
	// connections, at postrouting. In a view, it is also set for packets that arrive on lo.
	confirmed bool
}

// key identifies the position. The same position of the same chain has equal keys on both sides.
func (p *chainPosition) key() string {
	return fmt.Sprint(p.chain.Chain.Base.Hook, p.loopbackArrival, p.equalPriority, p.confirmed,
		chainKey(p.chain))
}

// chainKey identifies a chain. It quotes the names, which may contain spaces.
func chainKey(c rules.ChainRef) string {
	return fmt.Sprintf("%s %q %q", c.Table.Family, c.Table.Name, c.Chain.Name)
}

// A call is a chain with the progress and the marks of the packets that enter it. Packets with
// equal progress and marks have equal results. Therefore a call is evaluated only once, for all
// possible packets, however many jumps lead to the chain.
type call struct {
	chain    *rules.Chain
	position *chainPosition
	progress
	mark, connectionMark *markBits
	// number distinguishes the calls of a chain with random matches for one packet, because the
	// results of the matches in these calls are independent.
	number int
}

// A summary is the result of a call of a chain.
type summary struct {
	chain rules.ChainRef
	// returned contains the packets that return from the chain or reach its end, accepted contains
	// the packets that leave the base chain, and ended contains the packets whose evaluation has
	// ended.
	returned, accepted, ended flows
	// evaluated contains the packets for which the variable of each unsupported or random condition
	// was evaluated, by the variable's key.
	evaluated map[string]set
	// updates are the writes of the rules to states.
	updates updates
	// events are the matched rules and calls, in order.
	events []event
	// incomplete reports that the evaluation of the chain is not complete.
	incomplete bool
	// entered contains the packets that enter the chain.
	entered set
}

// eventSize is the size of an event in a growing list in bytes.
const eventSize = 80

// An event is a matched rule, recorded only in the space of a single packet, or a call of another
// chain.
type event struct {
	packets set
	index   int          // of the rule
	stopped rules.Action // see rules.Step.Stopped
	call    *summary     // the call; nil for a matched rule
}

// summarize returns the summary of a call of the chain c. If the call is being evaluated, because
// jumps form a cycle, the summary is incomplete.
func (w *walk) summarize(key call, c rules.ChainRef) *summary {
	if known, ok := w.summaries[key]; ok {
		return known
	}
	w.meter.alloc(summarySize + stackSize)
	s := &summary{chain: c, incomplete: true}
	w.summaries[key] = s
	var current flows
	w.add(&current, flow{all, key.progress, key.mark, key.connectionMark})
	for _, r := range w.runsOf(c) {
		if len(current.list) == 0 {
			break
		}
		w.meter.step()
		var next flows
		e := evaluator{
			walk: w, summary: s, chain: c, position: key.position, run: r, callNumber: key.number,
			snatAction: key.snatAction, next: &next,
		}
		for _, f := range current.list {
			e.evaluateFlow(f)
		}
		w.meter.release(int64(len(current.list)) * flowSize)
		current = next
	}
	w.add(&s.returned, current.list...)
	s.incomplete = false
	w.meter.release(stackSize)
	w.completed = append(w.completed, s)
	return s
}

// The sizes of a call and of its stack frames in bytes. The frames are copied when the stack grows.
const (
	summarySize = 512
	stackSize   = 4 << 10
)

// maxCalls is the maximum number of calls of a chain with random matches, by one chain and for one
// packet. Each call adds variables for its random matches.
const maxCalls = 8

// evaluateCall evaluates another chain, and returns the packets that return from it. If the result
// is unknown, the packets end as undecided, and text describes the call in the reason.
func (e *evaluator) evaluateCall(c rules.ChainRef, f flow, text string) []flow {
	key := call{c.Chain, e.position, f.progress, f.mark, f.connectionMark, e.callNumber}
	called := e.summarize(key, c)
	for !called.incomplete && e.evaluatedBefore(called, f.packets) {
		if key.number++; key.number >= e.callNumber+maxCalls {
			e.endUndecided(fmt.Sprintf(
				"%s: more than %d calls of a chain with a random or rate-limiting match", text, maxCalls), f)
			return nil
		}
		called = e.summarize(key, c)
	}
	if called.incomplete {
		// The kernel rejects cycles of jumps, but a file of rules may contain a cycle.
		e.endUndecided(text, f)
		return nil
	}
	for key, packets := range called.evaluated {
		e.meter.step()
		e.recordEvaluation(key, e.and(packets, f.packets))
	}
	e.addUpdates(&e.summary.updates, &called.updates, f.packets)
	e.addEvent(event{packets: f.packets, index: e.run.first, call: called})
	e.add(&e.summary.accepted, e.restrict(&called.accepted, f.packets)...)
	e.add(&e.summary.ended, e.restrict(&called.ended, f.packets)...)
	return e.restrict(&called.returned, f.packets)
}

// evaluatedBefore reports whether a random match of the called chain has already been evaluated for
// some of the packets.
func (e *evaluator) evaluatedBefore(called *summary, packets set) bool {
	for key, evaluated := range called.evaluated {
		e.meter.step()
		if e.and(e.and(evaluated, packets), e.summary.evaluated[key]) != none {
			return true
		}
	}
	return false
}

// recordEvaluation adds packets for which a variable is evaluated.
func (e *evaluator) recordEvaluation(key string, packets set) {
	before, known := e.summary.evaluated[key]
	if !known {
		e.meter.alloc(entrySize)
	}
	storeIn(&e.summary.evaluated, key, e.or(before, packets))
}

// restrict returns the flows of a summary, restricted to the given packets.
func (w *walk) restrict(from *flows, packets set) []flow {
	var found []flow
	for _, f := range from.list {
		w.meter.step()
		if f.packets = w.and(f.packets, packets); f.packets != none {
			found = append(found, f)
		}
	}
	return found
}

package diff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"github.com/sluice-mesh/sluice/rules"
)

// Explain evaluates a ruleset for one packet: at prerouting for a packet that arrives; at output
// and postrouting for a packet that the host sends, and then at prerouting if the host sends it to
// itself. [Decide] uses the same evaluation.
//
// Chains at input and forward, and at postrouting for packets that are forwarded, are not
// evaluated, because [rules.Compile] creates no chains there. The outcome therefore does not
// include a drop by a foreign chain at input. It does not depend on whether a process listens
// (except for tproxy), and does not include the route of a packet whose mark does not change. An
// interface is assumed to have an address if this is unknown.
//
// [DefaultBudget] limits the work. Explain is safe for concurrent use.
func Explain(rs *rules.Ruleset, p rules.Packet) rules.Trace {
	return ExplainWithin(rs, p, DefaultBudget)
}

// ExplainWithin is [Explain] with another budget. If it is exhausted, the outcome is undecided.
func ExplainWithin(rs *rules.Ruleset, p rules.Packet, b Budget) (t rules.Trace) {
	if limit := runLimited(func() {
		t, _ = explain(rs, p, assumptions{shared: newSharedState(rs), meter: newMeter(b)})
	}); limit != "" {
		return rules.Trace{
			Passes:    []rules.Pass{{Packet: p}},
			Outcome:   rules.Outcome{Undecided: limit},
			Exhausted: limit,
		}
	}
	return t
}

// assumptions contain what is known in addition to the packet, and the meter of the evaluation.
type assumptions struct {
	// side is part of the keys of variables whose values may differ between the sides.
	side   string
	given  map[string]bool // the values of some variables, by key
	shared sharedState     // the effects of the rules on states that packets share
	meter  *meter
	// translated contains the values of the fields that describe the translation of earlier packets
	// of the connection. It is nil if they are unknown.
	translated *translation
}

// A translation is the destination to which earlier packets of a connection were translated.
type translation struct{ address, port value }

// explain evaluates a ruleset for a packet. ifNoneTrue is the outcome if no unknown condition is
// true.
func explain(
	rs *rules.Ruleset, p rules.Packet, a assumptions,
) (t rules.Trace, ifNoneTrue rules.Outcome) {
	s := newPacketSpace(p, a.meter)
	s.given, s.shared = a.given, a.shared
	s.omitResets()
	if earlier := a.translated; earlier != nil {
		s.single.values[newDestination], s.single.values[newPort] = earlier.address, earlier.port
		// The connection has one socket, and a listener is transparent if it exists.
		for _, f := range []field{newDestination, newPort, noListener} {
			s.single.known[f] = true
		}
	}
	x := &explanation{walk: walkAll(s, rs, a.side)}
	explained, _ := x.explainedFlow(x.ended.list)
	ifNoneTrue = x.outcomeOf(explained)
	t.Outcome = x.outcome(ifNoneTrue)
	if t.Alternatives = x.alternatives(t.Outcome); len(t.Alternatives) > 0 {
		t.DependsOn = x.randomMatches()
	}
	for i := range x.traversals {
		t.Passes = append(t.Passes, x.pass(i))
	}
	t.Uncertain, t.UnknownAt = x.uncertain, x.unknownAt
	t.Assumed = s.single.assumed
	t.Delivery = x.delivery(t.Outcome)
	return t, ifNoneTrue
}

// delivery returns what routing does to the packet if the packet has a transparent listener
// (TProxyNeedsLocalRoute). The routes of other packets are not known.
func (x *explanation) delivery(o rules.Outcome) rules.Delivery {
	selectsMark := func(m rules.MatchMark) bool { return o.Mark&m.Mask == m.Value&m.Mask }
	isRoutedToHost := o.UnknownMarks == "" &&
		slices.ContainsFunc(policyRuleMarks(x.rs.Routing, x.family), selectsMark)
	switch {
	case !o.HasListener():
		return rules.DeliveryUnknown
	case isRoutedToHost,
		o.Redirect != 0 || o.RedirectLast != 0 || o.ToHost, // an address of the interface
		!o.DNATAddr.IsValid() && x.single.DestinationType == rules.Local:
		return rules.Delivered
	}
	return rules.DeliveryUnknown
}

// An explanation describes the evaluation of one packet. A set of packets in the space of one
// packet is a set of cases: each case is a combination of results of the random matches and unknown
// conditions. In the explained case, none of these matches and conditions is true.
type explanation struct {
	*walk
	stepCount int // number of steps of the current pass
	// uncertain contains the texts of Trace.Uncertain. addedNodes contains the nodes whose
	// conditions addUncertain has added to uncertain.
	uncertain  []string
	addedNodes map[uint32]bool
	unknownAt  []rules.Step // Trace.UnknownAt
}

// holds reports whether the set contains the explained case.
func (x *explanation) holds(cases set) bool {
	for cases > all {
		x.meter.step()
		cases = x.root(cases).no
	}
	return cases == all
}

// addUncertain adds the texts of the conditions on which the set depends to uncertain.
func (x *explanation) addUncertain(cases set) {
	if x.addedNodes == nil {
		x.addedNodes = map[uint32]bool{}
	}
	x.visitNodes(cases, x.addedNodes, func(bit uint32) {
		text := x.variableAt(bit).text
		if len(x.uncertain) < maxListedCauses && !slices.Contains(x.uncertain, text) {
			x.uncertain = append(x.uncertain, text)
		}
	})
}

// explainedFlow returns the flow of the explained case.
func (x *explanation) explainedFlow(list []flow) (flow, bool) {
	i := slices.IndexFunc(list, func(f flow) bool { return x.holds(f.packets) })
	if i < 0 {
		return flow{}, false
	}
	return list[i], true
}

// outcome returns the outcome of the packet: the outcome of the explained case, or an undecided one
// if it depends on an unknown condition.
func (x *explanation) outcome(explained rules.Outcome) rules.Outcome {
	undecided := causes{explanation: x}
	undecided.addOutcomes()
	if len(undecided.texts) > 0 {
		return rules.Outcome{Undecided: undecided.String()}
	}
	unknownMarks := causes{explanation: x}
	unknownMarks.addMarks()
	explained.UnknownMarks = unknownMarks.String()
	return explained
}

// causes are the unknown conditions on which an outcome depends. Their rules are in unknownAt.
type causes struct {
	*explanation
	texts []string
	known map[string]bool
}

// maxListedCauses is the number of causes in a shortened text, and the maximum number of rules in
// Trace.UnknownAt and of conditions in Trace.Uncertain.
const maxListedCauses = 10

// causeSize is the size of a cause in a list and in a map in bytes.
const causeSize = 64

// add adds a cause, and its rule if step is not nil.
func (c *causes) add(text string, step *rules.Step) {
	c.meter.charge(textSteps)
	if !c.known[text] {
		storeIn(&c.known, text, true)
		c.meter.alloc(causeSize)
		c.texts = append(c.texts, text)
	}
	if step != nil && len(c.unknownAt) < maxListedCauses && !slices.Contains(c.unknownAt, *step) {
		c.unknownAt = append(c.unknownAt, *step)
	}
}

// addUnknowns adds the unknown conditions on which a set depends.
func (c *causes) addUnknowns(cases set) {
	for _, v := range c.unknownsOf(cases) {
		c.add(v.text, v.step)
	}
}

// addOutcomes adds the causes if the outcome, apart from its marks, is unknown: unsupported
// expressions, and the conditions that select one of several outcomes.
func (c *causes) addOutcomes() {
	possible := make([]set, len(c.ended.list))
	before := none // the possible cases of earlier flows
	for i, f := range c.ended.list {
		if f.undecided != 0 {
			u := &c.unsupported[f.undecided-1]
			c.add(u.text, &u.step)
		}
		possible[i] = c.possibly(f.packets)
		if c.intersects(possible[i], before) {
			for j, g := range c.ended.list[:i] {
				c.meter.step()
				if f.final() != g.final() && c.intersects(possible[i], possible[j]) {
					c.addUnknowns(f.packets)
					c.addUnknowns(g.packets)
				}
			}
		}
		before = c.or(before, possible[i])
	}
}

// addMarks adds the causes of unknown marks. The rest of the outcome must be known.
func (c *causes) addMarks() {
	// Flows with the same final progress have the same outcome, except for their marks.
	var merged flows
	for _, f := range c.ended.list {
		f.progress = f.final()
		c.walk.add(&merged, f)
	}
	for _, f := range merged.list {
		addIfUnknown := func(bit set) {
			if bit > all && c.and(c.possibly(c.and(f.packets, bit)),
				c.possibly(c.minus(f.packets, bit))) != none {
				c.addUnknowns(bit)
			}
		}
		for i := range f.mark {
			if !f.dropped { // the mark of a dropped packet has no effect
				addIfUnknown(f.mark[i])
			}
			addIfUnknown(f.connectionMark[i])
		}
	}
}

// String returns the causes as one text.
func (c *causes) String() string {
	if n := len(c.texts) - maxListedCauses; n > 1 {
		return fmt.Sprintf("%s; and %d more", strings.Join(c.texts[:maxListedCauses], "; "), n)
	}
	return strings.Join(c.texts, "; ")
}

// alternatives returns the other outcomes that random matches may produce.
func (x *explanation) alternatives(actual rules.Outcome) []rules.Outcome {
	if actual.Undecided != "" || !slices.ContainsFunc(x.variableList, func(v variable) bool {
		return v.kind == random
	}) {
		return nil
	}
	var found []rules.Outcome
	known := map[rules.Outcome]bool{actual: true}
	for _, f := range x.ended.list {
		for _, part := range x.byMarks(f) {
			outcome := x.outcomeOf(part)
			outcome.UnknownMarks = actual.UnknownMarks
			if x.meter.charge(textSteps); !known[outcome] {
				x.meter.alloc(2 * int64(unsafe.Sizeof(outcome)))
				known[outcome] = true
				found = append(found, outcome)
			}
		}
	}
	return found
}

// randomMatches names the random matches on which the outcome depends.
func (x *explanation) randomMatches() []string {
	found := map[string]bool{}
	visited := map[uint32]bool{}
	add := func(cases set) {
		x.visitNodes(cases, visited, func(bit uint32) {
			i, ok := x.variableOf(bit)
			if ok && x.variableList[i].kind == random && !found[x.variableList[i].text] {
				x.meter.alloc(causeSize)
				found[x.variableList[i].text] = true
			}
		})
	}
	for _, f := range x.ended.list {
		add(f.packets)
		for i := range f.mark {
			add(f.mark[i])
			add(f.connectionMark[i])
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// maxAlternatives is the number of flows at which byMarks stops. The last division may nearly
// double this number.
const maxAlternatives = 64

// byMarks divides a flow into flows whose packets have equal marks. It stops when there are at
// least maxAlternatives flows.
func (x *explanation) byMarks(f flow) []flow {
	parts := []flow{f}
	for i := range f.mark {
		for _, b := range []set{f.mark[i], f.connectionMark[i]} {
			if b <= all || len(parts) >= maxAlternatives {
				continue
			}
			var divided []flow
			for _, p := range parts {
				in, out := x.split(p, b)
				for _, q := range []flow{in, out} {
					if q.packets != none {
						divided = append(divided, q)
					}
				}
			}
			parts = divided
		}
	}
	return parts
}

// outcomeOf returns the outcome of the packet for one case of a flow.
func (x *explanation) outcomeOf(f flow) rules.Outcome {
	if f.undecided != 0 {
		return rules.Outcome{Undecided: x.walk.unsupported[f.undecided-1].text}
	}
	outcome := rules.Outcome{
		Dropped: f.dropped, Rejected: f.rejected, Zone: f.zone, Helper: f.helper,
		Untracked: f.tracking == untracked, Rerouted: f.rerouted,
		LeavesLoopback: f.leftLoopback,
		Mark:           x.markOf(f, f.mark), ConntrackMark: x.markOf(f, f.connectionMark),
	}
	originalPort := x.single.Destination.Port()
	switch t := f.target; t.kind {
	case redirectTarget:
		outcome.Redirect, outcome.RedirectLast = cmp.Or(t.port, originalPort), t.lastPort
		outcome.ToHost = outcome.Redirect == 0 && t.lastPort == 0
	case portTarget:
		outcome.DNATPort, outcome.DNATPortLast = cmp.Or(t.port, originalPort), t.lastPort
	case addrTarget:
		outcome.DNATAddr, outcome.DNATAddrLast = t.addr, t.lastAddr
		outcome.DNATPort, outcome.DNATPortLast = cmp.Or(t.port, originalPort), t.lastPort
	}
	if outcome.SNATAddr = f.snat; !f.snat.IsValid() {
		outcome.SNAT, _, _ = strings.Cut(f.snatAction, keySeparator)
	}
	if f.tproxy.assigned {
		outcome.TProxy, outcome.TProxyAddr = cmp.Or(f.tproxy.port, originalPort), f.tproxy.addr
	}
	return outcome
}

// markOf returns the mark for one case of a flow: the explained case, if the flow contains it.
func (x *explanation) markOf(f flow, b *markBits) uint32 {
	n := uint32(0)
	cases := f.packets
	for i := range b {
		if b[i] <= all {
			n |= uint32(b[i]) << i // none is 0, and all is 1
			continue
		}
		switch in := x.and(cases, b[i]); {
		case x.minus(cases, b[i]) == none:
			n |= 1 << i
		case in != none && x.holds(in):
			n |= 1 << i
			cases = in
		default:
			cases = x.minus(cases, b[i])
		}
	}
	return n
}

package diff

import (
	"fmt"
	"slices"
	"unsafe"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// An evaluator evaluates a run of rules for packets.
type evaluator struct {
	*walk
	summary    *summary
	chain      rules.ChainRef
	position   *chainPosition
	run        run
	callNumber int // see call.number
	// snatAction names the action that changed the source of the packets; see progress.
	snatAction string
	// next contains the packets after the run.
	next *flows
}

// rule returns the first rule of the run. The other rules of the run have the same actions.
func (e *evaluator) rule() *rules.Rule { return &e.chain.Chain.Rules[e.run.first] }

// evaluateFlow evaluates the rules of the run for a flow.
func (e *evaluator) evaluateFlow(f flow) {
	e.meter.step()
	if e.run.hasSideEffects {
		// An expression that may have a side effect has it even if the rest of the rule does not
		// match (EffectsBeforeFailedMatch, SocketMatchRestoresMark).
		e.endUndecided(sideEffectText(e.rule()), f)
		return
	}
	matched, others := e.split(f, e.runSet(f))
	e.add(e.next, others)
	if matched.packets == none {
		return
	}
	eventIndex := -1
	if e.single != nil {
		eventIndex = len(e.summary.events)
		e.addEvent(event{packets: matched.packets, index: e.run.first})
	}
	e.evaluateActions(e.rule().Actions, []flow{matched}, eventIndex)
}

// runSet returns the packets that match a rule of the run. The result is valid for packets with the
// progress of the flow.
func (e *evaluator) runSet(f flow) set {
	view := e.view(&f.progress)
	packets := e.staticRunSet(&view)
	if e.run.isStatic {
		return packets
	}
	// A run with a match that is not static is a single rule. The results of such matches depend on
	// the flow.
	for i, m := range e.rule().Matches {
		if packets != none && !e.matches.isStatic(m) {
			packets = e.and(packets, e.evaluateMatch(m, f, packets, matchPart(i)))
		}
	}
	return packets
}

// staticRunSet returns the packets that meet all static matches of a rule of the run.
func (e *evaluator) staticRunSet(view *view) set {
	if e.single != nil {
		return e.staticRuleSet(e.rule(), view)
	}
	return cached(&e.runSets, runSetKey{e.chain.Chain, e.run.first, *view}, func() set {
		e.meter.alloc(cachedSetSize)
		return e.unite(e.ruleSetsOfRun(view))
	})
}

// ruleSetsOfRun returns sets whose union contains the packets that match a rule of the run.
func (e *evaluator) ruleSetsOfRun(view *view) []set {
	var sets []set
	lists := e.listsOfRun()
	for _, i := range lists.others {
		sets = append(sets, e.staticRuleSet(&e.chain.Chain.Rules[i], view))
	}
	for side, ranges := range lists.ranges {
		if len(ranges) > 0 {
			m := rules.MatchAddr{Side: rules.Side(side), Ranges: ranges}
			sets = append(sets, e.matchSet(m, view))
		}
	}
	return sets
}

// listsOfRun divides the rules of the run into rules that match only addresses, as iptables creates
// for a list of prefixes, and other rules. The addresses of the former are combined into one list
// for each side, because converting a list is faster than uniting many sets.
func (e *evaluator) listsOfRun() addressLists {
	key := runKey{e.chain.Chain, e.run.first, e.run.end, e.family}
	lists, known := e.runLists.lists[key]
	if known {
		return lists
	}
	var builders [len(lists.ranges)]netipx.IPSetBuilder
	for i := e.run.first; i < e.run.end; i++ {
		e.meter.step()
		m, ok := e.onlyAddressMatch(&e.chain.Chain.Rules[i])
		if !ok || e.run.end-e.run.first == 1 {
			lists.others = append(lists.others, i)
			continue
		}
		e.meter.charge(textSteps * len(m.Ranges))
		for _, r := range m.Ranges {
			builders[m.Side].AddRange(r)
		}
	}
	bytes := int64(entrySize + cap(lists.others)*int(unsafe.Sizeof(0)))
	for side := range builders {
		// The builder rejects only invalid ranges, and onlyAddressMatch excludes them.
		if list, err := builders[side].IPSet(); err == nil {
			lists.ranges[side] = list.Ranges()
			bytes += int64(len(lists.ranges[side])) * int64(unsafe.Sizeof(netipx.IPRange{}))
		}
	}
	e.meter.alloc(bytes)
	e.runLists.bytes += bytes
	e.runLists.lists[key] = lists
	return lists
}

// addressLists are the rules of a run: the addresses of the rules that match only addresses, by the
// side of the match, and the indices of the other rules.
type addressLists struct {
	ranges [rules.Destination + 1][]netipx.IPRange
	others []int
}

// A runKey identifies a run in the rules for a family.
type runKey struct {
	chain      *rules.Chain
	first, end int
	family     rules.Family
}

// runLists caches the results of listsOfRun for all spaces of a decision.
type runLists struct {
	lists map[runKey]addressLists
	bytes int64 // size of the lists
}

// onlyAddressMatch returns the only match of a rule if that match is a list of addresses of the
// family, and is not negated.
func (e *evaluator) onlyAddressMatch(r *rules.Rule) (m rules.MatchAddr, ok bool) {
	if len(r.Matches) != 1 {
		return m, false
	}
	m, ok = r.Matches[0].(rules.MatchAddr)
	return m, ok && !m.Not && m.Family() == e.family &&
		!slices.ContainsFunc(m.Ranges, func(r netipx.IPRange) bool { return !r.IsValid() })
}

// cachedSetSize is the size of a set with its key in a cache in bytes.
const cachedSetSize = 256

// addEvent adds an event.
func (e *evaluator) addEvent(ev event) {
	e.meter.alloc(eventSize)
	e.summary.events = append(e.summary.events, ev)
}

// A rulePart identifies a match of a rule, an action, or the value that an action writes. Matches
// have the numbers from 0, actions odd negative numbers, and values even negative numbers.
type rulePart int

func matchPart(i int) rulePart      { return rulePart(i) }
func actionPart(i int) rulePart     { return rulePart(-2*i - 1) }
func valuePart(p rulePart) rulePart { return p - 1 }

// staticRuleSet returns the packets that meet all static matches of the rule.
func (e *evaluator) staticRuleSet(r *rules.Rule, view *view) set {
	packets := all
	for i := range r.Matches {
		if e.single != nil && packets == none {
			break // so that facts about the host in later matches are not reported as assumptions
		}
		if e.matches.isStatic(r.Matches[i]) {
			packets = e.and(packets, e.matches.staticMatchSet(&r.Matches[i], view))
		}
	}
	return packets
}

// evaluateMatch returns the packets of a flow that meet a match. The parameter packets contains the
// packets that reach the match, for which a random match is evaluated; part distinguishes the match
// from the other matches of the rule.
func (e *evaluator) evaluateMatch(match rules.Match, f flow, packets set, part rulePart) set {
	view := e.view(&f.progress)
	switch m := match.(type) {
	case rules.MatchMark:
		if m.Conntrack {
			return e.and(e.hasConnection(&view), e.marks.equals(e.connectionMark(f), m))
		}
		return e.marks.equals(f.mark, m)
	case rules.MatchMarkRange:
		if m.Conntrack {
			return e.and(e.hasConnection(&view),
				e.negateIf(m.Not, e.marks.within(e.connectionMark(f), m.Values)))
		}
		return e.negateIf(m.Not, e.marks.within(f.mark, m.Values))
	case rules.MatchListed:
		return e.listMatches(m, f, packets, part)
	case rules.Unknown:
		return e.evaluateUnknown(m, f, packets, part)
	case rules.MatchReversePath:
		if f.mark != e.marks.packet && (view.xtables || !view.tproxy.assigned) {
			// The route depends on the mark, which has changed.
			return e.negateIf(m.Not, e.variable(variable{
				key: fmt.Sprint("path with mark ", m.Kind, *f.mark), step: e.step(),
				text: "whether the route to the source, with the packet's current mark, uses the " +
					"input interface",
			}))
		}
	case rules.MatchTuple:
		e.meter.charge(len(m.Alternatives))
		if m.UsesUnknown() {
			e.meter.charge(textSteps * len(m.Alternatives))
			u := rules.Unknown{Text: m.String(), Effect: rules.Reads, Data: rules.NoData}
			return e.evaluateUnknown(u, f, packets, part)
		}
		return e.tupleMatches(m, func(alternative rules.Match) set {
			return e.evaluateMatch(alternative, f, packets, part)
		})
	}
	return e.matchSet(match, &view)
}

// connectionMark returns the connection mark that rules read. Before conntrack, this is the mark of
// the packets' template. For packets without a connection the result has no meaning, because a
// match on the mark fails (MarkNeedsConnection).
func (e *evaluator) connectionMark(f flow) *markBits {
	view := e.view(&f.progress)
	switch {
	case view.isTrackedAgain():
		return e.marks.unknownMark(retrackedVariable(f.retrackZone, "connection mark"))
	case !view.hasTemplate():
		return f.connectionMark
	case e.marksTemplates, view.tracking == cpuTemplate:
		// A mark that was saved in a template is kept for other packets (TemplateIsShared).
		side := ""
		if e.marksTemplates {
			side = e.side
		}
		return e.marks.unknownMark(variable{
			key: "mark of template " + side + e.position.key(), kind: unknownBit,
			text: "the mark of a conntrack template, which is shared by many packets",
			step: e.step(),
		})
	}
	return e.marks.zero
}

// step returns the current rule as a step of the evaluation.
func (e *evaluator) step() *rules.Step {
	return &rules.Step{
		ChainRef: e.chain, Index: e.run.first, Base: e.position.chain.Chain.Base,
	}
}

// currentHook returns the hook of the base chain that is evaluated. The field hook of the space is
// the hook at which the packets entered.
func (e *evaluator) currentHook() rules.Hook { return e.position.chain.Chain.Base.Hook }

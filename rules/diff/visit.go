package diff

import (
	"fmt"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// A visit evaluates a run of rules for packets.
type visit struct {
	*walk
	summary *summary
	chain   rules.ChainRef
	place   *chainPosition
	run     run
	number  int // see call.visit
	// source names the action that changed the source of the packets, see progress.source.
	source string
	// next contains the packets after the run.
	next *flows
}

// rule is the first rule of the run. The others differ only in their addresses.
func (v *visit) rule() *rules.Rule { return &v.chain.Chain.Rules[v.run.first] }

// flow evaluates the rules of the run for a flow.
func (v *visit) flow(f flow) {
	v.meter.step()
	if v.run.hasSideEffects {
		// An expression that may have a side effect has it even if the rest of the rule does not
		// match (EffectsBeforeFailedMatch, SocketMatchRestoresMark).
		v.undecided(unknownIn(v.rule()), f)
		return
	}
	hit, rest := v.split(f, v.guard(f))
	v.add(v.next, rest)
	if hit.packets == none {
		return
	}
	at := -1
	if v.one != nil {
		at = len(v.summary.events)
		v.note(event{packets: hit.packets, index: v.run.first})
	}
	v.act(v.rule().Actions, []flow{hit}, at)
}

// guard returns the packets of a flow that match a rule of the run.
func (v *visit) guard(f flow) set {
	seen := v.view(&f.progress)
	packets := v.staticGuard(&seen)
	if v.run.isStatic {
		return packets
	}
	// A run with other matches is a single rule. Their results depend on the progress of the
	// packets.
	for i, m := range v.rule().Matches {
		if packets != none && !v.matches.isStatic(m) {
			packets = v.and(packets, v.evaluateMatch(m, f, packets, matchPart(i)))
		}
	}
	return packets
}

// staticGuard returns the packets that meet all static matches of a rule of the run.
func (v *visit) staticGuard(seen *view) set {
	if v.one != nil {
		return v.static(v.rule(), seen)
	}
	key := guardKey{v.chain.Chain, v.run.first, *seen}
	packets, known := v.guards[key]
	if known {
		return packets
	}
	packets = v.unite(v.runGuards(seen))
	v.meter.alloc(guardSize)
	lazySet(&v.guards, key, packets)
	return packets
}

// runGuards returns sets whose union is the packets that match the run. Rules that match only
// addresses, as iptables creates for a list of prefixes, are combined to one list, because
// converting a list is faster than uniting many sets.
func (v *visit) runGuards(seen *view) []set {
	sets := make([]set, 0, v.run.end-v.run.first)
	var lists [rules.Destination + 1]netipx.IPSetBuilder
	for i := v.run.first; i < v.run.end; i++ {
		v.meter.step()
		r := &v.chain.Chain.Rules[i]
		if m, ok := v.addressesOnly(r); ok && v.run.end-v.run.first > 1 {
			v.meter.charge(textSteps * len(m.Ranges))
			for _, r := range m.Ranges {
				lists[m.Side].AddRange(r)
			}
			continue
		}
		sets = append(sets, v.static(r, seen))
	}
	for side := range lists {
		// The builder rejects only invalid ranges, and addressesOnly excludes them.
		if list, err := lists[side].IPSet(); err == nil && len(list.Ranges()) > 0 {
			sets = append(sets,
				v.matching(rules.MatchAddr{Side: rules.Side(side), Ranges: list.Ranges()}, seen))
		}
	}
	return sets
}

// addressesOnly returns the only match of a rule if it is a list of addresses of the family.
func (v *visit) addressesOnly(r *rules.Rule) (m rules.MatchAddr, ok bool) {
	if len(r.Matches) != 1 {
		return m, false
	}
	m, ok = r.Matches[0].(rules.MatchAddr)
	return m, ok && !m.Not && m.Family() == v.family &&
		!slices.ContainsFunc(m.Ranges, func(r netipx.IPRange) bool { return !r.IsValid() })
}

// guardSize is the size of a cached guard in bytes.
const guardSize = 256

// note adds an event.
func (v *visit) note(e event) {
	v.meter.alloc(eventSize)
	v.summary.events = append(v.summary.events, e)
}

// A rulePart identifies a match or an action of a rule by its position.
type rulePart int

func matchPart(i int) rulePart { return rulePart(i) }

// actionPart identifies an action, and writtenPart the value that an action writes.
func actionPart(i int) rulePart       { return rulePart(-2*i - 1) }
func writtenPart(p rulePart) rulePart { return p - 1 }

// static returns the packets that meet all static matches of the rule.
func (v *visit) static(r *rules.Rule, seen *view) set {
	packets := all
	for i := range r.Matches {
		if v.matches.isStatic(r.Matches[i]) {
			packets = v.and(packets, v.matches.static(&r.Matches[i], seen))
		}
	}
	return packets
}

// evaluateMatch returns the packets of a flow that meet a match. Random matches are evaluated for
// the packets in asked; part distinguishes the match from others of the rule.
func (v *visit) evaluateMatch(match rules.Match, f flow, asked set, part rulePart) set {
	seen := v.view(&f.progress)
	switch m := match.(type) {
	case rules.MatchMark:
		if m.Conntrack {
			return v.and(v.connection(&seen), v.marks.equals(v.connectionMark(f), m))
		}
		return v.marks.equals(f.mark, m)
	case rules.MatchMarkRange:
		if m.Conntrack {
			return v.and(v.connection(&seen),
				v.negateIf(m.Not, v.marks.within(v.connectionMark(f), m.Values)))
		}
		return v.negateIf(m.Not, v.marks.within(f.mark, m.Values))
	case rules.MatchListed:
		return v.listed(m, f, asked, part)
	case rules.Unknown:
		return v.evaluateUnknown(m, f, v.and(f.packets, asked), part)
	case rules.MatchReversePath:
		if f.mark != v.marks.packet && (seen.xtables || !seen.tproxy.taken) {
			// The route depends on the mark, which has changed.
			return v.negateIf(m.Not, v.variable(variable{
				key: fmt.Sprint("path with mark ", m.Kind, *f.mark), step: v.step(),
				text: "whether the source is reached by the interface that the packet came in by, with the mark that it has by then",
			}))
		}
	case rules.MatchTuple:
		if m.UsesUnknown() {
			return v.evaluateUnknown(rules.Unknown{Text: m.String(), Effect: rules.Reads, Data: rules.NoData},
				f, v.and(f.packets, asked), part)
		}
		return v.tuple(m, func(one rules.Match) set { return v.evaluateMatch(one, f, asked, part) })
	}
	return v.matching(match, &seen)
}

// connectionMark returns the mark of the packets' connections as rules read it: before conntrack,
// the mark of the template. A match on the mark fails without a connection (MarkNeedsConnection).
func (v *visit) connectionMark(f flow) *markBits {
	seen := v.view(&f.progress)
	switch {
	case !seen.hasTemplate():
		return f.connection
	case v.savesEarly, seen.tracking == cpuTemplate:
		// A mark that was saved in a template remains there (TemplateIsShared).
		of := ""
		if v.savesEarly {
			of = v.side
		}
		return v.marks.unknown(variable{
			key: "mark of template " + of + v.place.key(), kind: unknownBit,
			text: "the mark of a conntrack template, which is shared by many packets",
			step: v.step(),
		})
	}
	return v.marks.zero
}

// step returns the current rule as a step of the evaluation.
func (v *visit) step() *rules.Step {
	return &rules.Step{
		Table: v.chain.Table, Chain: v.chain.Chain, Index: v.run.first,
		Base: v.place.chain.Chain.Base,
	}
}

func (v *visit) hookHere() rules.Hook { return v.place.chain.Chain.Base.Hook }

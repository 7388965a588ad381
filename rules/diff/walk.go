package diff

import (
	"fmt"
	"math"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A walk evaluates a ruleset for packets of a space in the order of the kernel: for one packet
// ([Explain]) or for all ([Decide]). A name in parentheses in a comment, such as
// (HooksRunByPriority), is a fact of FACTS.md.
type walk struct {
	*space
	rs *rules.Ruleset
	// side is leftSide or rightSide, or empty if there is only one ruleset. It is part of the keys
	// of variables whose values may differ between the sides.
	side    string
	matches matcher
	marks   *marks
	// The following maps cache the results of runsOf, isPure, staticRunSet, chainOf and ruleKey.
	runs       map[*rules.Chain][]run
	pureChains map[*rules.Chain]bool
	runSets    map[runSetKey]set
	chains     map[*rules.Table]map[string]*rules.Chain
	ruleKeys   map[*rules.Chain][]string
	// summaries contains the results of calls. completed contains the same results in the order in
	// which the calls were completed.
	summaries map[call]*summary
	completed []*summary
	// marksTemplates reports that rules may change the marks of conntrack templates.
	marksTemplates bool
	// hasNATChain reports that the ruleset has NAT chains for the family (NATSetsStatus).
	hasNATChain bool
	// usesConntrack and conntrackUnknowns are the results of conntrackUse. They are computed only
	// if the ruleset has NAT chains.
	usesConntrack     bool
	conntrackUnknowns string

	// randomKeys contains the keys of the variables of random matches of the rules.
	randomKeys map[string]bool
	// updates contains the rules' writes to states that packets share, and the rules' conditions
	// on these states.
	updates updates
	// ended contains the packets whose evaluation has ended.
	ended flows
	// droppedEarly are the packets that were dropped before conntrack.
	droppedEarly set
	// droppedConfirmed are the packets that were dropped after their connection was confirmed.
	droppedConfirmed set
	// arriving contains the packets that were sent over lo. Conntrack has confirmed their
	// connections.
	arriving set
	// unsupported lists the expressions that undecided packets reached. unsupportedIndex contains
	// their positions in the list, counted from 1.
	unsupported      []unsupportedExpression
	unsupportedIndex map[unsupportedExpression]int
	// traversals are the traversed hooks, in the space of one packet.
	traversals []hookTraversal
}

// The values of walk.side.
const (
	leftSide  = "left "
	rightSide = "right "
)

// An unsupportedExpression is an expression of a rule that the model does not support.
type unsupportedExpression struct {
	text string
	step rules.Step
}

// A hookPosition is a hook that packets traverse, and their way to it or from it.
type hookPosition struct {
	hook rules.Hook
	// loopbackArrival reports that the hook is prerouting and the packets were sent over lo.
	loopbackArrival bool
	// leavesHost reports that the hook is postrouting and the packets leave the host.
	leavesHost bool
}

// A hookTraversal records the traversal of a hook.
type hookTraversal struct {
	hookPosition
	bases []baseTraversal
	// droppedICMPRedirects contains the ICMP redirects that NAT drops (NATDropsRedirects).
	droppedICMPRedirects set
	// remaining contains the packets after the hook. ended contains all packets whose evaluation
	// ended at this hook or an earlier hook.
	remaining, ended []flow
}

// A baseTraversal records the traversal of a base chain.
type baseTraversal struct {
	position chainPosition
	// skipped contains the packets that do not traverse the NAT chain, by the fact that explains
	// why.
	skipped map[Fact]set
	calls   []event
	// droppedByPolicy contains the packets that the policy drops.
	droppedByPolicy set
}

// walkAll evaluates a ruleset for all packets of the space. side is the value of walk.side.
func walkAll(s *space, rs *rules.Ruleset, side string) *walk {
	w := &walk{
		space: s, rs: rs, side: side, matches: matcher{space: s}, marks: newMarks(s),
		runs: map[*rules.Chain][]run{}, summaries: map[call]*summary{},
		marksTemplates: marksTemplates(rs), hasNATChain: hasNATChain(rs, s.family),
	}
	if w.hasNATChain {
		w.usesConntrack, w.conntrackUnknowns = conntrackUse(rs, s.family)
	}
	connection := w.marks.connection
	if s.shared.differing[connectionMarks] {
		connection = w.marks.unknownMark(variable{
			key: "connection mark " + side, kind: unknownBit,
			text: "the mark that chains at other hooks give the connection",
		})
	}
	out := w.evaluateHook(hookPosition{hook: s.hook}, []flow{{
		packets: s.entering(), mark: w.marks.packet, connectionMark: connection,
	}})
	if s.hook == rules.Output {
		arriving, leaving := w.route(out)
		var received []flow
		// Packets for lo traverse postrouting before prerouting (LoopbackPassesPostrouting).
		if arriving = w.evaluatePostrouting(arriving, false); len(arriving) > 0 {
			w.arriving = w.packetsOf(arriving)
			received = w.evaluateHook(
				hookPosition{hook: rules.Prerouting, loopbackArrival: true},
				w.retrackInvalid(arriving))
		}
		out = append(received, w.evaluatePostrouting(leaving, true)...)
	}
	w.add(&w.ended, out...)
	return w
}

// storeIn sets an element of a map, and creates the map if it is nil. Maps are created lazily,
// because Explain does not need most of them.
func storeIn[K comparable, V any](to *map[K]V, key K, value V) {
	if *to == nil {
		*to = map[K]V{}
	}
	(*to)[key] = value
}

// cached returns an element of a map, and first computes and stores it if it is missing.
func cached[K comparable, V any](in *map[K]V, key K, compute func() V) V {
	value, ok := (*in)[key]
	if !ok {
		value = compute()
		storeIn(in, key, value)
	}
	return value
}

// evaluatePostrouting evaluates postrouting for packets that leave the host or are sent over lo,
// and returns the packets whose evaluation has not ended.
func (w *walk) evaluatePostrouting(in []flow, leavesHost bool) []flow {
	hasEffect := func(c rules.ChainRef) bool {
		return appliesTo(c.Table, w.family) && c.Chain.HasEffect()
	}
	if len(in) == 0 || !slices.ContainsFunc(w.rs.BaseChains(rules.Postrouting), hasEffect) {
		return in
	}
	return w.evaluateHook(hookPosition{hook: rules.Postrouting, leavesHost: leavesHost}, in)
}

// evaluateHook evaluates all base chains of a hook (HooksRunByPriority), and returns the packets
// whose evaluation has not ended.
func (w *walk) evaluateHook(at hookPosition, in []flow) []flow {
	if w.single != nil {
		w.traversals = append(w.traversals, hookTraversal{hookPosition: at})
	}
	// After the NAT chains and before the later chains, the kernel drops ICMP redirects and routes
	// translated packets.
	mustDropICMPRedirects := at.hook != rules.Postrouting && !at.loopbackArrival
	mustRoute := at.hook == rules.Output
	ranNAT := false
	for _, c := range w.rs.BaseChains(at.hook) {
		w.meter.step()
		if !appliesTo(c.Table, w.family) {
			continue
		}
		// Of the chains at the position of NAT, some may run after NAT (NATPriorityTies).
		base := c.Chain.Base
		afterNAT := base.Position() > natPosition(at.hook) || ranNAT && base.Type != rules.NAT
		ranNAT = ranNAT || base.Type == rules.NAT
		if afterNAT && mustDropICMPRedirects {
			in, mustDropICMPRedirects = w.dropICMPRedirects(in), false
		}
		if afterNAT && mustRoute {
			in, mustRoute = w.routeTranslated(in), false
		}
		p := at.chainPosition(c, afterNAT)
		switch {
		case at.hook != rules.Postrouting && mayPrecedeConntrack(c):
			alternative := *p
			alternative.beforeConntrack, alternative.equalPriority = true, true
			in = w.evaluateInBothOrders(p, &alternative, in, "before conntrack ",
				"whether chain %s runs before conntrack, which has the same priority")
		case at.hook == rules.Postrouting && mayFollowConfirmation(c):
			alternative := *p
			alternative.confirmed = true
			in = w.evaluateInBothOrders(p, &alternative, in, "confirmed ", "whether chain %s runs after "+
				"conntrack confirms connections, which has the same priority")
		default:
			in = w.evaluateBase(p, in)
			w.recordDropped(p)
		}
	}
	if mustDropICMPRedirects {
		in = w.dropICMPRedirects(in)
	}
	if mustRoute {
		in = w.routeTranslated(in)
	}
	w.forgetMarksOfDropped()
	if w.single != nil {
		traversal := &w.traversals[len(w.traversals)-1]
		traversal.remaining, traversal.ended = in, slices.Clone(w.ended.list)
	}
	return in
}

// chainPosition returns the position of a base chain of the hook. If it is unknown whether the
// chain runs before or after conntrack (see mayPrecedeConntrack), this is the position after
// conntrack. afterNAT reports that the chain runs after the NAT chains of the hook.
func (h hookPosition) chainPosition(c rules.ChainRef, afterNAT bool) *chainPosition {
	base, position := c.Chain.Base, c.Chain.Base.Position()
	if h.hook == rules.Postrouting {
		return &chainPosition{chain: c, stage: stage{
			atPostrouting: true, leavesHost: h.leavesHost,
			translated: true, sourceTranslated: afterNAT,
		}}
	}
	// A chain of conntrack's priority with a negative order precedes conntrack.
	precedesConntrack := position < rules.ConntrackPriority ||
		position == rules.ConntrackPriority && base.Order < 0
	return &chainPosition{chain: c, stage: stage{
		loopbackArrival: h.loopbackArrival, beforeConntrack: precedesConntrack,
		translated: h.loopbackArrival || afterNAT, sourceTranslated: h.loopbackArrival,
	}}
}

// mayPrecedeConntrack reports whether it is unknown if a chain runs before or after conntrack: both
// have the same priority, and the order of their registration is unknown (ConntrackPriorityTies).
func mayPrecedeConntrack(c rules.ChainRef) bool {
	base := c.Chain.Base
	return base.Position() == rules.ConntrackPriority && base.Order == 0 && c.Chain.HasEffect()
}

// mayFollowConfirmation reports whether it is unknown if a chain at postrouting runs before or
// after conntrack confirms connections, because both have the same priority
// (ConntrackPriorityTies).
func mayFollowConfirmation(c rules.ChainRef) bool {
	return c.Chain.Base.Position() == confirmationPriority && c.Chain.HasEffect()
}

// evaluateInBothOrders evaluates a chain at each of its two possible positions, and returns the
// packets that continue with the next chain. An unknown variable selects the packets that traverse
// the chain at the position alternative. The key of the variable begins with the given key; its
// text is the format question with the name of the chain.
func (w *walk) evaluateInBothOrders(
	position, alternative *chainPosition, in []flow, key, question string,
) []flow {
	atAlternative, atPosition := w.divide(in, w.variable(variable{
		key: key + w.side + position.key(), kind: unknownBit,
		text: fmt.Sprintf(question, chainName(position.chain)),
	}))
	var out flows
	w.add(&out, w.evaluateBase(alternative, atAlternative)...)
	w.recordDropped(alternative)
	if alternative.confirmed {
		w.recordDroppedConfirmed(atAlternative)
	}
	w.add(&out, w.evaluateBase(position, atPosition)...)
	return out.list
}

// confirmationPriority is the priority at which conntrack confirms connections at postrouting
// (NF_IP_PRI_CONNTRACK_CONFIRM in linux/netfilter_ipv4.h).
const confirmationPriority = math.MaxInt32

// natPosition returns the position of all NAT chains of a hook (NATRunsTogether).
func natPosition(h rules.Hook) int {
	nat := rules.Base{Type: rules.NAT, Hook: h}
	return nat.Position()
}

// chainName returns the name of a chain with its table.
func chainName(c rules.ChainRef) string {
	return fmt.Sprintf("%s %s %s", c.Table.Family, c.Table.Name, c.Chain.Name)
}

// evaluateBase evaluates a base chain, and returns the packets that continue with the next chain.
func (w *walk) evaluateBase(p *chainPosition, in []flow) []flow {
	base := p.chain.Chain.Base
	// Explain also records base chains without effect.
	if w.single == nil && !p.chain.Chain.HasEffect() {
		return in
	}
	traversal := baseTraversal{position: *p}
	var out flows
	if base.Type == rules.NAT {
		in = w.enterNAT(in, &out, &traversal)
	}
	for _, f := range in {
		w.meter.step()
		if f.packets == none {
			continue
		}
		s := w.summarize(call{p.chain.Chain, p, f.progress, f.mark, f.connectionMark, 0}, p.chain)
		s.entered = w.or(s.entered, f.packets)
		w.addUpdates(&w.updates, &s.updates, f.packets)
		traversal.calls = append(traversal.calls, event{packets: f.packets, call: s})
		w.add(&w.ended, w.restrict(&s.ended, f.packets)...)
		accepted := w.restrict(&s.accepted, f.packets)
		for _, r := range w.restrict(&s.returned, f.packets) {
			if base.Drop {
				traversal.droppedByPolicy = w.or(traversal.droppedByPolicy, r.packets)
				r.dropped = true
				w.add(&w.ended, r)
				continue
			}
			accepted = append(accepted, r)
		}
		for _, a := range accepted {
			if base.Type == rules.Route {
				w.reroute(a, f.mark, &out)
			} else {
				w.add(&out, a)
			}
		}
	}
	if w.single != nil {
		w.meter.alloc(summarySize)
		hook := &w.traversals[len(w.traversals)-1]
		hook.bases = append(hook.bases, traversal)
	}
	return out.list
}

package diff

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A walk evaluates a ruleset for packets of a space in the order of the kernel: for one packet
// ([Explain]) or for all ([Decide]).
type walk struct {
	*space
	rs *rules.Ruleset
	// side is part of the keys of variables whose values may differ between the sides.
	side    string
	matches matcher
	marks   *marks
	// The following maps cache the results of runsOf, isPure, staticGuard, chainOf and ruleKey.
	runs       map[*rules.Chain][]run
	pureChains map[*rules.Chain]bool
	guards     map[guardKey]set
	chains     map[*rules.Table]map[string]*rules.Chain
	ruleKeys   map[*rules.Chain][]string
	// summaries contains the results of calls. completed contains the same results in the order in
	// which the calls were completed.
	summaries map[call]*summary
	completed []*summary
	// leavesHost reports that the packets that are now evaluated at postrouting leave the host.
	// evaluatePostrouting sets it for evaluateHook.
	leavesHost bool
	// savesToTemplate is the result of the function savesToTemplate for the ruleset.
	savesToTemplate bool
	// hasNATChain reports that the ruleset has NAT chains for the family (NATSetsStatus).
	hasNATChain bool
	// usesConntrack and maybeConntrack are the results of conntrackUse; they are computed only if
	// the ruleset has NAT chains.
	usesConntrack  bool
	maybeConntrack string

	// updates are the writes of the rules to states.
	updates updates
	// ended contains the packets whose evaluation has ended.
	ended flows
	// droppedEarly are the packets that were dropped before conntrack.
	droppedEarly set
	// arriving are the packets that were sent over lo. Conntrack has confirmed their connections.
	arriving []flow
	// unknown lists the expressions that undecided packets reached.
	unknown      []unknown
	unknownIndex map[unknown]int
	// traversals are the traversed hooks, in the space of one packet.
	traversals []hookTraversal
}

// An unknown is an expression of a rule that the model does not support.
type unknown struct {
	text string
	step rules.Step
}

// A hookTraversal is the traversal of a hook.
type hookTraversal struct {
	hook rules.Hook
	// leavesHost reports that the hook is postrouting and the packets leave the host.
	leavesHost bool
	bases      []baseTraversal
	// redirects contains the packets that NAT drops (NATDropsRedirects).
	redirects set
	// remaining contains the packets after the hook. ended contains all packets whose evaluation
	// ended at this hook or an earlier hook.
	remaining, ended []flow
}

// A baseTraversal is the traversal of a base chain.
type baseTraversal struct {
	position chainPosition
	// skipped contains the packets that do not traverse the NAT chain, by the fact that is the
	// reason.
	skipped map[Fact]set
	calls   []event
	// policy contains the packets that the policy drops.
	policy set
}

// walkAll evaluates a ruleset for all packets of the space. side is part of the keys of variables
// whose values may differ between the sides.
func walkAll(s *space, rs *rules.Ruleset, side string) *walk {
	w := &walk{
		space: s, rs: rs, side: side, matches: matcher{space: s}, marks: newMarks(s),
		runs: map[*rules.Chain][]run{}, summaries: map[call]*summary{},
		savesToTemplate: savesToTemplate(rs), hasNATChain: hasNATChain(rs, s.family),
	}
	if w.hasNATChain {
		w.usesConntrack, w.maybeConntrack = conntrackUse(rs, s.family)
	}
	connection := w.marks.connection
	if s.shared.differing[connectionMarks] {
		connection = w.marks.unknown(variable{
			key: "connection mark " + side, kind: unknownBit,
			text: "the mark that chains at other hooks give the connection",
		})
	}
	out := w.evaluateHook(s.hook, false, []flow{{
		packets: all, mark: w.marks.packet, connection: connection,
	}})
	if s.hook == rules.Output {
		arriving, leaving := w.route(out)
		var received []flow
		// Packets for lo traverse postrouting before prerouting (LoopbackPassesPostrouting).
		if arriving = w.evaluatePostrouting(arriving, false); len(arriving) > 0 {
			w.arriving = arriving
			received = w.evaluateHook(rules.Prerouting, true, arriving)
		}
		out = append(received, w.evaluatePostrouting(leaving, true)...)
	}
	w.add(&w.ended, out...)
	return w
}

// hasNATChain reports whether the ruleset has a NAT chain for the family.
func hasNATChain(rs *rules.Ruleset, f rules.Family) bool { return natChain(rs, f).Chain != nil }

// NATDiffers reports whether only one of the rulesets has a NAT chain for the family. Decide does
// not compare the consequences: only on that side, the kernel translates known connections
// (nf_nat_unregister_fn in net/netfilter/nf_nat_core.c) and drops some ICMP redirects
// (NATDropsRedirects).
func NATDiffers(left, right *rules.Ruleset, f rules.Family) bool {
	return hasNATChain(left, f) != hasNATChain(right, f)
}

// natChain returns a NAT chain for the family, or the zero value.
func natChain(rs *rules.Ruleset, f rules.Family) rules.ChainRef {
	for i := range rs.Tables {
		t := &rs.Tables[i]
		if !appliesTo(t, f) {
			continue
		}
		for j := range t.Chains {
			if b := t.Chains[j].Base; b != nil && b.Type == rules.NAT {
				return rules.ChainRef{Table: t, Chain: &t.Chains[j]}
			}
		}
	}
	return rules.ChainRef{}
}

// lazySet sets an element of a map, and creates the map if it is nil. Maps are created lazily,
// because Explain does not need most of them.
func lazySet[K comparable, V any](to *map[K]V, key K, value V) {
	if *to == nil {
		*to = map[K]V{}
	}
	(*to)[key] = value
}

// evaluatePostrouting evaluates postrouting for packets that leave the host or are sent over lo,
// and returns the packets that are not dropped.
func (w *walk) evaluatePostrouting(in []flow, leavesHost bool) []flow {
	for _, c := range w.rs.BaseChains(rules.Postrouting) {
		w.meter.step()
		if appliesTo(c.Table, w.family) && !idle(c.Chain) && len(in) > 0 {
			w.leavesHost = leavesHost
			return w.evaluateHook(rules.Postrouting, false, in)
		}
	}
	return in
}

// evaluateHook evaluates all base chains of a hook (HooksRunByPriority), and returns the packets
// that are not dropped. loopbackArrival reports that the packets were sent over lo and arrive now.
func (w *walk) evaluateHook(h rules.Hook, loopbackArrival bool, in []flow) []flow {
	if w.single != nil {
		w.traversals = append(w.traversals, hookTraversal{
			hook: h, leavesHost: h == rules.Postrouting && w.leavesHost,
		})
	}
	// Between the chains before and after NAT, the kernel drops ICMP redirects and routes
	// translated packets.
	redirectsHandled := h == rules.Postrouting || loopbackArrival
	routed := h != rules.Output
	for _, c := range w.rs.BaseChains(h) {
		w.meter.step()
		if !appliesTo(c.Table, w.family) {
			continue
		}
		afterNAT := c.Chain.Base.Position() > translation
		if afterNAT && !redirectsHandled {
			in, redirectsHandled = w.dropRedirects(in), true
		}
		if afterNAT && !routed {
			in, routed = w.routeTranslated(in), true
		}
		p := w.positionOf(c, loopbackArrival)
		if h != rules.Postrouting && mayPrecedeConntrack(c) {
			in = w.evaluateTied(p, in)
			continue
		}
		in = w.evaluateBase(p, in)
		w.recordDropped(p)
	}
	if !redirectsHandled {
		in = w.dropRedirects(in)
	}
	if !routed {
		in = w.routeTranslated(in)
	}
	if w.single != nil {
		traversal := &w.traversals[len(w.traversals)-1]
		traversal.remaining, traversal.ended = in, slices.Clone(w.ended.list)
	}
	return in
}

// positionOf returns the position of a base chain. A chain that may precede conntrack is assumed to
// run after conntrack.
func (w *walk) positionOf(c rules.ChainRef, loopbackArrival bool) *chainPosition {
	base, position := c.Chain.Base, c.Chain.Base.Position()
	if base.Hook == rules.Postrouting {
		return &chainPosition{
			chain: c, loopbackArrival: loopbackArrival,
			atPostrouting: true, leavesHost: w.leavesHost,
			translated: true, sourceTranslated: position > sourceTranslation,
		}
	}
	return &chainPosition{
		chain: c, loopbackArrival: loopbackArrival,
		beforeConntrack: position < rules.ConntrackPriority ||
			position == rules.ConntrackPriority && base.Order < 0,
		translated:       loopbackArrival || position > translation,
		sourceTranslated: loopbackArrival,
	}
}

// mayPrecedeConntrack reports whether a chain has conntrack's priority, so that it is unknown
// whether the chain or conntrack was registered last, and therefore runs first
// (ConntrackPriorityTies).
func mayPrecedeConntrack(c rules.ChainRef) bool {
	base := c.Chain.Base
	return base.Position() == rules.ConntrackPriority && base.Order == 0 && !idle(c.Chain)
}

// evaluateTied evaluates a chain that may precede conntrack, once before conntrack and once after
// it, and returns the packets that continue with the next chain.
func (w *walk) evaluateTied(late *chainPosition, in []flow) []flow {
	first := w.variable(variable{
		key: "before conntrack " + w.side + late.key(), kind: unknownBit,
		text: fmt.Sprintf("whether chain %s runs before conntrack, which has the same priority",
			chainName(late.chain)),
	})
	before, after := w.divide(in, first)
	early := *late
	early.beforeConntrack, early.equalPriority = true, true
	var out flows
	w.add(&out, w.evaluateBase(&early, before)...)
	w.recordDropped(&early)
	w.add(&out, w.evaluateBase(late, after)...)
	return out.list
}

// dropRedirects drops the ICMP redirects about connections that NAT translates
// (NATDropsRedirects).
func (w *walk) dropRedirects(in []flow) []flow {
	if w.family != rules.IPv4 || !w.shared.hasNAT[w.family] {
		return in
	}
	redirects := w.natRedirects()
	if redirects == none {
		return in
	}
	var out flows
	for _, f := range in {
		if f.tracking == untracked {
			w.add(&out, f)
			continue
		}
		dropped, others := w.split(f, redirects)
		w.add(&out, others)
		if dropped.packets != none {
			dropped.dropped = true
			w.add(&w.ended, dropped)
			if w.single != nil {
				hook := &w.traversals[len(w.traversals)-1]
				hook.redirects = w.or(hook.redirects, dropped.packets)
			}
		}
	}
	return out.list
}

// translation is the priority of NAT at prerouting and output: NF_IP_PRI_NAT_DST in
// linux/netfilter_ipv4.h (NATRunsTogether).
const translation = -100

// sourceTranslation is the priority of NAT at postrouting: NF_IP_PRI_NAT_SRC in
// linux/netfilter_ipv4.h.
const sourceTranslation = 100

// idle reports whether a base chain has no effect.
func idle(c *rules.Chain) bool { return len(c.Rules) == 0 && !c.Base.Drop }

func chainName(c rules.ChainRef) string {
	return fmt.Sprintf("%s %s %s", c.Table.Family, c.Table.Name, c.Chain.Name)
}

// evaluateBase evaluates a base chain, and returns the packets that continue with the next chain.
func (w *walk) evaluateBase(p *chainPosition, in []flow) []flow {
	base := p.chain.Chain.Base
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
		s := w.summarize(call{p.chain.Chain, p, f.progress, f.mark, f.connection, 0}, p.chain)
		s.entered = w.or(s.entered, f.packets)
		w.addUpdates(&w.updates, &s.updates, f.packets)
		traversal.calls = append(traversal.calls, event{packets: f.packets, call: s})
		w.add(&w.ended, w.restrict(&s.ended, f.packets)...)
		accepted := w.restrict(&s.accepted, f.packets)
		for _, r := range w.restrict(&s.returned, f.packets) {
			if base.Drop {
				traversal.policy = w.or(traversal.policy, r.packets)
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

// enterNAT returns the packets that traverse a NAT chain, and adds the others to out
// (FirstNATMapping, skipsNAT).
func (w *walk) enterNAT(in []flow, out *flows, traversal *baseTraversal) []flow {
	// NAT is undecided for the connections of these packets. ICMP errors in state related are
	// translated like the connection to which they are related.
	undecided := w.or(w.is(state, number(rules.New)), w.minus(w.stateIs(rules.Related), w.isICMP))
	if resets := w.and(w.resets, undecided); resets != none {
		undecided = w.minus(undecided, w.and(resets, w.variable(variable{
			key: "NAT before the reset", kind: unknownBit,
			text: "whether NAT was decided for the connection before the reset",
		})))
	}
	skip := func(f flow, fact Fact) {
		w.add(out, f)
		if w.single != nil && f.packets != none {
			if traversal.skipped == nil {
				traversal.skipped = map[Fact]set{}
			}
			traversal.skipped[fact] = w.or(traversal.skipped[fact], f.packets)
		}
	}
	var entering []flow
	for _, f := range in {
		w.meter.step()
		switch {
		case f.tracking == untracked:
			skip(f, UntrackedSkipsNAT)
			continue
		case f.mapped && !traversal.position.atPostrouting, f.source != "": // already translated
			skip(f, NATDecidesOnce)
			continue
		}
		if w.shared.hasHelper {
			var following flow
			following, f = w.split(f, w.followsMaster())
			skip(following, ExpectationFollowsMaster)
		}
		f, without := w.split(f, w.withConntrack(traversal.position.chain.Chain))
		skip(without, NATNeedsConntrack)
		enters, passes := w.split(f, undecided)
		tracked, others := w.split(passes, w.connected)
		errors, decided := w.split(tracked, w.and(w.isICMP, w.stateIs(rules.Related)))
		skip(errors, ErrorsSkipNAT)
		skip(decided, NATDecidesOnce)
		skip(others, UntrackedSkipsNAT)
		entering = append(entering, enters)
	}
	return entering
}

// followsMaster returns the packets whose connection was expected by a conntrack helper, so that
// its NAT mapping follows its master connection (ExpectationFollowsMaster).
func (w *walk) followsMaster() set {
	related := w.minus(w.stateIs(rules.Related), w.isICMP)
	return w.and(related, w.variable(variable{
		key: "follows its master", kind: random,
		text: "the connection was expected by a conntrack helper and uses the NAT mapping of its " +
			"master connection",
	}))
}

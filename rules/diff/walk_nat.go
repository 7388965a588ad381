package diff

import "github.com/sluice-mesh/sluice/rules"

// hasNATChain reports whether the ruleset has a NAT chain for the family.
func hasNATChain(rs *rules.Ruleset, f rules.Family) bool { return natChain(rs, f).Chain != nil }

// NATDiffers reports whether only one of the rulesets has a NAT chain for the family. Decide does
// not compare the consequences: only on that side, the kernel translates packets of connections
// that it translated earlier (TranslationNeedsNATChain) and drops some ICMP redirects
// (NATDropsRedirects).
func NATDiffers(left, right *rules.Ruleset, f rules.Family) bool {
	return hasNATChain(left, f) != hasNATChain(right, f)
}

// natChain returns a NAT chain for the family, or the zero value.
func natChain(rs *rules.Ruleset, f rules.Family) rules.ChainRef {
	for t, c := range rs.AllChains() {
		if appliesTo(t, f) && c.Base != nil && c.Base.Type == rules.NAT {
			return rules.ChainRef{Table: t, Chain: c}
		}
	}
	return rules.ChainRef{}
}

// dropICMPRedirects drops the ICMP redirects about connections that NAT translates
// (NATDropsRedirects), and returns the other packets.
func (w *walk) dropICMPRedirects(in []flow) []flow {
	if w.family != rules.IPv4 || !w.shared.hasNAT[w.family] {
		return in
	}
	redirects := w.icmpRedirectsDroppedByNAT()
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
				hook.droppedICMPRedirects = w.or(hook.droppedICMPRedirects, dropped.packets)
			}
		}
	}
	return out.list
}

// enterNAT returns the packets that traverse a NAT chain, and adds the others to out
// (FirstNATMapping, natSkipFacts).
func (w *walk) enterNAT(in []flow, out *flows, traversal *baseTraversal) []flow {
	// withoutMapping contains the packets of connections whose mapping NAT has not determined. It
	// omits ICMP errors, because NAT translates them like the connection to which they are related.
	withoutMapping := w.or(w.is(state, number(rules.New)),
		w.minus(w.stateIs(rules.Related), w.isICMP))
	if resets := w.and(w.resets, withoutMapping); resets != none {
		withoutMapping = w.minus(withoutMapping, w.and(resets, w.variable(variable{
			key: "NAT before the reset", kind: unknownBit,
			text: "whether the NAT mapping of the connection was determined before the reset",
		})))
	}
	skip := func(f flow, fact Fact) {
		w.add(out, f)
		if w.single != nil && f.packets != none {
			storeIn(&traversal.skipped, fact, w.or(traversal.skipped[fact], f.packets))
		}
	}
	var entering []flow
	for _, f := range in {
		w.meter.step()
		switch {
		case f.tracking == untracked:
			skip(f, UntrackedSkipsNAT)
			continue
		case f.mapped && !traversal.position.atPostrouting: // the destination is determined
			skip(f, NATDecidesOnce)
			continue
		case f.snatAction != "": // the source is determined
			skip(f, NATDecidesOnce)
			continue
		case f.retracked:
			enters, skips := w.split(f, w.variable(
				retrackedVariable(f.retrackZone, "whether NAT is decided")))
			skip(skips, UntrackedSkipsNAT)
			entering = append(entering, enters)
			continue
		}
		if w.shared.hasHelper {
			var following flow
			following, f = w.split(f, w.followsMaster())
			skip(following, ExpectationFollowsMaster)
		}
		f, without := w.split(f, w.withConntrack(traversal.position.chain.Chain))
		skip(without, NATNeedsConntrack)
		enters, skips := w.split(f, withoutMapping)
		connected, invalid := w.split(skips, w.connected)
		icmpErrors, decided := w.split(connected, w.and(w.isICMP, w.stateIs(rules.Related)))
		skip(icmpErrors, ErrorsSkipNAT)
		skip(decided, NATDecidesOnce)
		skip(invalid, UntrackedSkipsNAT)
		entering = append(entering, enters)
	}
	return entering
}

// followsMaster returns the packets of connections that a conntrack helper expected, which use the
// NAT mapping of their master connection (ExpectationFollowsMaster).
func (w *walk) followsMaster() set {
	related := w.minus(w.stateIs(rules.Related), w.isICMP)
	return w.and(related, w.variable(variable{
		key: "follows its master", kind: random,
		text: "whether the connection was expected by a conntrack helper and uses the NAT mapping " +
			"of its master connection",
	}))
}

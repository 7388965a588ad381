package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A visit is that of packets to a run of rules.
type visit struct {
	*walk
	chain rules.ChainRef
	base  *rules.Base
	run   run
	depth int // of jumps
	// next are the packets that go on behind the run, returned those that leave the chain for where it was called from.
	next, returned *flows
}

// flow applies the rules of the run to some packets.
func (v *visit) flow(f flow) {
	hit, rest := v.split(f, v.guard(f))
	v.add(v.next, rest)
	if hit.packets == none {
		return
	}
	r := &v.chain.Chain.Rules[v.run.first]
	if text := unknownMatch(r); text != "" {
		v.undecided(text, hit)
		return
	}
	v.act(r.Actions, []flow{hit})
}

// guard returns the packets of a flow that a rule of the run matches.
func (v *visit) guard(f flow) set {
	seen := v.view(&f.progress)
	key := guarded{v.chain.Chain, v.run.first, seen}
	packets, known := v.guards[key]
	if !known {
		sets := make([]set, 0, v.run.behind-v.run.first)
		for i := v.run.first; i < v.run.behind; i++ {
			sets = append(sets, v.static(&v.chain.Chain.Rules[i], seen))
		}
		packets = v.unite(sets)
		v.guards[key] = packets
	}
	// A run with a match of marks is a single rule, and what it matches depends on what was done to the packets.
	for _, m := range v.chain.Chain.Rules[v.run.first].Matches {
		if m, ok := m.(rules.MatchMark); ok {
			packets = v.and(packets, v.marked(m, f))
		}
	}
	return packets
}

// static returns the packets that fulfil all matches of the rule but those of marks.
func (v *visit) static(r *rules.Rule, seen view) set {
	packets := all
	for i := range r.Matches {
		switch r.Matches[i].(type) {
		case rules.MatchMark, rules.Unknown:
		default:
			packets = v.and(packets, v.matches.static(&r.Matches[i], seen))
		}
	}
	return packets
}

func (v *visit) marked(m rules.MatchMark, f flow) set {
	if !m.Conntrack {
		return v.markMatches(f.mark, m)
	}
	return v.and(v.connection(), v.markMatches(f.connection, m))
}

// connection returns the packets of which conntrack has an entry here.
func (v *visit) connection() set {
	if v.before {
		return none
	}
	return v.connected
}

func unknownMatch(r *rules.Rule) string {
	text := ""
	for _, m := range r.Matches {
		if u, ok := m.(rules.Unknown); ok {
			text = u.Text
		}
	}
	return text
}

// undecided ends the way of packets for which the model has no word.
func (v *visit) undecided(text string, packets ...flow) {
	step := rules.Step{Table: v.chain.Table, Chain: v.chain.Chain, Index: v.run.first, Base: v.base}
	u := unknown{text, step}
	i := slices.Index(v.unknown, u)
	if i < 0 {
		i = len(v.unknown)
		v.unknown = append(v.unknown, u)
	}
	for _, f := range packets {
		f.undecided = i + 1
		v.add(&v.ended, f)
	}
}

// act carries out the actions of a rule on the packets that it matched.
func (v *visit) act(actions []rules.Action, packets []flow) {
	for _, action := range actions {
		if len(packets) == 0 {
			return
		}
		switch a := action.(type) {
		case rules.Verdict:
			v.verdict(a, packets)
			return
		case rules.Jump:
			target := v.chain.Table.Chain(a.Chain)
			if target == nil || v.depth == len(v.chain.Table.Chains) {
				v.undecided(a.String(), packets...)
				return
			}
			packets = v.walk.chain(rules.ChainRef{Table: v.chain.Table, Chain: target}, v.base, packets, v.depth+1)
			if a.Goto {
				v.add(v.returned, packets...)
				return
			}
		case rules.RedirectTo:
			v.mapTo(packets, func(p *progress) { p.redirect = a.Port })
			return
		case rules.DNATPort:
			v.mapTo(packets, func(p *progress) { p.dnat = a.Port })
			return
		case rules.TProxyDrop:
			with, without := v.divide(packets, v.is(listener, value{}))
			v.verdict(rules.Drop, without)
			v.accept(with, func(p *progress) { p.tproxy, p.mark = a.Port, p.mark.set(a.Value, a.Mask) })
			return
		case rules.Unknown:
			v.undecided(a.Text, packets...)
			return
		default:
			packets = v.change(a, packets)
		}
	}
	v.add(v.next, packets...)
}

func (v *visit) verdict(verdict rules.Verdict, packets []flow) {
	switch verdict {
	case rules.Accept:
		v.add(&v.accepted, packets...)
	case rules.Return:
		v.add(v.returned, packets...)
	case rules.Drop:
		for _, f := range packets {
			f.dropped = true
			v.add(&v.ended, f)
		}
	}
}

func (v *visit) accept(packets []flow, change func(*progress)) {
	for _, f := range packets {
		change(&f.progress)
		v.add(&v.accepted, f)
	}
}

// mapTo accepts packets, and gives them another destination if they have none by now.
func (v *visit) mapTo(packets []flow, change func(*progress)) {
	v.accept(packets, func(p *progress) {
		if !p.mapped {
			p.mapped = true
			change(p)
		}
	})
}

// divide splits each of the flows.
func (v *visit) divide(packets []flow, by set) (in, out []flow) {
	for _, f := range packets {
		a, b := v.split(f, by)
		if a.packets != none {
			in = append(in, a)
		}
		if b.packets != none {
			out = append(out, b)
		}
	}
	return in, out
}

// change carries out an action after which the rule goes on. It returns the packets with which it does: for the others, it ends and
// the next is tried.
func (v *visit) change(action rules.Action, packets []flow) []flow {
	apply := func(packets []flow, change func(*progress)) []flow {
		var changed flows
		for _, f := range packets {
			change(&f.progress)
			v.add(&changed, f)
		}
		return changed.list
	}
	switch a := action.(type) {
	case rules.TProxy:
		with, without := v.divide(packets, v.is(listener, value{}))
		v.add(v.next, without...)
		return apply(with, func(p *progress) { p.tproxy = a.Port })
	case rules.SetMark:
		return apply(packets, func(p *progress) { p.mark = p.mark.set(a.Value, a.Mask) })
	case rules.SaveMark:
		with, without := v.divide(packets, v.connection())
		return append(apply(with, func(p *progress) { p.connection = p.mark }), without...)
	case rules.RestoreMark:
		with, without := v.divide(packets, v.connection())
		v.add(v.next, without...)
		return apply(with, func(p *progress) { p.mark = p.connection })
	case rules.SetZone:
		return apply(packets, func(p *progress) {
			if v.before && !p.zoned {
				p.zone, p.zoned = a.Zone, true
			}
		})
	}
	return packets // a counter
}

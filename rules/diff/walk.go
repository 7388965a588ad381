package diff

import "github.com/sluice-mesh/sluice/rules"

// A walk leads all packets of a space through a ruleset at once, on the ways on which [rules.Ruleset.Explain] leads one.
type walk struct {
	*space
	rs      *rules.Ruleset
	matches matcher
	// runs are those of each chain, harmless the chains that change no packet that comes back, guards what each run matches.
	runs     map[*rules.Chain][]run
	harmless map[*rules.Chain]bool
	guards   map[guarded]set

	// chain is the base chain that runs, second whether the packets are on their way back from lo, before whether conntrack has not
	// seen them yet.
	second, before bool
	// accepted are those that the base chain accepted, ended those of which the way is over.
	accepted, ended flows
	// unknown is what undecided packets have met, and reached the chains to which any packet came.
	unknown []unknown
	reached map[*rules.Chain]bool
}

// An unknown is a place where the model has no word for what a rule does.
type unknown struct {
	text string
	step rules.Step
}

// walkAll returns the fates of all possible packets of the space.
func walkAll(s *space, rs *rules.Ruleset) *walk {
	w := &walk{
		space: s, rs: rs, matches: matcher{s, map[seen]set{}},
		runs: map[*rules.Chain][]run{}, harmless: map[*rules.Chain]bool{}, guards: map[guarded]set{}, reached: map[*rules.Chain]bool{},
	}
	out := w.hook(s.hook, []flow{{s.possible, progress{mark: packetMark, connection: connMark}}})
	if s.hook == rules.Output {
		var arriving []flow
		arriving, out = w.route(out)
		w.second = true
		out = append(out, w.hook(rules.Prerouting, arriving)...)
	}
	w.add(&w.ended, out...)
	return w
}

// hook leads packets through all base chains of a hook, and returns those that are not dropped.
func (w *walk) hook(h rules.Hook, in []flow) []flow {
	for _, c := range w.rs.BaseChains(h) {
		if c.Table.Family == rules.Inet || c.Table.Family == w.family {
			in = w.base(c, in)
		}
	}
	return in
}

// base leads packets through a base chain, and returns those that go on to the next.
func (w *walk) base(c rules.ChainRef, in []flow) []flow {
	base := c.Chain.Base
	w.before = base.Position() < rules.ConntrackPriority && !w.second
	w.accepted = flows{}
	if base.Type == rules.NAT {
		in = w.pastNAT(in)
	}
	for i := range in {
		in[i].entry = in[i].mark
	}
	out := w.chain(c, base, in, 0)
	if base.Drop {
		for i := range out {
			out[i].dropped = true
		}
		w.add(&w.ended, out...)
		out = nil
	}
	w.add(&w.accepted, out...)
	return w.rerouted(base, w.accepted.list)
}

// pastNAT lets those packets pass by a NAT chain of which the mapping is decided. It returns the others.
func (w *walk) pastNAT(in []flow) []flow {
	first := w.or(w.stateIs(rules.New), w.stateIs(rules.Related))
	var entering []flow
	for _, f := range in {
		if f.mapped {
			w.add(&w.accepted, f)
			continue
		}
		enters, passes := w.split(f, first)
		w.add(&w.accepted, passes)
		entering = append(entering, enters)
	}
	return entering
}

// rerouted decides, at the end of a chain of type route, which packets of a changed mark are led to lo.
func (w *walk) rerouted(base *rules.Base, in []flow) []flow {
	var out flows
	for _, f := range in {
		if base.Type == rules.Route && f.mark != f.entry {
			same, changed := w.split(f, w.sameMark(f.mark, f.entry))
			local := none
			for _, m := range localMarks(w.rs.Routing, w.family) {
				local = w.or(local, w.markMatches(f.mark, rules.MatchMark{Value: m, Mask: ^uint32(0)}))
			}
			to, away := w.split(changed, local)
			to.toLoopback, away.toLoopback = true, false
			to.entry, away.entry = markValue{}, markValue{}
			w.add(&out, to, away)
			f = same
		}
		f.entry = markValue{}
		w.add(&out, f)
	}
	return out.list
}

// route divides the packets that have left the output hook into those that arrive by lo and those that are gone.
func (w *walk) route(in []flow) (arriving, gone []flow) {
	var back flows
	arrive := func(f flow, rerouted bool) {
		// On lo the packet keeps its conntrack entry: neither zone nor mapping can change.
		f.tproxy, f.mapped, f.zoned, f.toLoopback, f.rerouted = 0, true, true, false, rerouted
		w.add(&back, f)
	}
	for _, f := range in {
		if f.redirect != 0 {
			arrive(f, false)
			continue
		}
		here, away := w.split(f, w.overLoopback)
		arrive(here, false)
		if f.toLoopback {
			arrive(away, true)
		} else {
			gone = append(gone, away)
		}
	}
	return back.list, gone
}

// chain leads packets through a chain and returns those that come out at its end.
func (w *walk) chain(c rules.ChainRef, base *rules.Base, in []flow, depth int) []flow {
	var present, returned flows
	w.add(&present, in...)
	if len(present.list) > 0 {
		w.reached[c.Chain] = true
	}
	for _, r := range w.runsOf(c) {
		if len(present.list) == 0 {
			break
		}
		var next flows
		v := visit{walk: w, chain: c, base: base, run: r, depth: depth, next: &next, returned: &returned}
		for _, f := range present.list {
			v.flow(f)
		}
		present = next
	}
	w.add(&returned, present.list...)
	return returned.list
}

// view is what rules see of the packets of a flow.
func (w *walk) view(p *progress) view {
	return view{before: w.before, second: w.second, redirect: p.redirect, dnat: p.dnat}
}

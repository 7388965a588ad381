package diff

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// A progress is what the rules have done to some packets so far, but for marks: all that later
// rules can depend on, and the outcome at the end. Packets of equal progress are alike from there
// on.
type progress struct {
	target   target
	tproxy   tproxyTarget
	zone     uint16
	tracking tracking
	// helper is conntrack's helper of a connection that the packet begins.
	helper string
	// source names what has given the packets another source, which is not known; empty if nothing
	// has.
	source string
	// mapped reports that NAT is decided.
	mapped bool
	// toLoopback reports that a changed mark has led packets that were to leave back to this host,
	// and rerouted that they have arrived.
	toLoopback, rerouted bool
	// leavesLoopback reports that packets that were to leave by lo are routed again by another
	// mark, which does not lead to this host.
	leavesLoopback bool
	dropped        bool
	// rejected is by what the sender of dropped packets is answered.
	rejected string
	// undecided is the number of what the model has no word for, counted from 1 in the walk's list.
	undecided int
}

// A target is where NAT sends a connection. The zero value is its own destination.
type target struct {
	kind targetKind
	// hook is where the rule was met.
	hook rules.Hook
	// addr to lastAddr is the range from which the kernel takes an address; lastAddr is invalid for
	// a single address.
	addr, lastAddr netip.Addr
	// port to last is the range from which the kernel takes a port; port 0 is the connection's own,
	// last 0 means a single port.
	port, last uint16
}

type targetKind uint8

const (
	noTarget targetKind = iota
	redirectTarget
	portTarget // another port of the same address
	addrTarget
)

// tproxyTarget is the transparent listener that has a packet; the zero value for none.
type tproxyTarget struct {
	taken bool
	addr  netip.Addr
	port  uint16 // 0 for the packet's own
}

// tracking is what the rules have asked of conntrack before it sees the packet.
type tracking uint8

const (
	tracked tracking = iota
	// template: a rule of xtables has chosen a zone. Until conntrack sees the packet, it has a new
	// connection that stands for the one to come.
	template
	// cpuTemplate: a rule of nftables has chosen a zone. The template is one of the CPU
	// (TemplateIsShared).
	cpuTemplate
	untracked
)

// isTemplate reports whether a zone was chosen.
func (t tracking) isTemplate() bool { return t == template || t == cpuTemplate }

// A flow is packets that have come to a place of the ruleset alike.
type flow struct {
	packets set
	progress
	// mark and connection are the marks of the packets and of their connections.
	mark, connection *markBits
}

// flows are disjoint sets of packets, one for each progress.
type flows struct {
	list  []flow
	index map[progress]int
}

// flowSize is how many bytes a flow takes in a list.
const flowSize = 256

// manyFlows is where a map is faster than a look at each.
const manyFlows = 8

// add unites the packets with the packets of equal progress.
func (w *walk) add(to *flows, from ...flow) {
	for _, f := range from {
		if f.packets == none {
			continue
		}
		w.meter.work()
		i := to.find(f.progress)
		if i < 0 {
			w.meter.take(flowSize)
			to.list = append(to.list, f)
			if to.index != nil {
				to.index[f.progress] = len(to.list) - 1
			}
			continue
		}
		other := &to.list[i]
		other.mark = w.marks.merge(f.packets, f.mark, other.packets, other.mark)
		other.connection = w.marks.merge(f.packets, f.connection, other.packets, other.connection)
		other.packets = w.or(other.packets, f.packets)
	}
}

func (f *flows) find(p progress) int {
	if f.index == nil && len(f.list) >= manyFlows {
		f.index = make(map[progress]int, 2*len(f.list))
		for i := range f.list {
			f.index[f.list[i].progress] = i
		}
	}
	if f.index != nil {
		if i, ok := f.index[p]; ok {
			return i
		}
		return -1
	}
	for i := range f.list {
		if f.list[i].progress == p {
			return i
		}
	}
	return -1
}

// split divides a flow into what is in the set and what is not.
func (s *space) split(f flow, by set) (in, out flow) {
	in, out = f, f
	in.packets = s.and(f.packets, by)
	out.packets = s.minus(f.packets, by)
	return in, out
}

// divide splits each of the flows, and leaves out what is empty.
func (s *space) divide(packets []flow, by set) (in, out []flow) {
	for _, f := range packets {
		s.meter.work()
		a, b := s.split(f, by)
		if a.packets != none {
			in = append(in, a)
		}
		if b.packets != none {
			out = append(out, b)
		}
	}
	return in, out
}

// outcome is the part of the progress that matters when a packet's way is over (see
// [rules.Fate.Same]).
func (p progress) outcome() progress {
	switch {
	case p.undecided != 0:
		return progress{undecided: p.undecided}
	case p.dropped:
		return progress{dropped: true, rejected: p.rejected}
	}
	if p.tracking.isTemplate() {
		p.tracking = tracked // conntrack has replaced it
	}
	p.mapped, p.toLoopback, p.leavesLoopback, p.source = false, false, false, ""
	return p
}

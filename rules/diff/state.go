package diff

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// A progress is the effect of the rules on packets so far, except marks. Later rules, and finally
// the outcome, depend only on the packet, its marks and its progress. Packets with equal progress
// are evaluated together.
type progress struct {
	visibleProgress
	// precedesNAT reports that tproxy assigned a socket to later packets of a connection before NAT
	// translated their destination (TProxyPrefersEstablished).
	precedesNAT bool
	zone        uint16
	// helper is the conntrack helper of a connection that the packet begins.
	helper string
	// headers is a digest of the changes of header fields that the model does not represent, in
	// order; empty if there are none.
	headers string
	// mapped reports that the NAT mapping is determined, so that later NAT chains do not change it.
	mapped bool
	// toLoopback reports that a changed mark routed outgoing packets back to this host. rerouted
	// reports that such packets have arrived.
	toLoopback, rerouted bool
	// leftLoopback reports that packets with leavesLoopback have left the host.
	leftLoopback bool
	dropped      bool
	// rejected is the answer to the sender of dropped packets; empty if there is none.
	rejected string
	// undecided is not 0 if the packets reached an unsupported expression: the position of the
	// expression in walk.unsupported, counted from 1.
	undecided int
}

// A visibleProgress is the part of a progress on which matches depend.
type visibleProgress struct {
	target   target
	tproxy   tproxyTarget
	tracking tracking
	// snatAction names the action that changed the source of the packets; empty if no action did.
	snatAction string
	// snat is the new source of the packets; it is invalid if the new source is unknown.
	snat netip.Addr
	// retracked reports that the packets were invalid at output and arrive on lo in another
	// conntrack zone, retrackZone. Conntrack may find or begin a connection there
	// (InvalidIsTrackedAgain).
	retracked   bool
	retrackZone uint16
	// leavesLoopback reports that a changed mark routed packets from lo to another interface.
	leavesLoopback bool
}

// A target is the destination that NAT assigns to a connection. The zero value is the original
// destination.
type target struct {
	kind targetKind
	// hook is the hook of the rule that translates.
	hook rules.Hook
	// addr to lastAddr is the range from which the kernel selects an address; lastAddr is invalid
	// for a single address.
	addr, lastAddr netip.Addr
	// port to lastPort is the range from which the kernel selects a port; port 0 is the original
	// port, lastPort 0 means a single port.
	port, lastPort uint16
}

type targetKind uint8

const (
	noTarget       targetKind = iota
	redirectTarget            // an address of this host, selected by the kernel
	portTarget                // another port of the same address
	addrTarget                // another address
)

// tproxyTarget is the transparent listener that gets a packet. The zero value means none.
type tproxyTarget struct {
	assigned bool
	addr     netip.Addr
	port     uint16 // 0 for the destination port of the packet
}

// tracking is the effect of the rules before conntrack on the tracking of a packet.
type tracking uint8

const (
	tracked tracking = iota
	// template: a rule of xtables assigned a zone. Until conntrack runs, the packet has a template
	// of a new connection.
	template
	// cpuTemplate: a rule of nftables assigned a zone. All packets on a CPU share its template
	// (TemplateIsShared).
	cpuTemplate
	untracked
)

// isTemplate reports whether the packet has a template, because a rule assigned a zone.
func (t tracking) isTemplate() bool { return t == template || t == cpuTemplate }

// A flow is a set of packets with equal progress at a position of the ruleset.
type flow struct {
	packets set
	progress
	// mark and connectionMark are the marks of the packets and of their connections.
	mark, connectionMark *markBits
}

// flows are disjoint sets of packets, one for each progress.
type flows struct {
	list  []flow
	index map[progress]int
}

// flowSize is the size in bytes of a flow in a list.
const flowSize = 256

// indexThreshold is the number of flows from which on a map is faster than a linear search.
const indexThreshold = 8

// add adds flows. It unites flows of equal progress.
func (w *walk) add(to *flows, from ...flow) {
	for _, f := range from {
		if f.packets == none {
			continue
		}
		w.meter.step()
		i := to.find(f.progress)
		if i < 0 {
			w.meter.alloc(flowSize)
			to.list = append(to.list, f)
			if to.index != nil {
				to.index[f.progress] = len(to.list) - 1
			}
			continue
		}
		other := &to.list[i]
		other.mark = w.marks.merge(f.packets, f.mark, other.packets, other.mark)
		other.connectionMark = w.marks.merge(f.packets, f.connectionMark, other.packets, other.connectionMark)
		other.packets = w.or(other.packets, f.packets)
	}
}

// find returns the index of the flow with a progress, or -1.
func (f *flows) find(p progress) int {
	if f.index == nil && len(f.list) >= indexThreshold {
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

// split divides a flow into the packets in the set by and the others.
func (s *space) split(f flow, by set) (in, out flow) {
	in, out = f, f
	in.packets = s.and(f.packets, by)
	out.packets = s.minus(f.packets, by)
	return in, out
}

// divide splits each of the flows, and omits empty results.
func (s *space) divide(packets []flow, by set) (in, out []flow) {
	for _, f := range packets {
		s.meter.step()
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

// final returns the part of the progress that matters at the end (see [rules.Outcome.Same]).
func (p progress) final() progress {
	switch {
	case p.undecided != 0:
		return progress{undecided: p.undecided}
	case p.dropped:
		return progress{dropped: true, rejected: p.rejected}
	}
	if p.tracking.isTemplate() {
		p.tracking = tracked // conntrack has replaced it
	}
	p.mapped, p.toLoopback, p.leavesLoopback = false, false, false
	p.retracked, p.retrackZone = false, 0
	if p.tracking == untracked {
		p.precedesNAT = false // NAT does not translate the packets
	}
	return p
}

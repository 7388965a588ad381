package trace

import (
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// A Packet contains the events of one packet, in order. If a session of nf_tables selected the
// packet, the first event is of the session's table, at the hook where the packet enters. A packet
// over lo has the events of both output and prerouting.
type Packet struct {
	// Time is when the first event was read.
	Time   time.Time
	Events []Event
	last   time.Time // when the last event was read
	ids    []uint32  // the kernel's ids of the packet
}

// Header returns the header of the packet at the first chain, or nil if the event with this header
// was lost.
func (p *Packet) Header() *Header { return p.Events[0].Header }

// Selected reports whether a session of nf_tables selected the packet. It returns false if only a
// rule of another program sets nftrace for the packet, or if the events of the selection were lost.
func (p *Packet) Selected() bool {
	return slices.ContainsFunc(p.Events, func(e Event) bool { return e.isSelection() })
}

// HasState reports whether an event contains the state of the connection. Events of nf_tables
// contain the state from Linux 6.16 on, and events of iptables-legacy if the kernel logs it.
func (p *Packet) HasState() bool {
	return slices.ContainsFunc(p.Events, func(e Event) bool { return e.HasState })
}

// continues reports whether the event is the first event of the packet after lo, where the kernel
// assigns a second id. Before lo, the packet has one id, and its first event has no input
// interface.
func (p *Packet) continues(e Event, loopback uint32) bool {
	h := p.Header()
	return e.In == loopback && h != nil && p.Events[0].In == 0 && len(p.ids) == 1 &&
		e.Header.Protocol == h.Protocol && e.Header.Source == h.Source
}

// contains reports whether the header of the event shows that the event belongs to the packet. It
// is used for events of iptables-legacy, which have no id. Until postrouting, NAT may change the
// destination, but not the source.
func (p *Packet) contains(e Event) bool {
	h := p.Header()
	if h == nil || h.Protocol != e.Header.Protocol || h.Source != e.Header.Source ||
		h.Sequence != e.Header.Sequence || slices.ContainsFunc(p.Events, e.repeats) {
		return false
	}
	switch {
	case h.Protocol == rules.TCP: // the sequence numbers are equal
		return true
	case e.Original == h.Destination: // the destination before NAT
		return true
	case p.Events[len(p.Events)-1].Table == "nat": // this rule may have changed the destination
		return true
	}
	return slices.ContainsFunc(p.Events, func(earlier Event) bool {
		return earlier.Header != nil && earlier.Header.Destination == e.Header.Destination
	})
}

// repeats reports whether the event repeats an earlier event at the same rule of a built-in chain,
// which a packet traverses once in each table. If so, the two events belong to different packets
// with the same header.
func (e *Event) repeats(earlier Event) bool {
	return e.isLegacy() && e.Number == earlier.Number && e.Table == earlier.Table &&
		e.Chain == earlier.Chain && e.Hook == earlier.Hook && e.In == earlier.In &&
		slices.Contains(xt.BuiltInChains[:], e.Chain)
}

// A Collector groups events by packet. The zero value is ready to use. A Collector is not safe for
// concurrent use.
type Collector struct {
	// Loopback is the index of lo. 0 means 1.
	Loopback uint32
	packets  []*Packet
}

// Add adds events that were read at the time now.
func (c *Collector) Add(now time.Time, events ...Event) {
	for _, e := range events {
		p := c.findOrAdd(now, e)
		p.last = now
		if e.isSelection() && len(p.Events) > 0 && !p.Events[0].isSelection() {
			// An event of iptables-legacy was read first.
			p.Events = slices.Insert(p.Events, 0, e)
			continue
		}
		p.Events = append(p.Events, e)
	}
}

// findOrAdd returns the packet of the event. It adds the packet if it is new, and the event's id to
// the ids of the packet.
func (c *Collector) findOrAdd(now time.Time, e Event) *Packet {
	// Search backward: the kernel may reuse an id.
	for _, p := range slices.Backward(c.packets) {
		if !e.isLegacy() && slices.Contains(p.ids, e.ID) {
			return p
		}
		// Events of iptables-legacy have no id. Compare the headers if the event, or each event of
		// the packet, is from iptables-legacy.
		mayCompare := e.isLegacy() || e.Header != nil && len(p.ids) == 0
		if mayCompare && p.contains(e) {
			if !e.isLegacy() {
				p.ids = append(p.ids, e.ID)
			}
			return p
		}
	}
	if e.Header != nil && !e.isLegacy() {
		for _, p := range slices.Backward(c.packets) {
			if p.continues(e, max(c.Loopback, 1)) {
				p.ids = append(p.ids, e.ID)
				return p
			}
		}
	}
	p := &Packet{Time: now}
	if !e.isLegacy() {
		p.ids = []uint32{e.ID}
	}
	c.packets = append(c.packets, p)
	return p
}

// Take removes and returns the packets whose last event was read before the given time. All events
// of a packet arrive within microseconds, unless a rule queues the packet to a program.
func (c *Collector) Take(before time.Time) []Packet {
	var done []Packet
	c.packets = slices.DeleteFunc(c.packets, func(p *Packet) bool {
		if p.last.Before(before) {
			done = append(done, *p)
			return true
		}
		return false
	})
	return done
}

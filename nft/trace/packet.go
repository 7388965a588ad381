package trace

import (
	"slices"
	"time"
)

// A Packet contains the events of one packet, in order. A packet over lo has the events of output
// and prerouting.
type Packet struct {
	// Time is the time at which the first event was read.
	Time   time.Time
	Events []Event
	last   time.Time
	ids    []uint32
}

// Header returns the header of the packet at the first chain, or nil if that event was lost.
func (p *Packet) Header() *Header { return p.Events[0].Header }

// continues reports whether the event is the first event of the packet after lo, where the kernel
// assigns another id.
func (p *Packet) continues(e Event, loopback uint32) bool {
	h := p.Header()
	return e.In == loopback && h != nil && p.Events[0].In == 0 && len(p.ids) == 1 &&
		e.Header.Protocol == h.Protocol && e.Header.Source == h.Source
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
		p := c.packet(now, e)
		p.Events, p.last = append(p.Events, e), now
	}
}

// packet returns the packet of the event, which may be new.
func (c *Collector) packet(now time.Time, e Event) *Packet {
	// Search backward: the kernel may reuse an id.
	for _, p := range slices.Backward(c.packets) {
		if slices.Contains(p.ids, e.ID) {
			return p
		}
	}
	if e.Header != nil {
		for _, p := range slices.Backward(c.packets) {
			if p.continues(e, max(c.Loopback, 1)) {
				p.ids = append(p.ids, e.ID)
				return p
			}
		}
	}
	p := &Packet{Time: now, ids: []uint32{e.ID}}
	c.packets = append(c.packets, p)
	return p
}

// Take removes and returns the packets whose last event was read before the given time. All events
// of a packet arrive within microseconds unless it is queued to a program.
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

// Waiting reports whether the collector contains packets.
func (c *Collector) Waiting() bool { return len(c.packets) > 0 }

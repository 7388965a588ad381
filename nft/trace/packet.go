package trace

import (
	"slices"
	"time"
)

// A Packet is the events of one packet, in order. A packet that passes lo has those of output and
// prerouting.
type Packet struct {
	// Time is when the first event was read.
	Time   time.Time
	Events []Event
	last   time.Time
	ids    []uint32
}

// Header returns the packet as it entered the first chain; nil if that event was lost.
func (p *Packet) Header() *Header { return p.Events[0].Header }

// continues reports whether the event begins the passage of the packet from lo, where the kernel
// gives it another id.
func (p *Packet) continues(e Event, loopback uint32) bool {
	h := p.Header()
	return e.In == loopback && h != nil && p.Events[0].In == 0 && len(p.ids) == 1 && e.Header.Protocol == h.Protocol && e.Header.Source == h.Source
}

// A Collector joins events to packets. The zero value is ready to use, by one goroutine.
type Collector struct {
	// Loopback is the index of lo; 1 if 0.
	Loopback uint32
	packets  []*Packet
}

// Add adds events that were read at the time.
func (c *Collector) Add(now time.Time, events ...Event) {
	for _, e := range events {
		p := c.of(now, e)
		p.Events, p.last = append(p.Events, e), now
	}
}

// of returns the packet of the event.
func (c *Collector) of(now time.Time, e Event) *Packet {
	// From the last one: an id may come again.
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

// Take returns and forgets the packets of which the last event was read before the time. All events
// of a packet come within microseconds, unless it is queued to a program.
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

// Waiting reports whether packets have not been taken.
func (c *Collector) Waiting() bool { return len(c.packets) > 0 }

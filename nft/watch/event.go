package watch

import "github.com/sluice-mesh/sluice/nft/netns"

// An Event says that something may have changed in a namespace. It stands for all that was heard
// there since the one before.
type Event struct {
	// Lost says that messages were lost, so that whatever there is must be looked at: all
	// namespaces, rules and routes. The other fields are empty then.
	Lost bool
	// NS is the namespace.
	NS netns.ID
	// Rules says that the nftables rules have changed, Routes that policy routes or what they need
	// may have.
	Rules, Routes bool
	// Count is how many changes the event stands for.
	Count int
	// Generation is the number of the ruleset after the last change of rules; it wraps around.
	// Rules that were read at this generation have no news in them: so is told apart what the
	// hearer has done itself.
	Generation uint32
	// PID is the thread that made the last change of rules, as the initial PID namespace numbers
	// it, and Process its name, which it may have given itself. Both are empty if the kernel does
	// not say, as before Linux 4.12.
	PID     uint32
	Process string
}

// pending is what was heard and not told yet.
type pending struct {
	lost   bool
	events map[netns.ID]*Event
	order  []netns.ID
}

// of returns the event of a namespace that is not told yet.
func (p *pending) of(ns netns.ID) *Event {
	e := p.events[ns]
	if e == nil {
		if p.events == nil {
			p.events = map[netns.ID]*Event{}
		}
		e = &Event{NS: ns}
		p.events[ns] = e
		p.order = append(p.order, ns)
	}
	e.Count++
	return e
}

// take removes what is to be told next. After a loss that is all.
func (p *pending) take() (Event, bool) {
	if p.lost {
		*p = pending{}
		return Event{Lost: true}, true
	}
	if len(p.order) == 0 {
		return Event{}, false
	}
	e := *p.events[p.order[0]]
	delete(p.events, p.order[0])
	if p.order = p.order[1:]; len(p.order) == 0 {
		*p = pending{} // a burst shall not keep its memory
	}
	return e, true
}

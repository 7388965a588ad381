package watch

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// An Event reports that rules or routes of a namespace may have changed. It represents all changes
// since the previous event about the namespace.
type Event struct {
	// Lost reports whether messages were lost. If so, the rules and routes of every namespace may
	// have changed, and the other fields are empty.
	Lost bool
	// NS is the namespace.
	NS netns.ID
	// Rules reports whether the nftables rules have changed. Routes reports whether policy routes,
	// or the addresses and the link state that they depend on, may have changed.
	Rules, Routes bool
	// Count is the number of changes that the event represents.
	Count int
	// Generation is the generation id of the ruleset after the last change of rules. It wraps
	// around. Rules that were read at this generation already contain the change. A caller can
	// ignore events with the generation of its own change.
	Generation uint32
	// PID is the id, in the initial PID namespace, of the thread that made the last change of
	// rules. Process is the name of the thread (comm), which a process can choose. PID is 0 and
	// Process is empty if the kernel does not report them (before Linux 4.12).
	PID     uint32
	Process string
}

// pending contains the events that Next has not returned yet.
type pending struct {
	lost   bool
	events map[netns.ID]*Event
	order  []netns.ID
}

// add counts a change in a namespace, and returns the pending event about the namespace.
func (p *pending) add(ns netns.ID) *Event {
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

// pop removes and returns the oldest event. After a loss it removes all events and returns an event
// with Lost set.
func (p *pending) pop() (Event, bool) {
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
		*p = pending{} // release the memory of a burst
	}
	return e, true
}

// native is the byte order of netlink.
var native = binary.NativeEndian

// attributes returns the attributes after a header of 4 bytes, which is struct nfgenmsg or struct
// rtgenmsg with its padding.
func attributes(body []byte) nlmsg.Attributes { return nlmsg.Attributes(body[min(4, len(body)):]) }

// readGeneration decodes a message of type [newGeneration].
func (e *Event) readGeneration(body []byte) {
	a := attributes(body)
	e.Generation, e.PID = a.Number(unix.NFTA_GEN_ID), a.Number(unix.NFTA_GEN_PROC_PID)
	e.Process = a.Text(unix.NFTA_GEN_PROC_NAME)
}

// nsid returns the namespace id in the attributes of a message, and reports whether there is one.
func nsid(body []byte) (int32, bool) {
	id, ok := attributes(body).HostNumber(unix.NETNSA_NSID)
	return int32(id), ok
}

// ownID represents the watcher's own namespace: the kernel adds no id to messages from there. Valid
// ids are not negative.
const ownID int32 = -1

// origin returns the id of the namespace that a message comes from. It reads the id from the
// control messages that recvmsg(2) has returned.
func origin(control []byte) int32 {
	for len(control) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return ownID
		}
		if h.Level == unix.SOL_NETLINK && h.Type == unix.NETLINK_LISTEN_ALL_NSID && len(data) >= 4 {
			return int32(native.Uint32(data))
		}
		control = rest
	}
	return ownID
}

package livetrace

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// A Connection identifies a TCP or UDP connection by the addresses and ports of its first packet
// before NAT.
type Connection struct {
	Protocol            rules.Protocol
	Source, Destination netip.AddrPort
}

// A Result describes how a connection was answered.
type Result string

// The results.
const (
	// Connected means that a listener accepted the TCP connection.
	Connected Result = "connected"
	// Refused means that conntrack closed or deleted the entry of a TCP connection before a
	// listener accepted the connection, and before the entry expired. Conntrack does so if the
	// first answer is a reset. If a program deletes the entry, the result is also Refused.
	Refused Result = "refused"
	// Reset means that a TCP connection was accepted, and then reset before its regular end.
	Reset Result = "reset"
	// Answered means that an answer to a UDP datagram arrived.
	Answered Result = "answered"
	// TimedOut means that the conntrack entry expired without an answer.
	TimedOut Result = "timed out"
)

// An Answer is the answer to a connection according to conntrack.
type Answer struct {
	// Time is the time at which the event was read or the time of the first packet, whichever is
	// later.
	Time       time.Time
	Connection Connection
	Result     Result
	// By is the destination after NAT, which answers the connection if anything does.
	By netip.AddrPort
	// Mark is the conntrack mark of the connection, and Zone is its conntrack zone.
	Mark uint32
	Zone uint16
}

// Answers receives the events of conntrack in one network namespace. It must be used by one
// goroutine at a time.
type Answers struct {
	receiver *trace.Receiver
	queue    []connectionEvent
	watched  map[Connection]*connectionState
}

// A connectionEvent is an event that Read has read from the socket.
type connectionEvent struct {
	time     time.Time // the time of the call of Read that read the event
	nextRead time.Time // the time of the next call of Read; zero until then
	event    conntrack.Event
}

// A connectionState is the state of a connection according to its events so far.
type connectionState struct {
	firstPacket      time.Time // the time at which the first packet was read
	created, expires time.Time // of the conntrack entry; zero until its creation is reported
	isAnswered       bool      // also by a reset
	isOver           bool      // no further answer is possible
}

// maxWatched is the maximum number of watched connections. At this number, Watch forgets the
// connections that were answered. If none was answered, Watch forgets all connections.
const maxWatched = 1 << 16

// OpenAnswers starts to receive the events of the namespace (nil: the current one). The kernel may
// omit connections that began earlier. It reports no connection if the sysctl
// net.netfilter.nf_conntrack_events is 0.
func OpenAnswers(ns *netns.NS) (*Answers, error) {
	a := &Answers{watched: map[Connection]*connectionState{}}
	err := ns.Do(func() (err error) {
		if a.receiver, err = trace.NewReceiver(0); err != nil {
			return err
		}
		return a.receiver.Control(func(fd int) error {
			for _, group := range []int{
				unix.NFNLGRP_CONNTRACK_NEW, unix.NFNLGRP_CONNTRACK_UPDATE,
				unix.NFNLGRP_CONNTRACK_DESTROY,
			} {
				err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group)
				if err != nil {
					return os.NewSyscallError("setsockopt", err)
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("receive events of conntrack: %w", err), a.Close())
	}
	return a, nil
}

// Close closes the socket.
func (a *Answers) Close() error {
	if a.receiver == nil {
		return nil
	}
	return a.receiver.Close()
}

// Watch makes Read return the answers to a connection. firstPacket is the time at which the first
// packet of the connection was read. Watch ignores protocols other than TCP and UDP.
func (a *Answers) Watch(c Connection, firstPacket time.Time) {
	if c.Protocol != rules.TCP && c.Protocol != rules.UDP {
		return
	}
	if len(a.watched) >= maxWatched {
		for c, s := range a.watched {
			if s.isAnswered {
				delete(a.watched, c)
			}
		}
		if len(a.watched) >= maxWatched {
			clear(a.watched)
		}
	}
	a.watched[c] = &connectionState{firstPacket: firstPacket}
}

// IsWaiting reports whether a watched connection has no answer yet.
func (a *Answers) IsWaiting() bool {
	for _, s := range a.watched {
		if !s.isAnswered {
			return true
		}
	}
	return false
}

// Unanswered returns the number of watched connections that have a conntrack entry, but no answer
// yet.
func (a *Answers) Unanswered() int {
	n := 0
	for _, s := range a.watched {
		if !s.isAnswered && !s.created.IsZero() {
			n++
		}
	}
	return n
}

// maxQueued is the maximum number of kept events.
const maxQueued = 1 << 14

// Read reads up to 4,096 events and returns the answers to watched connections. now is the current
// time. lost counts the events that the kernel dropped because the buffer was full, and the events
// that Read discards because it keeps only the latest 16,384.
//
// The caller must read the trace events before each call of Read. A conntrack event may
// nevertheless be read before the trace events of its packet, and thus before the caller watches
// the connection. Read therefore queues the events of connections that are not watched. It discards
// a queued event if the first call of Read after the call that read the event was before forget.
func (a *Answers) Read(now, forget time.Time) (answers []Answer, lost uint32, err error) {
	for i := range a.queue {
		if e := &a.queue[i]; e.nextRead.IsZero() {
			e.nextRead = now
		}
	}
	apply := func(e connectionEvent) (isWatched bool) {
		answer, isWatched := a.applyEvent(e)
		if answer.Result != "" {
			answers = append(answers, answer)
		}
		return isWatched
	}
	a.queue = slices.DeleteFunc(a.queue, func(e connectionEvent) bool {
		return apply(e) || e.nextRead.Before(forget)
	})
	err = a.receiver.Control(func(fd int) (err error) {
		lost, err = a.receiver.Drain(fd, func(datagram []byte) {
			var m netlink.Message
			e := connectionEvent{time: now}
			// An event without a Flow does not describe a connection.
			if m.UnmarshalBinary(datagram) == nil && e.event.Unmarshal(m) == nil &&
				e.event.Flow != nil && !apply(e) {
				a.queue = append(a.queue, e)
			}
		})
		return err
	})
	if errors.Is(err, unix.EAGAIN) {
		err = nil
	}
	if excess := len(a.queue) - maxQueued; excess > 0 {
		a.queue = slices.Delete(a.queue, 0, excess)
		lost += uint32(excess)
	}
	return answers, lost, err
}

// connectionOf returns the connection of an entry.
func connectionOf(f *conntrack.Flow) Connection {
	t := f.TupleOrig
	return Connection{
		Protocol:    rules.Protocol(t.Proto.Protocol),
		Source:      netip.AddrPortFrom(t.IP.SourceAddress.Unmap(), t.Proto.SourcePort),
		Destination: netip.AddrPortFrom(t.IP.DestinationAddress.Unmap(), t.Proto.DestinationPort),
	}
}

// The TCP states of a conntrack entry that determine the Result
// (linux/netfilter/nf_conntrack_tcp.h).
const (
	tcpSynReceived = 2 // TCP_CONNTRACK_SYN_RECV
	tcpEstablished = 3 // TCP_CONNTRACK_ESTABLISHED
	tcpClose       = 8 // TCP_CONNTRACK_CLOSE
)

// timeoutSlack is the tolerance for an entry that appears to expire before its timeout, because the
// kernel reports timeouts in whole seconds.
const timeoutSlack = 2 * time.Second

// applyEvent applies an event to its connection, if the connection is watched. It returns the
// answer that the event reports, and reports whether the connection is watched. The Result is empty
// if the event reports no answer.
func (a *Answers) applyEvent(e connectionEvent) (answer Answer, isWatched bool) {
	f := e.event.Flow
	c := connectionOf(f)
	s := a.watched[c]
	if s == nil {
		return Answer{}, false
	}
	reply := f.TupleReply
	answer = Answer{
		Time: e.time, Connection: c, Mark: f.Mark, Zone: f.Zone,
		By: netip.AddrPortFrom(reply.IP.SourceAddress.Unmap(), reply.Proto.SourcePort),
	}
	if answer.Time.Before(s.firstPacket) {
		answer.Time = s.firstPacket // the event was read before the trace events of the packet
	}
	switch e.event.Type {
	case conntrack.EventNew:
		s.created = e.time
		s.expires = e.time.Add(time.Duration(f.Timeout)*time.Second - timeoutSlack)
	case conntrack.EventUpdate:
		answer.Result = s.update(c.Protocol, f)
	case conntrack.EventDestroy:
		s.isOver = true
		answer.Result = s.end(c.Protocol, e.time)
	}
	if s.isOver {
		delete(a.watched, c)
	}
	return answer, true
}

// update returns the result that a change of the entry means, or "".
func (s *connectionState) update(p rules.Protocol, f *conntrack.Flow) Result {
	if p != rules.TCP {
		if !f.Status.SeenReply() {
			return ""
		}
		s.isAnswered, s.isOver = true, true
		return Answered
	}
	if f.ProtoInfo.TCP == nil {
		return "" // a change of the mark, for example
	}
	wasAnswered := s.isAnswered
	switch state := f.ProtoInfo.TCP.State; {
	case state == tcpSynReceived || state == tcpEstablished:
		s.isAnswered = true
		if !wasAnswered {
			return Connected
		}
	case state == tcpClose:
		s.isAnswered, s.isOver = true, true
		if wasAnswered {
			return Reset
		}
		return Refused
	case state > tcpEstablished: // the connection is being closed
		s.isOver = s.isAnswered
	}
	return ""
}

// end returns the result that the deletion of the entry means, or "".
func (s *connectionState) end(p rules.Protocol, at time.Time) Result {
	switch {
	case s.isAnswered || s.created.IsZero():
		return ""
	case !at.Before(s.expires):
		return TimedOut
	case p == rules.TCP:
		return Refused
	}
	return ""
}

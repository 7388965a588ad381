package validation

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/socket"
	"github.com/sluice-mesh/sluice/rules"
)

// An observation is the outcome of a probe.
type observation struct {
	outcome outcome
	// source is the probe's source address.
	source netip.AddrPort
	// arrival is the place of arrival; original reports whether it contains the original
	// destination.
	arrival arrival
	err     error
	// reached reports, for a probe from outside that did not arrive, that the control connection
	// arrived.
	reached bool
}

// outcome is the kind of an observation.
type outcome uint8

const (
	unsent outcome = iota // it could not be sent at all
	// at a listener of ours, or a known socket of the namespace
	arrived
	answered        // the same, and the answer came back
	refused         // no process listens at its destination
	unanswered      // nothing came back in time
	receivedOutside // a socket outside the namespace received it
	unknown         // it was received, but the kernel does not report by which socket
)

// listen opens the listeners for the probes of an attempt. If a proxy is running there are none,
// because they would receive the proxy's connections.
func (v *validator) listen(l *listeners, probes []probe) {
	opened := map[endpoint]error{}
	open := func(e endpoint, owner rules.Owner) error {
		if err, done := opened[e]; done {
			return err
		}
		opened[e] = v.ns.Do(func() error {
			return v.owners.as(owner, func() error { return l.listen(e) })
		})
		return opened[e]
	}
	for i := range probes {
		t := &probes[i]
		switch {
		case t.Status != "" || v.running && t.packet.Mark == 0:
			continue
		case t.packet.Hook == rules.Prerouting || t.packet.OutInterface == lo:
			t.listenerExpected = open(endpoint{t.packet.Protocol, t.packet.Destination, t.packet.Mark != 0},
				v.owners.self) == nil
		}
		if t.control.IsValid() {
			_ = open(endpoint{t.packet.Protocol, t.control, false}, v.owners.self)
		}
		if !t.trace.Outcome.Captured() {
			continue
		}
		owner := v.owners.self
		if t.agent != nil {
			owner = *t.agent
		}
		if err := open(v.captureEndpoint(t), owner); err != nil {
			t.skip(err.Error(), "")
		}
	}
}

// captureEndpoint returns the endpoint of the proxy for the probe: only the loopback address if
// that is sufficient, so that no other connection arrives.
func (v *validator) captureEndpoint(t *probe) endpoint {
	f := t.packet.Family()
	at := loopbackOf(f)
	isInbound := t.port() == v.options.Redirect.InboundCapturePort
	isTransparent := isInbound && v.options.Redirect.Mode == rules.ModeTProxy && v.transparent
	if isInbound && (isTransparent || v.outerNetwork != nil) {
		at = netip.IPv4Unspecified()
		if f == rules.IPv6 {
			at = netip.IPv6Unspecified()
		}
	}
	return endpoint{t.packet.Protocol, netip.AddrPortFrom(at, t.port()), isTransparent}
}

// try sends the probe and observes its arrival.
func (v *validator) try(l *listeners, t *probe, deadline time.Time) observation {
	from, owner := v.ns, v.owners.self
	if t.outside {
		from = v.here
	}
	if t.packet.Owner != nil {
		owner = *t.packet.Owner
	}
	s, o := v.send(l, t, from, owner)
	if s.File == nil {
		return o.observation
	}
	defer s.Abort()
	if t.packet.Protocol == rules.UDP {
		o.sendQuery(v, t, s, deadline)
		return o.observation
	}
	o.connect(v, l, t, s, deadline)
	if o.outcome != arrived && t.control.IsValid() {
		control := probe{packet: t.packet, outside: true}
		control.packet.Destination = t.control
		o.reached = v.try(l, &control, time.Now().Add(firstWait)).outcome == arrived
	}
	return o.observation
}

// sent is a probe that has been sent.
type sent struct {
	observation
	arrives <-chan arrival
}

// send opens the probe's socket in the namespace with the owner, and begins the connection.
func (v *validator) send(
	l *listeners, t *probe, from *netns.NS, owner rules.Owner,
) (s socket.Socket, o sent) {
	var options []socket.Option
	if t.packet.Mark != 0 {
		options = append(options, socket.Mark(t.packet.Mark))
	}
	if t.transparent {
		options = append(options, socket.Transparent(t.packet.Family()))
	}
	o.err = from.Do(func() error {
		return v.owners.as(owner, func() error {
			fd, err := socket.New(t.packet.Family(), t.packet.Protocol, options...)
			if err != nil {
				return err
			}
			if err = socket.Bind(fd, t.packet.Source); err == nil {
				o.source = socket.LocalAddr(fd)
				o.arrives = l.expect(caller{t.packet.Protocol, o.source})
				err = socket.Connect(fd, t.packet.Destination)
			}
			if err != nil {
				_ = unix.Close(fd)
				return err
			}
			s = socket.FromFD(fd)
			return nil
		})
	})
	return s, o
}

// acceptTime is the maximum time from an established connection to its acceptance by a listener of
// this process, which a busy machine delays.
const acceptTime = 5 * time.Second

// connect waits for the connection and its arrival.
func (o *sent) connect(
	v *validator, l *listeners, t *probe, s socket.Socket, deadline time.Time,
) {
	err := s.SetDeadline(deadline)
	if err == nil {
		err = s.WaitConnected()
	}
	switch {
	case errors.Is(err, unix.ECONNRESET): // it was made, and the other end has hung up already
	case errors.Is(err, os.ErrDeadlineExceeded):
		o.outcome = unanswered
		return
	case errors.Is(err, unix.ECONNREFUSED):
		o.outcome = refused
		return
	case err != nil:
		o.outcome, o.err = unanswered, err
		return
	}
	if (!v.running || t.packet.Mark != 0) && o.waitArrival(deadline) {
		return
	}
	// The connection did not arrive at a listener of this process.
	list, err := sockets(v.ns)
	if err != nil {
		o.outcome, o.err = unknown, err
		return
	}
	local, found := takerOf(list, o.source)
	if !found {
		o.outcome = receivedOutside
		select {
		case o.arrival = <-o.arrives: // after the deadline, and its connection is closed already
			o.outcome = arrived
		default:
		}
		return
	}
	// The kernel has the connection for a listener of this process, which has not accepted it yet.
	if !v.running && slices.Contains(l.tcpPorts, local.Port()) &&
		o.waitArrival(time.Now().Add(acceptTime)) {
		return
	}
	o.outcome, o.arrival = arrived, arrival{port: local.Port()}
	if t.trace.Outcome.TProxy != 0 && local == t.packet.Destination &&
		!listening(list, rules.TCP, local.Port()) {
		// Only a transparent listener accepts connections to ports without a listener.
		o.arrival.port = t.trace.Outcome.TProxy
	}
}

// waitArrival waits for the probe's arrival at a listener of this process.
func (o *sent) waitArrival(deadline time.Time) bool {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case o.arrival = <-o.arrives:
		o.outcome = arrived
		return true
	case <-timer.C:
		return false
	}
}

// sendQuery sends the query and waits for its arrival, or for the reply.
func (o *sent) sendQuery(v *validator, t *probe, s socket.Socket, deadline time.Time) {
	if v.running && t.packet.Mark == 0 {
		o.sendTracked(v, t, s)
		return
	}
	if o.err = s.SetDeadline(deadline); o.err != nil {
		return
	}
	if _, o.err = s.Write(query()); o.err != nil {
		return
	}
	answer := make(chan error, 1)
	go func() {
		_, _, err := receive(s, make([]byte, 512))
		answer <- err
	}()
	arrives := o.arrives
	o.outcome = unanswered
	for {
		select {
		case o.arrival = <-arrives:
			o.outcome, arrives = arrived, nil
			if t.agent == nil {
				return
			}
		case err := <-answer:
			switch {
			case err == nil && o.outcome == arrived, err == nil && o.waitArrival(deadline):
				o.outcome = answered
			case err == nil:
				o.outcome = receivedOutside
			case errors.Is(err, unix.ECONNREFUSED) && o.outcome != arrived:
				o.outcome = refused
			}
			return
		}
	}
}

// sendTracked sends an empty datagram, to which no DNS server replies, and reads its destination
// from conntrack.
func (o *sent) sendTracked(v *validator, t *probe, s socket.Socket) {
	err := s.Control(func(fd int) error { return unix.Send(fd, nil, 0) })
	if err != nil {
		o.err = err
		return
	}
	at, err := translated(v.ns, o.source, t.packet.Destination)
	switch {
	case err != nil:
		o.outcome, o.err = unknown, fmt.Errorf("where it went only conntrack can tell: %w", err)
	case at == t.packet.Destination:
		o.outcome = receivedOutside
	default:
		o.outcome, o.arrival = arrived, arrival{port: at.Port()}
	}
}

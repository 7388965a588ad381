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
	source  netip.AddrPort
	arrival arrival // if the probe arrived
	err     error
	// controlArrived reports, for a probe from outside that did not arrive, whether the connection
	// to probe.control arrived.
	controlArrived bool
}

// outcome is the kind of an observation.
type outcome uint8

const (
	unsent          outcome = iota // the probe could not be sent
	arrived                        // at a listener of this process, or a socket of the namespace
	answered                       // it arrived, and the answer came back
	refused                        // no process listens at its destination
	unanswered                     // nothing came back in time
	receivedOutside                // a socket outside the namespace received it
	unknown                        // it is unknown which socket received it
)

// openListeners opens the listeners for the probes of an attempt. If a proxy is running, it opens
// only the listeners for marked packets, because the others would receive the proxy's connections.
func (v *validator) openListeners(l *listeners, probes []probe) {
	opened := map[endpoint]error{}
	open := func(e endpoint, owner rules.Owner) error {
		if err, done := opened[e]; done {
			return err
		}
		opened[e] = v.ns.Do(func() error {
			return v.owners.runAs(owner, func() error { return l.listen(e) })
		})
		return opened[e]
	}
	for i := range probes {
		t := &probes[i]
		switch {
		case t.Status != "" || v.running && t.packet.Mark == 0:
			continue
		case t.packet.Hook == rules.Prerouting || t.packet.OutInterface == lo:
			isMarked := t.packet.Mark != 0
			t.listenerExpected = open(endpoint{t.packet.Protocol, t.packet.Destination, isMarked},
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

// captureEndpoint returns the endpoint of the proxy for the probe. It is on the loopback address if
// this is sufficient, so that other connections do not reach it.
func (v *validator) captureEndpoint(t *probe) endpoint {
	f := t.packet.Family()
	address := loopbackOf(f)
	isInbound := t.port() == v.options.Redirect.InboundCapturePort
	isTransparent := isInbound && v.options.Redirect.Mode == rules.ModeTProxy && v.mayUseTransparent
	if isInbound && (isTransparent || v.outerNetwork != nil) {
		address = netip.IPv4Unspecified()
		if f == rules.IPv6 {
			address = netip.IPv6Unspecified()
		}
	}
	return endpoint{t.packet.Protocol, netip.AddrPortFrom(address, t.port()), isTransparent}
}

// sendAndObserve sends the probe and observes its arrival.
func (v *validator) sendAndObserve(l *listeners, t *probe, deadline time.Time) observation {
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
	o.observeConnection(v, l, t, s, deadline)
	if o.outcome != arrived && t.control.IsValid() {
		control := probe{packet: t.packet, outside: true}
		control.packet.Destination = t.control
		controlObserved := v.sendAndObserve(l, &control, time.Now().Add(firstWait))
		o.controlArrived = controlObserved.outcome == arrived
	}
	return o.observation
}

// A sentProbe is a probe that has been sent, with its outcome.
type sentProbe struct {
	observation
	arrives <-chan arrival // receives the arrival at a listener of this process
}

// send opens the probe's socket in the namespace with the owner, and begins the connection.
func (v *validator) send(
	l *listeners, t *probe, from *netns.NS, owner rules.Owner,
) (s socket.Socket, o sentProbe) {
	var options []socket.Option
	if t.packet.Mark != 0 {
		options = append(options, socket.Mark(t.packet.Mark))
	}
	if t.transparent {
		options = append(options, socket.Transparent(t.packet.Family()))
	}
	o.err = from.Do(func() error {
		return v.owners.runAs(owner, func() error {
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

// acceptTime is the maximum time until a listener of this process accepts an established
// connection. On a busy machine this may take seconds.
const acceptTime = 5 * time.Second

// observeConnection waits until the connection is established, and determines where it arrived.
func (o *sentProbe) observeConnection(
	v *validator, l *listeners, t *probe, s socket.Socket, deadline time.Time,
) {
	err := s.SetDeadline(deadline)
	if err == nil {
		err = s.WaitConnected()
	}
	switch {
	case errors.Is(err, unix.ECONNRESET): // the connection was established, and then reset
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
	// No listener of this process has reported the connection.
	found, err := findSockets(v.ns, o.source)
	if err != nil {
		o.outcome, o.err = unknown, err
		return
	}
	local := found.accepted
	if !local.IsValid() {
		o.outcome = receivedOutside
		select {
		case o.arrival = <-o.arrives: // it arrived after the deadline, and is already closed
			o.outcome = arrived
		default:
		}
		return
	}
	// The connection may be in the queue of a listener of this process, which has not accepted it
	// yet.
	if !v.running && slices.Contains(l.tcpPorts, local.Port()) &&
		o.waitArrival(time.Now().Add(acceptTime)) {
		return
	}
	o.outcome, o.arrival = arrived, arrival{port: local.Port()}
	if t.trace.Outcome.TProxy != 0 && local == t.packet.Destination &&
		!found.isListening(rules.TCP, local.Port()) {
		// Only a transparent listener accepts connections to ports without a listener.
		o.arrival.port = t.trace.Outcome.TProxy
	}
}

// waitArrival waits for the probe's arrival at a listener of this process.
func (o *sentProbe) waitArrival(deadline time.Time) bool {
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
func (o *sentProbe) sendQuery(v *validator, t *probe, s socket.Socket, deadline time.Time) {
	if v.running && t.packet.Mark == 0 {
		o.sendTracked(v, t, s)
		return
	}
	if o.err = s.SetDeadline(deadline); o.err != nil {
		return
	}
	if _, o.err = s.Write(dnsQuery()); o.err != nil {
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

// sendTracked sends an empty datagram and reads its destination from conntrack. DNS servers do not
// reply to an empty datagram.
func (o *sentProbe) sendTracked(v *validator, t *probe, s socket.Socket) {
	err := s.Control(func(fd int) error { return unix.Send(fd, nil, 0) })
	if err != nil {
		o.err = err
		return
	}
	destination, err := translatedDestination(v.ns, o.source, t.packet.Destination)
	switch {
	case err != nil:
		o.outcome = unknown
		o.err = fmt.Errorf("read the destination of the datagram from conntrack: %w", err)
	case destination == t.packet.Destination:
		o.outcome = receivedOutside
	default:
		o.outcome, o.arrival = arrived, arrival{port: destination.Port()}
	}
}

package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// tracedRows are calls and the outcomes that the kernel's trace must show.
var tracedRows = []struct {
	row     row
	outcome livetrace.Outcome
}{
	{capturedRows[0], livetrace.Captured},     // TCP to an address outside the pod
	{capturedRows[1], livetrace.Captured},     // DNS
	{capturedRows[3], livetrace.Captured},     // inbound
	{bypassingRows[2], livetrace.NotCaptured}, // an excluded port
}

// showTraced makes calls while the kernel traces them, and prints the first packet of each
// connection like rules trace: with the rule that decided.
func showTraced(p *printer, network *testbed.Network) (err error) {
	p.printHeading(
		"Traced by the kernel: the rule that decided each connection, as rules trace prints it")
	rs, err := nft.ReadAll(network.Pod)
	if err != nil {
		return err
	}
	session, err := trace.Open(network.Pod, trace.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	namespace, err := livetrace.OpenNamespace(network.Pod, "/proc")
	if err != nil {
		return err
	}
	defer namespace.Close()
	interfaces, err := namespace.Interfaces()
	if err != nil {
		return err
	}
	for _, traced := range tracedRows {
		call := traced.row.call(traced.row.to[0])
		if _, err := network.Dial(call); err != nil {
			return err
		}
		packets, err := receivePackets(session)
		if err != nil {
			return err
		}
		line, ok := "no packet was traced", false
		for _, events := range packets {
			packet := livetrace.PacketOf(events, interfaces)
			if packet.Destination != call.To {
				continue
			}
			packet.Owner = &traced.row.caller.owner
			if packet.Hook == rules.Prerouting {
				packet.Owner = nil // it arrives from the neighbor
			}
			o, complete := livetrace.Match(&rs, events, packet, livetrace.Options{OwnerKnown: true})
			if complete && !o.Repeated {
				line = fmt.Sprintf("%s %s %s > %s: %s", packet.Hook, packet.Protocol,
					packet.Source, packet.Destination, o.Message)
				ok = o.Outcome == traced.outcome && len(o.Differences) == 0
				break // the other packets to this destination are the proxy's
			}
		}
		p.printResult(ok, line, string(traced.outcome)+", by the rules that the model predicts")
	}
	return nil
}

// idleTime is the time without further events after which all events have been received. The kernel
// queues the events of a call before its answer arrives.
const idleTime = 10 * time.Millisecond

// receivePackets returns the packets of the events that the kernel has queued.
func receivePackets(session *trace.Session) ([]trace.Packet, error) {
	var events trace.Collector
	for {
		if err := session.SetDeadline(time.Now().Add(idleTime)); err != nil {
			return nil, err
		}
		batch, err := session.Next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			allRead := time.Now().Add(time.Second) // after the last event
			return events.Take(allRead), nil
		}
		if err != nil {
			return nil, err
		}
		events.Add(time.Now(), batch.Events...)
	}
}

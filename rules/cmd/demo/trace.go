package main

import (
	"cmp"
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
		line, ok, err := receiveOutcome(session, func(events trace.Packet) (string, bool) {
			packet := livetrace.PacketOf(events, interfaces)
			if packet.Destination != call.To {
				return "", false
			}
			packet.Owner = &traced.row.caller.owner
			if packet.Hook == rules.Prerouting {
				packet.Owner = nil // it arrives from the neighbor
			}
			o, complete := livetrace.Match(&rs, events, packet, livetrace.Options{OwnerKnown: true})
			if !complete || o.Repeated {
				return "", false
			}
			return fmt.Sprintf("%s %s %s > %s: %s", packet.Hook, packet.Protocol,
					packet.Source, packet.Destination, o.Message),
				o.Outcome == traced.outcome && len(o.Differences) == 0
		})
		if err != nil {
			return err
		}
		p.printResult(ok, line, string(traced.outcome)+", by the rules that the model predicts")
	}
	return nil
}

// eventTime bounds the wait for the events of a call. The kernel queues them before the answer to
// the call arrives, so that the wait is long only if an event is missing.
const eventTime = 10 * time.Second

// receiveOutcome reads events until match reports the wanted outcome for a packet, and returns the
// text of this packet. If there is no such packet, it returns false and the first text that match
// returns for another packet.
func receiveOutcome(
	session *trace.Session, match func(trace.Packet) (text string, ok bool),
) (text string, ok bool, err error) {
	if err := session.SetDeadline(time.Now().Add(eventTime)); err != nil {
		return "", false, err
	}
	text = "no packet was traced"
	var received []trace.Event
	for {
		batch, err := session.Next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return text, false, nil
		}
		if err != nil {
			return "", false, err
		}
		received = append(received, batch.Events...)
		var events trace.Collector
		now := time.Now()
		events.Add(now, received...)
		other := ""
		for _, packet := range events.Take(now.Add(time.Second)) {
			t, ok := match(packet)
			if ok {
				return t, true, nil
			}
			other = cmp.Or(other, t)
		}
		text = cmp.Or(other, text)
	}
}

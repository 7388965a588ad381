package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/compat/livetrace"
)

// A tracedAnswer is a line of rules trace -o json: the answer to an earlier tracedPacket with the
// same Protocol, From and To.
type tracedAnswer struct {
	Pod      string `json:"pod,omitempty"` // of --pod
	Time     string `json:"time"`
	Protocol string `json:"protocol"`
	From     string `json:"from"`
	To       string `json:"to"`
	Answer   string `json:"answer"`
	By       string `json:"by"` // the destination after NAT
	Mark     string `json:"mark,omitempty"`
	Zone     uint16 `json:"zone,omitempty"`
}

func (tracedAnswer) kind() string { return "TracedAnswer" }

// timeFormat is the format of times in the output of trace.
const timeFormat = "2006-01-02T15:04:05.000Z"

// openAnswers starts to receive the answers, if they are to be printed.
func (t *liveTracer) openAnswers() {
	if !t.p.trace.verbose && !t.s.json {
		return
	}
	var err error
	if t.answers, err = livetrace.OpenAnswers(t.ns); err != nil {
		t.s.warn("answers to connections are not reported: %v", err)
	}
}

// watchAnswer makes printAnswers print the answer to the connection of a printed packet, unless the
// packet was dropped.
func (t *liveTracer) watchAnswer(o livetrace.Observation) {
	if t.answers != nil && o.Outcome != livetrace.Dropped {
		t.answers.Watch(livetrace.Connection{
			Protocol: o.Packet.Protocol, Source: o.Packet.Source, Destination: o.Packet.Destination,
		}, o.Time)
	}
}

// printAnswers prints the answers to the connections of printed packets. now is the time at which
// the last packets were read. An answer to a packet that is not yet printed is kept for a later
// call.
func (t *liveTracer) printAnswers(now time.Time) error {
	if t.answers == nil {
		return nil
	}
	answers, lost, err := t.answers.Read(now, now.Add(-idleTime))
	if err != nil {
		return err
	}
	if lost > 0 {
		t.summary.Lost += lost
		t.s.warn("%d events of conntrack are lost: too many arrived at once", lost)
	}
	for _, a := range answers {
		if err := t.printAnswer(a); err != nil {
			return err
		}
	}
	return nil
}

// lateAnswersTime limits the wait for answers after the last packet.
const lateAnswersTime = 3 * idleTime

// printLateAnswers prints the answers that arrive soon after the last packet.
func (t *liveTracer) printLateAnswers(ctx context.Context) error {
	if t.answers == nil {
		return nil
	}
	end := time.Now().Add(lateAnswersTime)
	for t.answers.IsWaiting() && time.Now().Before(end) {
		if err := t.printAnswers(time.Now()); err != nil {
			return err
		}
		select {
		case <-ctx.Done(): // a signal, --for or --until-eof ended the trace
			end = time.Now()
		case <-time.After(idleTime / 5):
		}
	}
	return t.printAnswers(time.Now())
}

// printAnswer prints an answer.
func (t *liveTracer) printAnswer(a livetrace.Answer) error {
	c := a.Connection
	line := tracedAnswer{
		Pod: t.p.tracedPod(), Time: a.Time.UTC().Format(timeFormat), Protocol: c.Protocol.String(),
		From: c.Source.String(), To: c.Destination.String(),
		Answer: string(a.Result), By: a.By.String(), Zone: a.Zone,
	}
	if a.Mark != 0 {
		line.Mark = fmt.Sprintf("%#x", a.Mark)
	}
	if t.s.json {
		return t.s.printLine(line)
	}
	b := new(strings.Builder)
	fmt.Fprintf(b, "%s answer %s %s > %s: %s", line.Time, line.Protocol, line.From, line.To,
		line.Answer)
	if a.Result != livetrace.TimedOut {
		fmt.Fprintf(b, " by %s", line.By)
	}
	if a.Mark != 0 {
		fmt.Fprintf(b, ", conntrack mark %s", line.Mark)
	}
	if a.Zone != 0 {
		fmt.Fprintf(b, ", zone %d", a.Zone)
	}
	b.WriteByte('\n')
	return t.s.printText(b.String())
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/plugin/signals"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

func newLiveTraceCommand(s *system) *cobra.Command {
	in := &inputs{
		sections: []section{
			sectionTrace, sectionNamespace, sectionAgent, sectionNode, sectionRunDir, sectionOutput,
		},
		check: checkTrace,
	}
	return s.command("trace [FLAG]...", "print connections as they happen, with the deciding rule", in,
		func(p *parameters, _ []string) error {
			return p.inNamespace(func(ns *netns.NS) error { return systemError(s.liveTrace(p, ns)) })
		})
}

// idleTime is the time without further events of a packet after which the packet is printed.
const idleTime = 50 * time.Millisecond

// predictionTime limits the predictions of the packets that are printed together. Events that
// arrive meanwhile stay in the buffer of the kernel.
const predictionTime = time.Second

// senderTime limits the search for the senders of the packets of a batch. A node may have many
// processes, and events that arrive meanwhile wait in the buffer of the kernel.
const senderTime = 250 * time.Millisecond

// A liveTracer prints the first packets of connections in a namespace, and the answers to them.
type liveTracer struct {
	s         *system
	p         *parameters
	ns        *netns.NS
	namespace *livetrace.Namespace
	source    traceSource
	ruleset   rules.Ruleset
	warnings  repeatedWarnings // about the ruleset
	// staleSince is when the first change of the live ruleset after its last reading was noticed;
	// zero if there was none.
	staleSince time.Time
	legacy     legacyWatcher
	collector  trace.Collector
	senders    map[livetrace.Connection]livetrace.Process // of packets that are not yet printed
	flows      flows
	answers    *livetrace.Answers // nil if they are not printed
	summary    traceSummary
}

// connectionOf returns the connection of the packet with the header.
func connectionOf(h *trace.Header) livetrace.Connection {
	return livetrace.Connection{
		Protocol: h.Protocol, Source: h.Source, Destination: h.Destination,
	}
}

// liveTrace traces the namespace. help/trace.txt describes when the trace ends.
func (s *system) liveTrace(p *parameters, ns *netns.NS) error {
	proc := "/proc"
	switch {
	case p.located != nil && p.located.Proc != "":
		proc = p.located.Proc
	case p.host != nil && p.host.Proc != "":
		proc = p.host.Proc
	}
	namespace, err := livetrace.OpenNamespace(ns, proc)
	if err != nil {
		return err
	}
	defer namespace.Close()
	t := &liveTracer{
		s: s, p: p, ns: ns, namespace: namespace,
		senders: map[livetrace.Connection]livetrace.Process{},
	}
	ctx, stop := s.traceContext(p)
	defer stop()
	defer t.closeSource()
	t.openAnswers() // before the trace, so that no answer is missed
	if t.answers != nil {
		defer func() { _ = t.answers.Close() }()
	}
	if err := t.openTrace(); err != nil {
		return err
	}
	t.legacy.start(ns)
	if err := t.readRuleset(); err != nil {
		return err
	}
	t.warnOfLegacy()
	if !s.json {
		fmt.Fprintf(s.stderr, "rules: tracing %s; Ctrl-C ends it\n", namespaceName(ns))
	}
	return t.run(ctx)
}

// run prints packets and answers until the trace ends, and then the summary, also after an error.
func (t *liveTracer) run(ctx context.Context) error {
	err := t.trace(ctx)
	if err == nil {
		err = t.printLateAnswers(ctx)
	}
	return cmp.Or(err, t.printSummary())
}

// closeSource ends the trace.
func (t *liveTracer) closeSource() {
	if err := t.source.close(); err != nil {
		t.s.warn("ending the trace failed; the next trace removes its remaining rules: %v", err)
	}
}

// traceContext returns a context that is done after a signal, after --for, or with --until-eof at
// the end of standard input. Later signals have their default effect, so that a second Ctrl-C ends
// a process that cannot print its summary.
func (s *system) traceContext(p *parameters) (context.Context, context.CancelFunc) {
	ctx, stopSignals := signal.NotifyContext(context.Background(), signals.End()...)
	cancelTimeout := func() {}
	if p.trace.duration > 0 {
		ctx, cancelTimeout = context.WithTimeout(ctx, p.trace.duration)
	}
	ctx, cancel := context.WithCancel(ctx)
	if p.trace.untilEOF {
		go func() {
			_, _ = io.Copy(io.Discard, s.stdin)
			cancel()
		}()
	}
	context.AfterFunc(ctx, stopSignals)
	return ctx, func() {
		cancel()
		cancelTimeout()
		stopSignals()
	}
}

// trace prints packets and answers until the context is done, --count packets have been printed, or
// the namespace has ended.
func (t *liveTracer) trace(ctx context.Context) error {
	for ctx.Err() == nil && !t.isCountReached() {
		if ended := t.p.describeEnd(); ended != "" {
			t.s.warn("%s", ended)
			return nil
		}
		batch, err := t.source.next(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		batch.Changed = batch.Changed || t.hasLegacyChanged(now, legacyInterval)
		if err := t.addBatch(ctx, now, batch); err != nil {
			return err
		}
		if err := t.printAnswers(now); err != nil {
			return err
		}
	}
	return nil
}

// describeEnd returns the reason why the trace must end: the process of --pid has ended, or the
// file of the namespace was removed. Otherwise it returns "".
func (p *parameters) describeEnd() string {
	if p.pid != 0 {
		if errors.Is(unix.Kill(p.pid, 0), unix.ESRCH) {
			return fmt.Sprintf("process %d has ended", p.pid)
		}
		return ""
	}
	name := cmp.Or(p.netnsPath, p.networkNamespace)
	if name == "" {
		return "" // the current namespace
	}
	if _, err := os.Stat(fileOfNamespace(name)); !errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if p.located != nil {
		return fmt.Sprintf("pod %s has ended", p.pod)
	}
	return fmt.Sprintf("network namespace %s no longer exists", name)
}

// namespaceName returns the name of the namespace in messages.
func namespaceName(ns *netns.NS) string {
	if ns == nil {
		return "the current namespace"
	}
	return ns.String()
}

// readRuleset reads the live ruleset.
func (t *liveTracer) readRuleset() error {
	live, warnings, err := readLive(t.ns, compat.BackendAuto, compat.ReadLiveUntilChange)
	if err == nil {
		t.ruleset, t.staleSince = live, time.Time{}
		t.warnings.print(t.s, warnings)
	}
	return err
}

// findSenders looks up the senders of the events' packets. It must be called as soon as the events
// are received, because the sockets of the senders may be closed soon.
func (t *liveTracer) findSenders(ctx context.Context, events []trace.Event) {
	owners := map[livetrace.Connection]*rules.Owner{} // nil if the event does not contain the owner
	for _, e := range events {
		if e.Header == nil || e.In != 0 {
			continue
		}
		connection := connectionOf(e.Header)
		if _, known := t.senders[connection]; !known && owners[connection] == nil {
			owners[connection] = e.Owner
		}
	}
	if len(owners) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, senderTime)
	defer cancel()
	processes := t.namespace.Processes(ctx, slices.Collect(maps.Keys(owners)))
	for connection, owner := range owners {
		p, found := processes[connection]
		if owner != nil {
			// The event contains the owner even if the socket is closed.
			p.Owner, found = t.namespace.TranslateOwner(*owner)
			p.GroupUnknown = false
		}
		if found {
			t.senders[connection] = p
		}
	}
}

// takeSender removes the entries of t.senders for the headers of a packet, and returns the entry
// for the first header. The entries for other headers, whose destination NAT has changed, are not
// the sender: a socket that is connected to the new destination has not sent the packet.
func (t *liveTracer) takeSender(p *trace.Packet) (sender livetrace.Process, known bool) {
	if h := p.Header(); h != nil {
		sender, known = t.senders[connectionOf(h)]
	}
	for _, e := range p.Events {
		if e.Header != nil && e.In == 0 {
			delete(t.senders, connectionOf(e.Header))
		}
	}
	return sender, known
}

// addBatch adds the events of a batch, and prints the complete packets, but no further packets once
// the context is done. now is the time at which the batch was read.
func (t *liveTracer) addBatch(ctx context.Context, now time.Time, b trace.Batch) error {
	if b.Changed && t.staleSince.IsZero() {
		t.staleSince = now
	}
	if b.Lost > 0 {
		t.summary.Lost += b.Lost
		t.s.warn("%d events are lost: the buffer of the kernel was full", b.Lost)
	}
	t.collector.Add(now, b.Events...)
	t.findSenders(ctx, b.Events)
	packets := t.collector.Take(now.Add(-idleTime))
	if len(packets) == 0 {
		return nil
	}
	interfaces, err := t.namespace.Interfaces()
	if err != nil {
		return err
	}
	budget := diff.Budget{Time: predictionTime, Memory: t.p.budget.Memory}.From(time.Now())
	for _, p := range packets {
		if ctx.Err() != nil || t.isCountReached() {
			return nil
		}
		sender, known := t.takeSender(&p)
		if p.Header() == nil {
			continue
		}
		if t.source.session != nil && !p.Selected() {
			continue // traced for another program
		}
		if !p.HasState() && t.flows.record(p) {
			continue // not the first packet of its connection
		}
		packet := livetrace.PacketOf(p, interfaces)
		if known {
			packet.Owner = &sender.Owner
		}
		o, ok, err := t.match(now, p, packet, livetrace.Options{
			OwnerKnown: known, GroupUnknown: sender.GroupUnknown, Budget: budget,
		})
		if err != nil {
			return err
		}
		if ok && (!o.Repeated || len(o.Differences) > 0) {
			t.watchAnswer(o)
			if err := t.print(o, sender, known); err != nil {
				return err
			}
		}
	}
	// Read the rules after the packets were compared, because most of them traversed the old rules.
	if !t.staleSince.IsZero() {
		return t.readRuleset()
	}
	return nil
}

// match matches the packet with the live ruleset. If the packet began after a change, match first
// reads the ruleset again. If the path differs from the prediction and the ruleset has changed,
// match reads the ruleset again and repeats the match.
func (t *liveTracer) match(
	now time.Time, p trace.Packet, packet rules.Packet, options livetrace.Options,
) (o livetrace.Observation, ok bool, err error) {
	if !t.staleSince.IsZero() && p.Time.After(t.staleSince) {
		if err := t.readRuleset(); err != nil {
			return o, false, err
		}
	}
	o, ok = livetrace.Match(&t.ruleset, p, packet, options)
	if !ok || len(o.Differences) == 0 {
		return o, ok, nil
	}
	if !t.hasLegacyChanged(now, idleTime) && t.staleSince.IsZero() {
		return o, ok, nil
	}
	if err := t.readRuleset(); err != nil {
		return o, false, err
	}
	o, ok = livetrace.Match(&t.ruleset, p, packet, options)
	return o, ok, nil
}

// isCountReached reports whether --count packets have been printed.
func (t *liveTracer) isCountReached() bool {
	return t.p.trace.count > 0 && t.summary.Packets >= t.p.trace.count
}

package main

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// A traceSource provides the events of one namespace.
type traceSource struct {
	session *trace.Session // nil if the kernel has no nf_tables
	log     *trace.Log     // the traces of iptables-legacy; nil if logErr is not nil
	logErr  error
	marks   *compat.Marks // the marking rules of iptables-legacy; nil if the kernel has nf_tables
	poll    *time.Ticker  // the times at which log is read if session is nil
}

// openTrace starts the trace. Rules of nf_tables mark the packets for both backends. In a kernel
// without nf_tables, rules of iptables-legacy mark them.
func (t *liveTracer) openTrace() (err error) {
	t.s.removeStaleTrace(t.ns)
	// Open the log before packets are marked, so that no event is missed.
	t.source.log, t.source.logErr = trace.OpenLog(t.ns, 0)
	o := trace.Options{Filter: t.p.trace.filter}
	if _, err = nft.Read(t.ns); !nft.IsNotSupported(err) {
		t.source.session, err = trace.Open(t.ns, o)
		return err
	}
	if t.source.logErr != nil {
		return t.source.logErr
	}
	t.source.marks, err = compat.MarkTraces(t.ns, o)
	t.source.poll = time.NewTicker(idleTime)
	return err
}

// close ends the trace.
func (s *traceSource) close() error {
	var errs []error
	if s.session != nil {
		errs = append(errs, s.session.Close())
	}
	if s.marks != nil {
		errs = append(errs, s.marks.Close())
		s.poll.Stop()
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	return errors.Join(errs...)
}

// next waits for events, at most for idleTime, and returns them.
func (s *traceSource) next(ctx context.Context) (trace.Batch, error) {
	var b trace.Batch
	if s.session == nil {
		select {
		case <-s.poll.C:
		case <-ctx.Done():
		}
		b.Changed = true // the kernel does not report changes of iptables-legacy
	} else {
		_ = s.session.SetDeadline(time.Now().Add(idleTime))
		var err error
		b, err = s.session.Next()
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return b, err
		}
	}
	if s.log == nil {
		return b, nil
	}
	logged, err := s.log.Read()
	b.Events, b.Lost = append(b.Events, logged.Events...), b.Lost+logged.Lost
	return b, err
}

// warnOfLegacy warns if the namespace has rules of iptables-legacy and the log cannot be read.
func (t *liveTracer) warnOfLegacy() {
	if t.source.logErr == nil {
		return
	}
	for table, c := range t.ruleset.AllChains() {
		if compat.IsLegacyTable(table) && (len(c.Rules) > 0 || c.Base != nil && c.Base.Drop) {
			t.s.warn("the rules of iptables-legacy are not traced, but they may determine "+
				"outcomes (table %s %s): %v", table.Family, table.Name, t.source.logErr)
			return
		}
	}
}

// flows contains the time of the last packet of each connection. It is used for packets whose
// conntrack state the kernel does not report.
type flows map[flow]time.Time

// A flow identifies a direction of a connection.
type flow struct {
	protocol            rules.Protocol
	source, destination netip.AddrPort
	// sequence is the sequence number of TCP. A later connection with the same addresses has a
	// different one.
	sequence uint32
}

// flowTimeout is the time without a packet after which a connection may have ended
// (nf_conntrack_udp_timeout).
const flowTimeout = 30 * time.Second

// If there are at least maxFlows connections, record forgets the connections that have had no
// packet for flowTimeout. maxFlows is larger than the number of packets that are traced in
// flowTimeout.
const maxFlows = 1 << 17

// record records the packet, and reports whether an earlier packet belongs to the same connection.
// Except in TCP, a packet after flowTimeout counts as a new connection.
func (f *flows) record(p trace.Packet) (isRepeated bool) {
	if *f == nil {
		*f = flows{}
	}
	if len(*f) >= maxFlows {
		maps.DeleteFunc(*f, func(_ flow, last time.Time) bool {
			return p.Time.Sub(last) > flowTimeout
		})
	}
	h := p.Header()
	original := flow{h.Protocol, h.Source, h.Destination, h.Sequence}
	reply := flow{h.Protocol, h.Destination, h.Source, h.Sequence}
	for _, k := range []flow{original, reply} {
		if last, found := (*f)[k]; found {
			(*f)[k] = p.Time
			return k.protocol == rules.TCP || p.Time.Sub(last) <= flowTimeout
		}
	}
	(*f)[original] = p.Time
	return false
}

// removeStaleTrace removes the rules of a killed trace.
func (s *system) removeStaleTrace(ns *netns.NS) {
	if _, err := livetrace.RemoveStale(ns); err != nil && !compat.IsNotPermitted(err) {
		s.warn("the rules of an earlier rules trace, which change no packet, may be left: %v", err)
	}
}

// legacyInterval is the time between two comparisons of the rules of iptables-legacy during a
// trace.
const legacyInterval = time.Second

// A legacyWatcher detects changes of the rules of iptables-legacy, which the kernel does not
// report.
type legacyWatcher struct {
	ns       *netns.NS
	digest   xtables.Digest
	readAt   time.Time // when the digest was last read
	disabled bool      // the digest could not be read
}

// start reads the digest of the rules. It ignores an error, because [readLive] reports that
// it cannot read the rules.
func (w *legacyWatcher) start(ns *netns.NS) {
	digest, err := xtables.DigestTables(ns)
	*w = legacyWatcher{ns: ns, digest: digest, readAt: time.Now(), disabled: err != nil}
}

// hasChanged reports whether the rules have changed since the last call that read them. It reads
// them only if the last reading is at least interval before now. It returns an error only once.
func (w *legacyWatcher) hasChanged(now time.Time, interval time.Duration) (bool, error) {
	if w.disabled || now.Sub(w.readAt) < interval {
		return false, nil
	}
	digest, err := xtables.DigestTables(w.ns)
	if err != nil {
		w.disabled = true
		return false, err
	}
	changed := digest != w.digest
	w.digest, w.readAt = digest, now
	return changed, nil
}

// hasLegacyChanged is like [legacyWatcher.hasChanged], and prints the error as a warning. In a
// kernel without nf_tables it returns false, because the ruleset is then read for each batch of
// packets.
func (t *liveTracer) hasLegacyChanged(now time.Time, interval time.Duration) bool {
	if t.source.session == nil {
		return false
	}
	changed, err := t.legacy.hasChanged(now, interval)
	if err != nil {
		t.s.warn("later changes of the rules of iptables-legacy are not noticed: %v", err)
	}
	return changed
}

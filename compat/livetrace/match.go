// Package livetrace finds the rules that traced packets matched, describes what the rules did with
// the packets, and compares the matching rules with the prediction of package diff. It also reports
// how connections were answered.
package livetrace

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// An Outcome is what the rules do with a packet.
type Outcome string

// UncertainPrefix begins the message of an uncertain outcome.
const UncertainPrefix = "uncertain: "

// The outcomes.
const (
	Captured    Outcome = "captured"
	NotCaptured Outcome = "not-captured"
	Dropped     Outcome = "dropped"
)

// An Observation is a traced packet with the rules that it matched.
type Observation struct {
	Time time.Time
	// Packet is the packet that entered the first hook. Its owner is nil if the socket is unknown.
	Packet rules.Packet
	// Steps are the matching rules and the policies at all hooks, in the order of evaluation.
	Steps []Step
	// Message describes the Outcome and its reason. It begins with the outcome in words.
	Outcome Outcome
	Message string
	// LocalPort is the port on which a local socket receives the packet. It is 0 if the port is
	// unknown, or if the packet is not delivered locally.
	LocalPort uint16
	// Predicted is the path that package diff predicts. Differences contains the first deviation of
	// the observed path from the predicted path. It is empty if there is none.
	Predicted   rules.Trace
	Differences []string
	// NotCompared is the reason why the paths were not compared, or empty.
	NotCompared string
	// Repeated is set if the packet is not the first packet of its connection, such as a
	// retransmitted SYN. The kernel does not evaluate NAT rules for such a packet. The outcome of
	// the packet may therefore differ from the outcome of the connection.
	Repeated bool
	// Uncertain is set if the Outcome is based on a step of iptables-legacy that the model did not
	// predict, or that was not compared with a prediction. A rule that logs can forge such a step:
	// the kernel reports steps of iptables-legacy as log messages with a prefix.
	Uncertain bool

	// markedBeforeConntrack is set if iptables-legacy marks packets for tracing before conntrack.
	markedBeforeConntrack bool
}

// Options are the options of [Match].
type Options struct {
	// OwnerKnown is set if the owner of the packet is known, or if it is known to have none.
	OwnerKnown bool
	// GroupUnknown is set if the group of the owner is a guess. A deviation from the predicted path
	// is then no difference.
	GroupUnknown bool
	// Budget limits the work of the prediction.
	Budget diff.Budget
}

// Match returns the observation of a packet. rs is the live ruleset, traced contains the events of
// the packet, and packet contains facts that the events lack, such as the names of interfaces and
// the owner. Match returns false if the first event of the packet was lost.
func Match(
	rs *rules.Ruleset, traced trace.Packet, packet rules.Packet, options Options,
) (Observation, bool) {
	if traced.Header() == nil {
		return Observation{}, false
	}
	o := Observation{
		Time: traced.Time, Packet: packet, Steps: stepsOf(rs, traced),
		markedBeforeConntrack: hasTraceMarks(rs),
	}
	if o.Repeated = isRepeated(traced); o.Repeated {
		o.Packet.Status = rules.StatusConfirmed
	}
	o.setOutcome()
	if o.Outcome == NotCaptured && o.Message == noRule &&
		packet.Mark&rules.AmbientMarkMask == rules.ZtunnelMark && rs.RedirectsToZtunnel() {
		o.Message = "not captured: sent by ztunnel"
	}
	o.compare(rs, options)
	deviates := len(o.Differences) > 0 || options.GroupUnknown && o.NotCompared != ""
	if deviates && !o.Repeated && !traced.HasState() {
		// The connection may have existed before the packet. The events do not show this.
		repeated := o
		repeated.Packet.Status, repeated.Differences = rules.StatusConfirmed, nil
		repeated.NotCompared, repeated.Uncertain = "", false
		repeated.compare(rs, options)
		if len(repeated.Differences) == 0 && repeated.NotCompared == "" {
			o = repeated
			o.Repeated = true
		}
	}
	if slices.ContainsFunc(o.Steps, o.isUncompared) {
		o.Uncertain = true
	}
	if o.Uncertain {
		o.Message = UncertainPrefix + o.Message
	}
	return o, true
}

// isUncompared reports whether the step is a report of iptables-legacy that was not compared with a
// prediction, although the outcome may be based on it. Policies are never compared.
func (o *Observation) isUncompared(s Step) bool {
	switch {
	case s.Event.Number == 0:
		return false
	case s.Event.Verdict == trace.Drop && !o.Predicted.Outcome.Dropped:
		return o.NotCompared != "" || s.Index < 0 || !o.isComparable(s.Base)
	}
	return o.NotCompared != "" && s.Index >= 0
}

// isRepeated reports whether, according to the kernel, the connection existed before the packet. It
// ignores the events of a packet on lo at prerouting, because the packet itself created the
// connection at output.
func isRepeated(p trace.Packet) bool {
	for _, e := range p.Events {
		if e.Header != nil && e.In != p.Events[0].In {
			return false
		}
		if e.Confirmed {
			return true
		}
	}
	return false
}

// PacketOf returns the packet that entered the first hook. p.Header() must not be nil. interfaces
// contains the names of interfaces by index.
func PacketOf(p trace.Packet, interfaces map[uint32]string) rules.Packet {
	first, h := p.Events[0], p.Header()
	packet := rules.Packet{
		Hook: rules.Output, Protocol: h.Protocol, Source: h.Source, Destination: h.Destination,
		Mark: first.Mark, Flags: h.Flags,
		ICMPType: h.ICMPType, ICMPCode: h.ICMPCode, OutInterface: interfaces[first.Out],
	}
	if first.In != 0 {
		packet.Hook, packet.OutInterface = rules.Prerouting, ""
		packet.InInterface = interfaces[first.In]
	}
	return packet
}

// stepsOf returns the matching rules and the policies that the events report.
func stepsOf(rs *rules.Ruleset, p trace.Packet) []Step {
	var steps []Step
	var base *rules.Base
	var current *rules.Packet
	hasLegacy := false
	for _, e := range p.Events {
		if e.Table == trace.Table && e.Number == 0 {
			continue // a rule that selects the packet for tracing
		}
		if e.Number > 0 {
			s := legacyStep(rs, e)
			isUserChainEnd := s.Chain != nil && s.Chain.Base == nil && s.Index < 0
			if !isUserChainEnd && !isTraceMark(&s) {
				steps, hasLegacy = append(steps, s), true
			}
			continue
		}
		s := nftStep(rs, e)
		// The kernel reports the header only in the first event of a base chain.
		if e.Header != nil && s.Chain != nil {
			base = s.Chain.Base
			current = currentPacket(base, e.Header)
		}
		if s.Index >= 0 {
			s.selectBranch(current)
		}
		if base != nil {
			s.Base, s.Hook = base, base.Hook
		}
		if e.Kind == trace.Rule || e.Kind == trace.Policy {
			steps = append(steps, s)
		}
	}
	if hasLegacy {
		sortSteps(rs, steps)
	}
	return steps
}

// nftStep returns the step for an event of nf_tables. It does not set Base and Hook. Index is -1 if
// the event is not about a rule, or if the ruleset lacks the rule.
func nftStep(rs *rules.Ruleset, e trace.Event) Step {
	s := Step{Event: e, Owner: foreign.OwnerNFT}
	s.Index = -1
	for i := range rs.Tables {
		t := &rs.Tables[i]
		if t.Name != e.Table || t.Family != e.Family || compat.IsLegacyTable(t) {
			continue
		}
		if s.Table, s.Chain = t, t.Chain(e.Chain); s.Chain != nil {
			s.Index = slices.IndexFunc(s.Chain.Rules, func(r rules.Rule) bool {
				return r.Handle == e.Handle && e.Handle != 0
			})
			s.Owner = foreign.OwnerOf(rs, &s.Step)
		}
	}
	return s
}

// noRule is the message for a packet that no rule captures or excludes.
const noRule = "not captured: no rule captures it"

// setOutcome sets the outcome of the packet, its message and the local port.
func (o *Observation) setOutcome() {
	o.Outcome, o.Message = NotCaptured, noRule
	if o.Packet.Hook == rules.Prerouting || o.Packet.Destination.Addr().IsLoopback() {
		o.LocalPort = o.Packet.Destination.Port()
	}
	for _, s := range o.Steps {
		if s.Event.Verdict == trace.Drop {
			o.Outcome, o.Message, o.LocalPort = Dropped, "dropped by "+s.String(), 0
			return
		}
		if s.Index < 0 || o.Outcome == Captured || endedWithoutEffect(s) {
			continue
		}
		reason := s.Rule().Comment
		if reason == "" {
			reason = s.String()
		}
		for _, a := range s.Rule().Actions {
			o.applyAction(&s, a, reason)
		}
	}
}

// applyAction sets the outcome to the effect of an action of the step's rule. reason describes the
// rule.
func (o *Observation) applyAction(s *Step, action rules.Action, reason string) {
	switch a := action.(type) {
	case rules.RedirectTo:
		if s.Ambiguous {
			o.Outcome, o.Message, o.LocalPort = Captured, "captured: "+reason, 0
			return
		}
		o.Outcome, o.Message = Captured, fmt.Sprintf("captured: %s (%d)", reason, a.Port)
		o.LocalPort = redirectedPort(a, o.Packet.Destination.Port())
	case rules.TProxy:
		// Without a listener the rule ends without a verdict.
		if s.Event.Verdict == trace.Accept {
			o.Outcome, o.Message = Captured, fmt.Sprintf("captured: %s (%d)", reason, a.Port)
			o.LocalPort = a.Port
		}
	case rules.TProxyDrop:
		// The target drops the packet if no proxy listens, which the events do not show.
		o.Outcome, o.Message = Captured, fmt.Sprintf("captured: %s (%d)", reason, a.Port)
		o.LocalPort = a.Port
	case rules.DNATTo, rules.DNATPort:
		o.LocalPort = 0
	case rules.SNATTo:
		if s.Owner == foreign.OwnerSluice {
			o.Message = fmt.Sprintf("not captured: %s (%s)", reason, a.Addr)
		}
	case rules.Verdict:
		if s.Owner == foreign.OwnerSluice && s.Base != nil && s.Base.Type == rules.NAT {
			o.Message = "not captured: " + reason + o.portText(s.Rule())
		}
	}
}

// redirectedPort returns the port to which a redirect changes the destination port of a packet. It
// returns 0 if the redirect selects a port of a range.
func redirectedPort(to rules.RedirectTo, port uint16) uint16 {
	switch {
	case to.Port == 0:
		return port
	case to.Last > to.Port:
		return 0
	}
	return to.Port
}

// portText returns a space and the destination port if the rule matches ports. Otherwise it returns
// an empty text.
func (o *Observation) portText(r *rules.Rule) string {
	for _, m := range r.Matches {
		if _, ok := m.(rules.MatchPort); ok {
			return fmt.Sprintf(" %d", o.Packet.Destination.Port())
		}
	}
	return ""
}

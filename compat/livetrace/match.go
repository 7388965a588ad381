// Package livetrace finds the rules that traced packets matched, describes the outcome of the
// packets, and compares it with the prediction of package diff.
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

// Outcome is a class of outcomes.
type Outcome string

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
	// Steps are the matching rules at all hooks.
	Steps []Step
	// Outcome and Message describe the outcome. Message begins with the outcome in words.
	Outcome Outcome
	Message string
	// LocalPort is the port on which a local socket receives the packet, or 0 if it is unknown or
	// the packet is not delivered locally.
	LocalPort uint16
	// Predicted is the path that package diff predicts; Differences are deviations of the kernel
	// from it.
	Predicted   rules.Trace
	Differences []string
	// NotCompared is the reason why the paths were not compared; empty if they were.
	NotCompared string
	// Repeated reports that the packet is not the first one of its connection, such as a
	// retransmitted SYN. NAT is already determined, and the outcome is not the connection's.
	Repeated bool

	marked bool // iptables-legacy marks packets, before conntrack
}

// Match returns the observation of a packet. The packet contains known facts that the events lack,
// such as its owner and the names of interfaces. The ruleset is the live one. Match returns false
// if the first event of the packet was lost.
func Match(
	rs *rules.Ruleset, p trace.Packet, packet rules.Packet, ownerKnown bool,
) (Observation, bool) {
	if p.Header() == nil {
		return Observation{}, false
	}
	o := Observation{Time: p.Time, Packet: packet, Steps: stepsOf(rs, p), marked: hasMarks(rs)}
	if o.Repeated = repeated(p); o.Repeated {
		o.Packet.Status = rules.StatusConfirmed
	}
	o.decide()
	if o.Outcome == NotCaptured && o.Message == noRule && packet.Mark&rules.AmbientMarkMask == rules.ZtunnelMark &&
		rs.RedirectsToZtunnel() {
		o.Message = "not captured: sent by ztunnel"
	}
	o.compare(rs, ownerKnown)
	if len(o.Differences) > 0 && !o.Repeated && !p.HasState() {
		// Whether the connection existed before is unknown.
		second := o
		second.Packet.Status, second.Differences = rules.StatusConfirmed, nil
		if second.compare(rs, ownerKnown); len(second.Differences) == 0 && second.NotCompared == "" {
			o = second
			o.Repeated = true
		}
	}
	return o, true
}

// repeated reports whether the connection existed before the packet according to the kernel. A
// packet on lo already traversed output.
func repeated(p trace.Packet) bool {
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

// PacketOf returns the packet that entered the first hook.
func PacketOf(p trace.Packet, interfaces map[uint32]string) rules.Packet {
	first, h := p.Events[0], p.Header()
	packet := rules.Packet{
		Hook: rules.Output, Protocol: h.Protocol, Source: h.Source, Destination: h.Destination,
		Mark: first.Mark, Flags: h.Flags,
		ICMPType: h.ICMPType, ICMPCode: h.ICMPCode, OutInterface: interfaces[first.Out],
	}
	if first.In != 0 {
		packet.Hook, packet.InInterface, packet.OutInterface = rules.Prerouting,
			interfaces[first.In], ""
	}
	return packet
}

// stepsOf returns the rules of the events.
func stepsOf(rs *rules.Ruleset, p trace.Packet) []Step {
	var steps []Step
	var base *rules.Base
	var current *rules.Packet
	merged := false
	for _, e := range p.Events {
		if e.Table == trace.Table && e.Number == 0 {
			continue // the selection of the packet
		}
		if e.Number > 0 {
			s := legacyStep(rs, e)
			// The end of a user-defined chain, and a jump to the rules that mark packets, are no
			// steps.
			if s.Chain == nil || s.Chain.Base != nil && !marks(&s) || s.Index >= 0 && !marks(&s) {
				steps, merged = append(steps, s), true
			}
			continue
		}
		s := Step{Event: e, Owner: foreign.OwnerNFT}
		s.Index = -1
		for i := range rs.Tables {
			t := &rs.Tables[i]
			if t.Name != e.Table || t.Family != e.Family || compat.IsLegacy(t) {
				continue
			}
			if s.Table, s.Chain = t, t.Chain(e.Chain); s.Chain != nil {
				s.Index = slices.IndexFunc(s.Chain.Rules, func(r rules.Rule) bool {
					return r.Handle == e.Handle && e.Handle != 0
				})
				s.Owner = foreign.OwnerOf(&s.Step)
			}
		}
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
	if merged {
		inOrder(rs, steps)
	}
	return steps
}

// noRule is the message of a packet without a rule that decides.
const noRule = "not captured: no rule captures it"

// decide sets the outcome of the packet.
func (o *Observation) decide() {
	o.Outcome, o.Message = NotCaptured, noRule
	if o.Packet.Hook == rules.Prerouting || o.Packet.Destination.Addr().IsLoopback() {
		o.LocalPort = o.Packet.Destination.Port()
	}
	for _, s := range o.Steps {
		if s.Event.Verdict == trace.Drop {
			o.Outcome, o.Message, o.LocalPort = Dropped, "dropped by "+s.String(), 0
			return
		}
		if s.Index < 0 || o.Outcome == Captured {
			continue
		}
		reason := s.Rule().Comment
		if reason == "" {
			reason = s.String()
		}
		for _, a := range s.Rule().Actions {
			switch a := a.(type) {
			case rules.RedirectTo:
				if s.Ambiguous {
					o.Outcome, o.Message, o.LocalPort = Captured, "captured: "+reason, 0
					break
				}
				o.Outcome, o.Message = Captured, fmt.Sprintf("captured: %s (%d)", reason, a.Port)
				o.LocalPort = redirectedPort(a, o.Packet.Destination.Port())
			case rules.TProxy:
				// else no listener was there, and the rule ended
				if s.Event.Verdict == trace.Accept {
					o.Outcome, o.Message = Captured,
						fmt.Sprintf("captured: %s (%d)", reason, a.Port)
					o.LocalPort = a.Port
				}
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
	}
}

// redirectedPort returns the port to which a redirect without a range leads, or 0.
func redirectedPort(to rules.RedirectTo, port uint16) uint16 {
	switch {
	case to.Port == 0:
		return port
	case to.Last > to.Port:
		return 0
	}
	return to.Port
}

// portText returns the destination port if the rule matches ports.
func (o *Observation) portText(r *rules.Rule) string {
	for _, m := range r.Matches {
		if _, ok := m.(rules.MatchPort); ok {
			return fmt.Sprintf(" %d", o.Packet.Destination.Port())
		}
	}
	return ""
}

// compare compares the path with the prediction of package diff.
func (o *Observation) compare(rs *rules.Ruleset, ownerKnown bool) {
	if o.Packet.Hook == rules.Output && !ownerKnown {
		o.NotCompared = "the owner of the socket is not known"
		return
	}
	others := withoutMarks(rs)
	o.Predicted = diff.Explain(&others, o.Packet)
	switch {
	case o.Predicted.Exhausted != "":
		o.NotCompared = "the prediction takes too much work: " + o.Predicted.Exhausted
		return
	case o.Predicted.Outcome.Undecided != "":
		o.NotCompared = "the model cannot predict: " + o.Predicted.Outcome.Undecided
		return
	case len(o.Predicted.Uncertain) > 0:
		o.NotCompared = "the model cannot predict the path: " + o.Predicted.Uncertain[0]
		return
	case len(o.Predicted.Alternatives) > 0:
		o.NotCompared = "the path depends on chance"
		return
	}
	predicted, observed := o.predictedPath(), o.observedPath()
	for i := range max(len(predicted), len(observed)) {
		p, k := at(predicted, i), at(observed, i)
		switch {
		case p == k:
		case setsTrace(o.Predicted):
			o.NotCompared = "a rule sets nftrace, after which the kernel may report no further rules"
			return
		case o.mayLackEvents():
			o.NotCompared = "after NAT, the events of the two backends cannot be assigned to one packet"
			return
		default:
			o.Differences = append(o.Differences,
				fmt.Sprintf("rule %d of the path: the model predicted %s, the kernel ran %s", i+1,
					p, k))
			return
		}
	}
}

// mayLackEvents reports whether a [trace.Collector] may have taken the events of one packet for
// those of two. The log of iptables-legacy has no id of the packet, and after NAT only TCP has a
// header by which it is recognised.
func (o *Observation) mayLackEvents() bool {
	var isLegacy, isNative, isTranslated bool
	add := func(s rules.Step) {
		if s.Table == nil {
			return
		}
		isLegacy, isNative = isLegacy || compat.IsLegacy(s.Table), isNative || !compat.IsLegacy(s.Table)
		if s.Chain == nil || s.Index < 0 {
			return
		}
		isTranslated = isTranslated || slices.ContainsFunc(s.Rule().Actions, func(a rules.Action) bool {
			switch a.(type) {
			case rules.RedirectTo, rules.DNATTo, rules.DNATPort:
				return true
			}
			return false
		})
	}
	for _, s := range o.Steps {
		add(s.Step)
	}
	for _, pass := range o.Predicted.Passes {
		for _, s := range pass.Steps {
			add(s)
		}
	}
	return o.Packet.Protocol != rules.TCP && isLegacy && isNative && isTranslated
}

// setsTrace reports whether a rule of the path determines whether the kernel reports further rules.
func setsTrace(path rules.Trace) bool {
	for _, pass := range path.Passes {
		for _, s := range pass.Steps {
			if slices.ContainsFunc(s.Rule().Actions, func(a rules.Action) bool {
				u, ok := a.(rules.Unknown)
				return ok && u.State == rules.TraceState
			}) {
				return true
			}
		}
	}
	return false
}

func at(path []string, i int) string {
	if i < len(path) {
		return path[i]
	}
	return "no further rule"
}

// traced reports whether packets of the protocol are traced in the base chain and evaluated by
// package diff.
func (o *Observation) traced(b *rules.Base) bool {
	return b != nil && (b.Hook == rules.Prerouting || b.Hook == rules.Output) &&
		(o.Packet.Protocol == rules.TCP || o.marked || b.Position() > rules.ConntrackPriority)
}

// rulePosition returns the position of a rule in the kernel's terms.
func rulePosition(f rules.Family, table, chain string, h rules.Handle) string {
	return fmt.Sprintf("%s %s %s handle %d", f, table, chain, h)
}

func (o *Observation) predictedPath() []string {
	var path []string
	for _, pass := range o.Predicted.Passes {
		for _, s := range pass.Steps {
			switch {
			case !o.traced(s.Base) || jumpsToMarks(s.Rule()) || isUnmatched(s):
			case compat.IsLegacy(s.Table):
				path = append(path,
					legacyPlace(s.Table.Family, s.Table.Name, s.Chain.Name, s.Index+1))
			default:
				path = append(path,
					rulePosition(s.Table.Family, s.Table.Name, s.Chain.Name, s.Rule().Handle))
			}
		}
	}
	return slices.Compact(path) // a map of the kernel is several rules of the model
}

// isUnmatched reports whether the rule ended early, so that the kernel does not report it.
func isUnmatched(s rules.Step) bool {
	_, drops := s.Stopped.(rules.TProxyDrop)
	return s.Stopped != nil && !drops
}

// endedWithoutEffect reports whether the rule ended without an effect although the model's rule has
// a verdict: a map has no verdict for the packet but "continue", or NAT is for the other family.
// The model has no rule for that, and the kernel reports a match without a verdict.
func endedWithoutEffect(s Step) bool {
	return s.Event.Verdict == trace.Continue && s.Index >= 0 &&
		slices.ContainsFunc(s.Rule().Actions, func(a rules.Action) bool {
			switch a.(type) {
			case rules.Verdict, rules.Jump, rules.DNATTo, rules.DNATPort, rules.SNATTo, rules.RedirectTo:
				return true
			}
			return false
		})
}

func (o *Observation) observedPath() []string {
	var path []string
	for _, s := range o.Steps {
		switch e := s.Event; {
		case e.Kind != trace.Rule || !o.traced(s.Base) || endedWithoutEffect(s):
		case e.Number == 0:
			path = append(path, rulePosition(e.Family, e.Table, e.Chain, e.Handle))
		case s.Index >= 0 || s.Chain == nil:
			path = append(path, legacyPlace(e.Family, e.Table, e.Chain, e.Number))
		}
	}
	return slices.Compact(path)
}

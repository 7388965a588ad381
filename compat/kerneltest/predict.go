package kerneltest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// ModelIsComplete makes tests fail if the model disagrees with the kernel. Otherwise tests only
// report a disagreement.
const ModelIsComplete = true

// Explain returns the model's outcome of the packet, and the alternatives that depend on chance.
func Explain(
	rs *rules.Ruleset, p rules.Packet,
) (outcome rules.Outcome, alternatives []rules.Outcome) {
	t := diff.Explain(rs, p)
	if t.Outcome.Rejected != "" && len(t.DependsOn) > 0 {
		// If the packet was translated before, its answer may have no route.
		t.Alternatives = append(t.Alternatives, rules.Outcome{Dropped: true})
	}
	return t.Outcome, t.Alternatives
}

// An Effect contains the observable part of an outcome.
type Effect struct {
	Dropped bool
	// Answer is the answer to the sender of a dropped packet; see [Observation].
	Answer string
	To     netip.AddrPort
	Mark   uint32
	// From is the source address of a packet that leaves the host, if postrouting may have
	// translated it; otherwise it is invalid.
	From netip.Addr
	// TProxy is the owner of the transparent listener to which the packet is assigned.
	TProxy    rules.Owner
	TProxied  bool
	Untracked bool
	// Rerouted reports that the packet was routed to lo instead of leaving the host.
	Rerouted bool
	// HasConnection reports whether the following fields are valid.
	HasConnection bool
	ConntrackMark uint32
	Zone          uint16
	// Original is the original destination of the connection, known for packets in the direction of
	// its first packet.
	Original netip.AddrPort
}

// String returns the effect in one line.
func (e Effect) String() string {
	if e.Dropped && e.Answer != "" {
		return "dropped, answered with " + e.Answer
	}
	if e.Dropped {
		return "dropped"
	}
	text := fmt.Sprintf("to %s mark 0x%x", e.To, e.Mark)
	if e.TProxied {
		text += fmt.Sprintf(" with the listener of %d:%d", e.TProxy.UID, e.TProxy.GID)
	}
	if e.Rerouted {
		text += " rerouted"
	}
	if e.Untracked {
		text += " untracked"
	}
	if e.HasConnection {
		text += fmt.Sprintf(" connection mark 0x%x zone %d", e.ConntrackMark, e.Zone)
	}
	return text
}

// Effect returns the observed effect. It returns an error if the packet disappeared between hooks.
func (o *Observation) Effect(p *rules.Packet) (Effect, error) {
	last := o.lastEntry("prerouting end")
	if p.Hook == rules.Output {
		sent := o.lastEntry("output end")
		out := o.lastEntry("postrouting")
		switch {
		case sent == nil:
			return Effect{Dropped: true, Answer: o.Answer}, nil
		case out == nil:
			return Effect{}, fmt.Errorf("%w: it left output, but did not come to postrouting",
				errUnsendable)
		case out.Out != "lo":
			last = o.lastEntry("postrouting end")
		case o.lastEntry("prerouting begin") == nil:
			return Effect{}, fmt.Errorf("%w: it left by lo, but did not arrive", errUnsendable)
		}
	}
	if last == nil {
		return Effect{Dropped: true, Answer: o.Answer}, nil
	}
	result := Effect{To: last.To, Mark: last.Mark, Untracked: last.State == rules.Untracked}
	if last.Position == "postrouting end" {
		result.From = last.From.Addr()
	}
	if last.Owner != nil && last.Position == "prerouting end" {
		result.TProxied, result.TProxy = true, *last.Owner
	}
	result.Rerouted = p.Hook == rules.Output && p.OutInterface != "lo" &&
		last.Position == "prerouting end"
	if c := last.Connection; c != nil {
		result.HasConnection, result.ConntrackMark, result.Zone = true, c.Mark, c.Zone
		if isOriginal(p) {
			result.Original = c.Original
		}
	}
	return result, nil
}

// predictsAny reports whether one of the possible outcomes predicts the effect.
func predictsAny(
	p *rules.Packet, outcomes []rules.Outcome, observed Effect, listeners []Listener,
) bool {
	return slices.ContainsFunc(outcomes, func(predicted rules.Outcome) bool {
		return Predicts(p, predicted, observed, listeners)
	})
}

// Predicts reports whether the outcome predicts the effect of the packet. listeners contains the
// open listeners.
func Predicts(
	p *rules.Packet, predicted rules.Outcome, observed Effect, listeners []Listener,
) bool {
	if predicted.Dropped || observed.Dropped {
		return predicted.Dropped == observed.Dropped && answers(p, predicted, observed.Answer)
	}
	if isOriginal(p) && observed.HasConnection && observed.Original != p.Destination {
		return false
	}
	expected := Effect{}
	for _, l := range listeners {
		if l.Port == predicted.TProxy {
			expected.TProxied, expected.TProxy = true, l.Owner
		}
	}
	switch {
	case predicted.UnknownMarks == "" && predicted.Mark != observed.Mark,
		predicted.Untracked != observed.Untracked && p.State != rules.Untracked:
		return false
	case observed.HasConnection && predicted.Zone != observed.Zone,
		observed.HasConnection && predicted.UnknownMarks == "" &&
			predicted.ConntrackMark != observed.ConntrackMark:
		return false
	case expected.TProxied != observed.TProxied, expected.TProxy != observed.TProxy:
		return false
	case predicted.TProxy != 0 && !expected.TProxied:
		return false
	case !sentFrom(p, predicted, observed.From):
		return false
	case p.Status&rules.StatusDNAT != 0 && !isTranslated(predicted):
		return true // the outcome does not contain the destination of earlier packets
	case !sentTo(p, predicted, observed.To):
		return false
	}
	return isTranslated(predicted) || predicted.Rerouted == observed.Rerouted
}

// isOriginal reports whether the packet's destination is the original destination of its
// connection. This is the case for packets of TCP and UDP, except replies and related packets.
func isOriginal(p *rules.Packet) bool {
	return !p.Reply && p.State != rules.Related && (p.Protocol == rules.TCP ||
		p.Protocol == rules.UDP)
}

// icmpCodes contains types and codes by the names that rules use.
var icmpCodes = map[string]string{
	"icmp net-unreachable":    "icmp 3/0",
	"icmp host-unreachable":   "icmp 3/1",
	"icmp prot-unreachable":   "icmp 3/2",
	"icmp port-unreachable":   "icmp 3/3",
	"icmp net-prohibited":     "icmp 3/9",
	"icmp host-prohibited":    "icmp 3/10",
	"icmp admin-prohibited":   "icmp 3/13",
	"icmpv6 no-route":         "ipv6-icmp 1/0",
	"icmpv6 admin-prohibited": "ipv6-icmp 1/1",
	"icmpv6 addr-unreachable": "ipv6-icmp 1/3",
	"icmpv6 port-unreachable": "ipv6-icmp 1/4",
	"icmpv6 policy-fail":      "ipv6-icmp 1/5",
	"icmpv6 reject-route":     "ipv6-icmp 1/6",
}

// icmpxCodes contains types and codes by the names that apply to both families.
var icmpxCodes = map[string]map[rules.Family]string{
	"no-route":         {rules.IPv4: "icmp 3/0", rules.IPv6: "ipv6-icmp 1/0"},
	"port-unreachable": {rules.IPv4: "icmp 3/3", rules.IPv6: "ipv6-icmp 1/4"},
	"host-unreachable": {rules.IPv4: "icmp 3/1", rules.IPv6: "ipv6-icmp 1/3"},
	"admin-prohibited": {rules.IPv4: "icmp 3/13", rules.IPv6: "ipv6-icmp 1/1"},
}

// answers reports whether the kernel may send this answer to a packet with the outcome. The kernel
// answers only packets between single hosts, and no resets or ICMP errors (nf_send_reset and
// nf_send_unreach in net/ipv4/netfilter/nf_reject_ipv4.c, icmp_send in net/ipv4/icmp.c).
func answers(p *rules.Packet, outcome rules.Outcome, answer string) bool {
	rejected := outcome.Rejected
	with := strings.TrimPrefix(rejected, "reject with ")
	want := icmpCodes[with]
	if both, ok := strings.CutPrefix(with, "icmpx "); ok {
		want = icmpxCodes[both][p.Family()]
	}
	switch {
	case with == "tcp reset":
		want = with
	case rejected == "reject":
		want = icmpxCodes["port-unreachable"][p.Family()]
	}
	if answer == "" && want != "" {
		// A translation or another mark may have routed the packet to lo, where the answer has no
		// route.
		return isTranslated(outcome) || outcome.Mark != p.Mark || !isAnswered(p, with)
	}
	return answer == want
}

// isTranslated reports whether the outcome changes the destination of the packet.
func isTranslated(outcome rules.Outcome) bool {
	return outcome.Redirect != 0 || outcome.ToHost || outcome.DNATPort != 0 ||
		outcome.DNATAddr.IsValid()
}

// isAnswered reports whether the kernel always answers the packet if its destination is unchanged.
func isAnswered(p *rules.Packet, with string) bool {
	switch {
	case p.Hook != rules.Output || p.OutInterface == "lo" || p.Bound ||
		p.Source.Addr().IsLinkLocalUnicast() || p.DestinationType == rules.Multicast ||
		p.DestinationType == rules.Broadcast:
		return false
	case with == "tcp reset":
		return p.Flags&rules.RST == 0
	}
	return p.Protocol == rules.TCP || p.Protocol == rules.UDP
}

// sentFrom reports whether a packet with the outcome may leave with the source. The outcome
// contains neither the source of a connection that was translated before nor a source that the
// kernel selects.
func sentFrom(p *rules.Packet, outcome rules.Outcome, from netip.Addr) bool {
	switch {
	case !from.IsValid(), outcome.SNAT != "", p.Status&(rules.StatusSNAT|rules.StatusDNAT) != 0:
		return true
	case outcome.SNATAddr.IsValid():
		return from == outcome.SNATAddr
	}
	return from == p.Source.Addr()
}

// sentTo reports whether a packet with the outcome may leave with the destination.
func sentTo(p *rules.Packet, outcome rules.Outcome, to netip.AddrPort) bool {
	wantAddr, last := p.Destination.Addr(), netip.Addr{}
	wantPort, lastPort := p.Destination.Port(), uint16(0)
	switch {
	case outcome.Redirect != 0 || outcome.ToHost:
		wantAddr = p.InAddress
		if p.Hook == rules.Output {
			wantAddr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
			if to.Addr().Is6() {
				wantAddr = netip.IPv6Loopback()
			}
		}
		if outcome.Redirect != 0 {
			wantPort, lastPort = outcome.Redirect, outcome.RedirectLast
		}
	case outcome.DNATAddr.IsValid() || outcome.DNATPort != 0:
		if outcome.DNATAddr.IsValid() {
			wantAddr, last = outcome.DNATAddr, outcome.DNATAddrLast
		}
		if outcome.DNATPort != 0 {
			wantPort, lastPort = outcome.DNATPort, outcome.DNATPortLast
		}
	}
	if !last.IsValid() {
		last = wantAddr
	}
	if lastPort == 0 {
		lastPort = wantPort
	}
	return wantAddr.Compare(to.Addr()) <= 0 && to.Addr().Compare(last) <= 0 &&
		wantPort <= to.Port() && to.Port() <= lastPort
}

package kerneltest

import (
	"net/netip"
	"slices"

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
		return predicted.Dropped == observed.Dropped && mayHaveAnswer(p, predicted, observed.Answer)
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
	case !mayHaveSource(p, predicted, observed.From):
		return false
	case p.Status&rules.StatusDNAT != 0 && !isTranslated(predicted):
		return true // the outcome does not contain the destination of earlier packets
	case !mayHaveDestination(p, predicted, observed.To):
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

// isTranslated reports whether the outcome changes the destination of the packet.
func isTranslated(outcome rules.Outcome) bool {
	return outcome.Redirect != 0 || outcome.ToHost || outcome.DNATPort != 0 ||
		outcome.DNATAddr.IsValid()
}

// mayHaveSource reports whether a packet with the outcome may leave with the source. The outcome
// contains neither the source of a connection that was translated before nor a source that the
// kernel selects.
func mayHaveSource(p *rules.Packet, outcome rules.Outcome, from netip.Addr) bool {
	switch {
	case !from.IsValid(), outcome.SNAT != "", p.Status&(rules.StatusSNAT|rules.StatusDNAT) != 0:
		return true
	case outcome.SNATAddr.IsValid():
		return from == outcome.SNATAddr
	}
	return from == p.Source.Addr()
}

// mayHaveDestination reports whether a packet with the outcome may leave with the destination.
func mayHaveDestination(p *rules.Packet, outcome rules.Outcome, to netip.AddrPort) bool {
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

package kerneltest

import (
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// Explain returns the model's outcome of the packet, and the other outcomes that the packet may
// have because the results of some matches depend on chance.
func Explain(
	rs *rules.Ruleset, p rules.Packet,
) (outcome rules.Outcome, alternatives []rules.Outcome) {
	explanation := diff.Explain(rs, p)
	alternatives = explanation.Alternatives
	if explanation.Outcome.Rejected != "" && len(explanation.DependsOn) > 0 {
		// A match that depends on chance may have led to a translation before the rejection. The
		// answer may then have no route.
		alternatives = append(alternatives, rules.Outcome{Dropped: true})
	}
	return explanation.Outcome, alternatives
}

// predictsAny reports whether one of the possible outcomes predicts the observed effect.
func predictsAny(
	p *rules.Packet, outcomes []rules.Outcome, observed Effect, openListeners []Listener,
) bool {
	return slices.ContainsFunc(outcomes, func(predicted rules.Outcome) bool {
		return Predicts(p, predicted, observed, openListeners)
	})
}

// Predicts reports whether the outcome predicts the observed effect on the packet.
func Predicts(
	p *rules.Packet, predicted rules.Outcome, observed Effect, openListeners []Listener,
) bool {
	if predicted.Dropped || observed.Dropped {
		return predicted.Dropped == observed.Dropped && mayHaveAnswer(p, predicted, observed.Answer)
	}
	if isOriginal(p) && observed.HasConnection && observed.Original != p.Destination {
		return false
	}
	var predictedListener Listener
	for _, l := range openListeners {
		if l.Port == predicted.TProxy {
			predictedListener = l
		}
	}
	isTProxied := predicted.TProxy != 0
	marksAreKnown := predicted.UnknownMarks == ""
	switch {
	case marksAreKnown && predicted.Mark != observed.Mark,
		p.State != rules.Untracked && predicted.Untracked != observed.Untracked:
		return false
	case observed.HasConnection && predicted.Zone != observed.Zone,
		observed.HasConnection && marksAreKnown &&
			predicted.ConntrackMark != observed.ConntrackMark:
		return false
	case isTProxied != observed.TProxied, predictedListener.Owner != observed.TProxy:
		return false
	case isTProxied && predictedListener.Port == 0: // no such listener is open
		return false
	case !mayHaveSource(p, predicted, observed.From):
		return false
	case p.Status&rules.StatusDNAT != 0 && !isTranslated(predicted):
		return true // the outcome does not contain the destination of earlier packets
	case !mayHaveDestination(p, predicted, observed.To):
		return false
	}
	return isTranslated(predicted) || predicted.Rerouted == observed.Rerouted &&
		predicted.LeavesLoopback == observed.LeftLoopback
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

// mayHaveSource reports whether a packet with the outcome may leave with the source. It returns
// true if the source was not observed, if the kernel selects the source, or if NAT translated
// earlier packets of the connection. In the last two cases the outcome does not contain the source.
func mayHaveSource(p *rules.Packet, outcome rules.Outcome, from netip.Addr) bool {
	switch {
	case !from.IsValid(), outcome.SNAT != "", p.Status&(rules.StatusSNAT|rules.StatusDNAT) != 0:
		return true
	case outcome.SNATAddr.IsValid():
		return from == outcome.SNATAddr
	}
	return from == p.Source.Addr()
}

// mayHaveDestination reports whether a packet with the outcome may have the destination after all
// rules.
func mayHaveDestination(p *rules.Packet, outcome rules.Outcome, to netip.AddrPort) bool {
	// The allowed destinations are ranges. A last value that is not set equals the first one.
	firstAddr, lastAddr := p.Destination.Addr(), netip.Addr{}
	firstPort, lastPort := p.Destination.Port(), uint16(0)
	switch {
	case outcome.Redirect != 0 || outcome.ToHost:
		firstAddr = p.InAddress
		if p.Hook == rules.Output {
			firstAddr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
			if to.Addr().Is6() {
				firstAddr = netip.IPv6Loopback()
			}
		}
		if outcome.Redirect != 0 {
			firstPort, lastPort = outcome.Redirect, outcome.RedirectLast
		}
	case outcome.DNATAddr.IsValid() || outcome.DNATPort != 0:
		if outcome.DNATAddr.IsValid() {
			firstAddr, lastAddr = outcome.DNATAddr, outcome.DNATAddrLast
		}
		if outcome.DNATPort != 0 {
			firstPort, lastPort = outcome.DNATPort, outcome.DNATPortLast
		}
	}
	if !lastAddr.IsValid() {
		lastAddr = firstAddr
	}
	if lastPort == 0 {
		lastPort = firstPort
	}
	return firstAddr.Compare(to.Addr()) <= 0 && to.Addr().Compare(lastAddr) <= 0 &&
		firstPort <= to.Port() && to.Port() <= lastPort
}

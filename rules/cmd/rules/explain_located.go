package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// explainLocated prints the decision and the desired ruleset that the node agent reports for a pod,
// and the outcomes of the packets with this ruleset.
func (s *system) explainLocated(
	p *parameters, packets []rules.Packet, budget diff.Budget,
) error {
	l := p.located
	result := podExplanation{
		Pod: p.pod.String(), Outcome: l.Decision, Reason: decide.Reason(l.Reason),
		Message: l.Message, Notes: []jsonNote{},
	}
	head := fmt.Sprintf("%s: %s\n", s.color.Paint(color.Bold, result.Pod), decisionText(l))
	if l.Redirect == nil && l.Ambient == nil {
		return s.print(head, result)
	}
	ruleset, err := p.ruleset()
	if err != nil {
		return err
	}
	if n, found := s.noteOfLocated(p); found {
		head += fmt.Sprintf("  note: %s\n", n.Message)
		result.Notes = append(result.Notes, n)
	}
	return s.printRedirected(head, result, ruleset, packets, budget)
}

// noteOfLocated returns a note with the IPv6 address of a running pod whose IPv6 is not captured,
// if its namespace can be read.
func (s *system) noteOfLocated(p *parameters) (note jsonNote, found bool) {
	_ = p.inNamespace(func(ns *netns.NS) error {
		addresses, err := s.podAddresses(ns)
		captured := p.Redirect.IPv6
		if p.AmbientMode {
			captured = p.Ambient.IPv6
		}
		if i := slices.IndexFunc(addresses, netip.Addr.Is6); err == nil && i >= 0 && !captured {
			sentence := fmt.Sprintf("the pod's IPv6 is not captured: it has %s", addresses[i])
			note, found = jsonNote{decide.IPv6Uncaptured, sentence}, true
		}
		return nil
	})
	return note, found
}

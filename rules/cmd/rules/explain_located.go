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
// and the outcomes of the packets under these rules.
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
		return s.printNotRedirected(head, result, packets, budget)
	}
	ruleset, err := p.ruleset()
	if err != nil {
		return err
	}
	head += result.addNotes(s.notesOfLocated(p)...)
	return s.printRedirected(head, result, ruleset, packets, budget)
}

// notesOfLocated returns a note with the IPv6 address of a running pod whose IPv6 is not captured,
// if its namespace can be read.
func (s *system) notesOfLocated(p *parameters) (notes []decide.Note) {
	_ = p.inNamespace(func(ns *netns.NS) error {
		addresses, err := s.podAddresses(ns)
		captured := p.Redirect.IPv6
		if p.AmbientMode {
			captured = p.Ambient.IPv6
		}
		if i := slices.IndexFunc(addresses, netip.Addr.Is6); err == nil && i >= 0 && !captured {
			notes = append(notes, decide.Note{
				Kind:    decide.IPv6Uncaptured,
				Message: fmt.Sprintf("the pod's IPv6 is not captured: it has %s", addresses[i]),
			})
		}
		return nil
	})
	return notes
}

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-mesh/sluice/rules"
)

func newExplainCommand(s *system) *cobra.Command {
	in := &inputs{
		sections: captureSectionsAnd(sectionNamespace, sectionAgent, sectionNode, sectionRunDir,
			sectionBackend, sectionLive, sectionExplain, sectionBudget, sectionOutput),
		ignoredSections: actionSections,
	}
	var packets []rules.Packet
	in.check = func(p *parameters, args []string) []error {
		var errs []error
		texts := packetTexts(args)
		if text, err := p.packet.text(args); err != nil {
			errs = append(errs, err)
		} else if text != "" {
			texts = []string{text}
		} else if p.packet.isInvalid {
			texts = nil
		}
		var wrong []error
		packets, wrong = parsePackets(texts)
		errs = append(errs, wrong...)
		if p.config != "" && p.podFile == "" {
			errs = append(errs, errors.New("--config requires --pod with a file"))
		}
		if p.podFile != "" {
			if err := checkFile(p.podFile); err != nil {
				errs = append(errs, workloadError(err))
			}
			return slices.Concat(errs, in.podConflicts(p), in.backendWithoutLive(p))
		}
		if p.pod != (podName{}) {
			return slices.Concat(errs, liveWithoutPacket(p, packets), in.backendWithoutLive(p))
		}
		if len(packets) == 0 && len(p.packet.words) == 0 {
			errs = append(errs,
				errors.New("no packet to explain, such as "+
					"'out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000'"))
		}
		// A namespace without a parameter of the ruleset implies --live.
		hasRuleset := len(in.givenIn(captureSections)) > 0
		p.live = p.live || !hasRuleset && (p.netnsPath != "" || p.pid != 0)
		return slices.Concat(errs, in.rejectedWithLive(p), in.backendWithoutLive(p))
	}
	cmd := s.command("explain [FLAG]... [PACKET]...", "follow a packet through the rules", in,
		func(p *parameters, _ []string) error {
			return explain(s, p, packets)
		})
	syntax := strings.Join(wrap(rules.PacketSyntax, helpWidth-2), "\n  ")
	cmd.Long = strings.Replace(cmd.Long, "$PACKET", syntax, 1)
	return cmd
}

// rejectedWithLive returns an error for each parameter of the ruleset that is given with --live.
func (in *inputs) rejectedWithLive(p *parameters) []error {
	var errs []error
	if p.live {
		for _, name := range in.givenIn(captureSections) {
			errs = append(errs,
				fmt.Errorf("--live uses the rules of the kernel: --%s has no effect on them", name))
		}
	}
	return errs
}

// backendWithoutLive returns an error for --backend without --live, because it only selects live
// rules.
func (in *inputs) backendWithoutLive(p *parameters) []error {
	if !p.live && len(in.given["backend"]) > 0 {
		return []error{errors.New("--backend requires --live: it selects the kernel's rules to read")}
	}
	return nil
}

// liveWithoutPacket returns an error for --live without a packet.
func liveWithoutPacket(p *parameters, packets []rules.Packet) []error {
	if p.live && len(packets) == 0 {
		return []error{errors.New("--live: no packet to explain")}
	}
	return nil
}

// givenIn returns the names of the flags on the command line that belong to the sections.
func (in *inputs) givenIn(sections []section) []string {
	var flags []string
	for _, p := range in.parameters {
		if len(in.given[p.flag]) > 0 && slices.Contains(sections, p.section) {
			flags = append(flags, p.flag)
		}
	}
	return flags
}

// parsePackets parses packets. It returns a packet for each text, and the errors.
func parsePackets(texts []string) ([]rules.Packet, []error) {
	var errs []error
	packets := make([]rules.Packet, len(texts))
	for i, text := range texts {
		p, err := rules.ParsePacket(text)
		if err != nil {
			errs = append(errs, err)
		}
		packets[i] = p
	}
	return packets, errs
}

// explain runs the command for the packets.
func explain(s *system, p *parameters, packets []rules.Packet) error {
	budget := p.budget.From(time.Now())
	switch {
	case p.podFile != "":
		return s.explainPod(p, packets, budget)
	case p.located != nil && !p.live:
		return s.explainLocated(p, packets, budget)
	}
	ruleset, err := s.rulesetOf(p)
	if err != nil {
		return err
	}
	var deliver func(*rules.Trace)
	if p.live {
		deliver = func(trace *rules.Trace) { s.setDelivery(p, trace) }
		for i := range packets {
			s.warnOfRoute(p, &packets[i])
		}
	}
	text, traces := s.explainPackets(ruleset, packets, budget, deliver)
	return s.print(text, explanation{traces})
}

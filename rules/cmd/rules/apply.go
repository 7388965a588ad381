package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	validator "github.com/sluice-mesh/sluice/compat/validation"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

func newApplyCommand(s *system) *cobra.Command {
	in := &inputs{sections: captureSectionsAnd(sectionNamespace, sectionBackend, sectionDryRun,
		sectionAction, sectionProbe, sectionOutput, sectionIgnored)}
	cmd := s.command("apply [FLAG]...", "program the redirection of a network namespace", in,
		func(p *parameters, _ []string) error {
			return p.inNamespace(func(ns *netns.NS) error { return apply(s, ns, p) })
		})
	cmd.Aliases = []string{"istio-iptables"}
	return cmd
}

// apply runs the command in the namespace.
func apply(s *system, ns *netns.NS, p *parameters) error {
	if p.cleanupOnly {
		return cleanup(s, ns, p)
	}
	rs, redirect, err := s.desiredRuleset(p, ns)
	if err != nil {
		return err
	}
	if !p.skipApply && redirect != nil && redirect.CapturesNothing() {
		s.warn("these parameters capture no connection, in or out, and no DNS; " +
			"-b '*' -i '*' captures all")
	}
	validates := p.runValidation && !p.dryRun
	var unprinted *applyResult
	switch {
	case p.skipApply && validates: // only validate
	case p.skipApply:
		return s.print("rules not applied (--skip-rule-apply)\n", applyResult{
			Outcome: "skipped", Namespace: ns.String(),
		})
	case p.dryRun:
		if err := s.checkIstioRules(ns, redirect); err != nil {
			s.warn("apply would be refused: %v", err)
		}
		return s.dryRun(ns, p, rs)
	default:
		s.removeStaleTrace(ns)
		if err := s.checkIstioRules(ns, redirect); err != nil {
			return systemError(err)
		}
		if unprinted, err = s.program(ns, p, rs, redirect); err != nil {
			return err
		}
	}
	if !validates {
		return nil
	}
	v := p.validation(ns, redirect)
	v.applied = unprinted
	return s.validate(s, v)
}

// validation contains the parameters of rules validate and of --run-validation.
type validation struct {
	namespace *netns.NS
	options   validator.Options
	// applied is the result of apply if it is printed as one object with the result of the
	// validation, otherwise nil.
	applied *applyResult
}

// validation returns the parameters of a validation. The redirect is the result of
// [system.desiredRuleset], nil in ambient mode.
func (p *parameters) validation(ns *netns.NS, redirect *rules.Redirect) validation {
	v := validation{namespace: ns, options: validator.Options{
		PodIPs: p.PodIPs, Port: p.probePort, Timeout: p.probeTimeout, Backend: p.backendName(),
	}}
	if redirect == nil {
		a := p.AmbientRedirect()
		v.options.Ambient = &a
	} else {
		v.options.Redirect = *redirect
	}
	return v
}

// applyResult is what apply prints.
type applyResult struct {
	Outcome   string `json:"outcome"`
	Namespace string `json:"namespace"`
	Backend   string `json:"backend,omitempty"`
	Moved     bool   `json:"moved,omitempty"`
	Rules     int    `json:"rules"`
	Sets      int    `json:"sets"`
	Elements  int    `json:"elements"`
	Routes    int    `json:"routes"`
	Bytes     int    `json:"bytes"`
	// Kept is the number of packets of older connections that the rules have not captured. It is
	// nil without --keep-established.
	Kept         *uint64 `json:"kept,omitempty"`
	Milliseconds float64 `json:"milliseconds"`
	// Validation is the result of --run-validation.
	Validation *validationResult `json:"validation,omitempty"`
}

func (applyResult) kind() string { return "Apply" }

// checkIstioRules looks for rules of Istio's own programs in the namespace. In TPROXY mode it
// returns an error for such rules, because they conflict with Sluice's. In the other modes it
// warns. The redirect is nil in ambient mode. Errors due to missing permissions or kernel features
// are ignored.
func (s *system) checkIstioRules(ns *netns.NS, redirect *rules.Redirect) error {
	tables, err := nft.FindIstio(ns)
	legacy, legacyErr := compat.FindLegacyIstio(ns)
	for _, err := range []error{err, legacyErr} {
		if err != nil && !nft.IsNotPermitted(err) && !nft.IsNotSupported(err) &&
			!errors.Is(err, unix.ENOPROTOOPT) {
			s.warn("it is unknown whether the namespace contains rules of Istio's programs: %s",
				strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	found := slices.Concat(tables, legacy)
	if len(found) == 0 {
		return nil
	}
	const maxListed = 3
	text := strings.Join(found[:min(maxListed, len(found))], "; ")
	if omitted := len(found) - maxListed; omitted > 0 {
		text += fmt.Sprintf("; and %d more", omitted)
	}
	if redirect != nil && redirect.Mode == rules.ModeTProxy {
		return fmt.Errorf("%s contains rules of Istio's programs, with which inbound connections "+
			"in TPROXY mode would get no answer (%s): remove them with rules cleanup --istio",
			ns, text)
	}
	s.warn("%s contains rules of Istio's programs, so two programs capture connections "+
		"(%s): rules cleanup --istio removes them", ns, text)
	return nil
}

// program applies the ruleset and prints the result. If the result and the validation are printed
// as one JSON object, it returns the result instead. The redirect is nil in ambient mode.
func (s *system) program(
	ns *netns.NS, p *parameters, rs rules.Ruleset, redirect *rules.Redirect,
) (*applyResult, error) {
	backend, err := p.backend()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	result, err := backend.Apply(ns, rs, compat.Snapshot{})
	if err != nil {
		return nil, systemError(err)
	}
	a := applyResult{
		Outcome: string(result.Outcome), Namespace: ns.String(), Backend: string(result.Backend),
		Moved: result.Moved,
		Rules: result.Rules, Sets: result.Sets, Elements: result.Elements, Routes: result.Routes,
		Bytes:        result.Bytes,
		Milliseconds: milliseconds(time.Since(start)),
	}
	text := a.text()
	if result.Moved {
		text += fmt.Sprintf("Sluice's rules in %s were removed\n", otherBackend(result.Backend))
	}
	if redirect != nil && redirect.KeepEstablished {
		a.Kept = &result.EstablishedPackets
		text += establishedText(result.EstablishedPackets, redirect.Mode)
	}
	if s.json && p.runValidation {
		return &a, nil
	}
	return nil, s.print(text, a)
}

// text describes the result in a line.
func (a applyResult) text() string {
	text := fmt.Sprintf("%s in %s by %s: %s", a.Outcome, a.Namespace, compat.BackendName(a.Backend),
		count(a.Rules, "rule"))
	for _, counted := range []struct {
		n    int
		noun string
	}{{a.Sets, "set"}, {a.Elements, "element"}, {a.Routes, "routing change"}, {a.Bytes, "byte"}} {
		if counted.n > 0 {
			text += ", " + count(counted.n, counted.noun)
		}
	}
	return text + fmt.Sprintf(", %.1f ms\n", a.Milliseconds)
}

// establishedText describes the number in nft.Result.EstablishedPackets.
func establishedText(packets uint64, mode rules.Mode) string {
	description := "one for each connection that conntrack did not know"
	if mode == rules.ModeTProxy {
		description = "of connections that conntrack did not know: the first packet of an " +
			"outbound connection, and of an inbound connection all until the application answers"
	}
	return fmt.Sprintf("not captured, because their connections are older than the rules: %s (%s); "+
		"packets of connections that conntrack knew are not counted\n",
		count(int(packets), "packet"), description)
}

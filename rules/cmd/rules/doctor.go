package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-mesh/sluice/compat/doctor"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
)

func newDoctorCommand(s *system) *cobra.Command {
	in := &inputs{
		sections: captureSectionsAnd(sectionNamespace, sectionAgent, sectionNode, sectionRunDir,
			sectionBackend, sectionDoctorBudget, sectionOutput),
		ignoredSections: actionSections,
	}
	return s.command("doctor [FLAG]...", "diagnose a namespace: kernel, permissions, settings, foreign rules, eBPF", in,
		func(p *parameters, _ []string) error {
			if err := p.notRedirected(); err != nil {
				return err
			}
			return p.inNamespace(func(ns *netns.NS) error { return s.runDoctor(ns, p) })
		})
}

// doctorResult is the result of the command doctor.
type doctorResult struct {
	Namespace string           `json:"namespace"`
	Kernel    string           `json:"kernel"`
	Verdict   doctor.Verdict   `json:"verdict"`
	Findings  []doctor.Finding `json:"findings"`
	Node      bool             `json:"node,omitempty"`
}

func (doctorResult) kind() string { return "Doctor" }

// runDoctor diagnoses a namespace and prints the findings.
func (s *system) runDoctor(ns *netns.NS, p *parameters) error {
	facts, findings, err := s.diagnose(ns, p)
	if err != nil {
		return err
	}
	result := doctorResult{
		Namespace: ns.String(), Kernel: facts.Kernel, Verdict: doctor.VerdictOf(findings),
		Findings: findings, Node: p.host != nil,
	}
	if err := s.print(s.doctorText(result), result); err != nil {
		return err
	}
	switch result.Verdict {
	case doctor.Degraded:
		return failure{code: exitDifferent}
	case doctor.Prevented:
		return failure{code: exitSystemError}
	}
	return nil
}

// diagnose returns the facts about the namespace, and the findings for the parameters.
func (s *system) diagnose(ns *netns.NS, p *parameters) (doctor.Facts, []doctor.Finding, error) {
	if p.located == nil && p.host == nil && !p.AmbientMode {
		if err := s.completeForDoctor(p, ns); err != nil {
			return doctor.Facts{}, nil, err
		}
	}
	rs, err := p.ruleset()
	if err != nil {
		return doctor.Facts{}, nil, err
	}
	if p.host != nil {
		facts := doctor.GatherNode(ns, rs, p.doctorBudget)
		facts.Backend = p.backendName()
		return facts.Facts, doctor.DiagnoseNode(facts, p.host.Parameters), nil
	}
	facts := doctor.Gather(ns, rs, p.doctorBudget)
	facts.Backend = p.backendName()
	ipv6 := p.uncapturedIPv6()
	facts.IPv6Bypass, facts.IPv6Unknown = ipv6.bypass, ipv6.unknown
	if p.AmbientMode {
		return facts, doctor.DiagnoseAmbient(facts, p.AmbientRedirect()), nil
	}
	return facts, doctor.Diagnose(facts, p.Redirect), nil
}

// completeForDoctor completes the parameters with the properties of the pod, as far as they can be
// determined.
func (s *system) completeForDoctor(p *parameters, ns *netns.NS) error {
	p.IdentifyProxy(p.names.Users)
	if err := s.setNameservers(p); err != nil {
		return err
	}
	if len(p.PodIPs) == 0 {
		var err error
		p.PodIPs, err = s.podAddresses(ns)
		// Without addresses there is no pod yet, and doctor reports this.
		if err != nil && !errors.Is(err, errNoAddress) {
			s.warn("the addresses of the pod cannot be read, so its IPv6 traffic may be ignored: %v", err)
		}
	}
	p.assumePod()
	p.Redirect.IPv6 = rules.CapturesIPv6(p.PodIPs, p.DualStack)
	return nil
}

// severityColor returns the color of a severity.
func severityColor(s doctor.Severity) color.Code {
	return cmp.Or(map[doctor.Severity]color.Code{
		doctor.OK: color.Green, doctor.Note: color.Bold, doctor.Warning: color.Yellow,
	}[s], color.Red)
}

// doctorText returns the verdict and the findings as text. It makes the findings printable, because
// they may contain names that a program in the namespace has chosen.
func (s *system) doctorText(result doctorResult) string {
	counts := map[doctor.Severity]int{}
	b := new(strings.Builder)
	for _, f := range result.Findings {
		counts[f.Severity]++
		fmt.Fprintf(b, "  %s  %-10s  %s\n",
			s.paint(severityColor(f.Severity), fmt.Sprintf("%-7s", f.Severity)), f.Topic,
			rules.Printable(f.Summary))
		if f.Next != "" {
			fmt.Fprintf(b, "  %7s  %10s  next: %s\n", "", "", rules.Printable(f.Next))
		}
	}
	message := result.Verdict.Message()
	if result.Node {
		message = result.Verdict.NodeMessage()
	}
	return fmt.Sprintf("%s (%s): %s, %s\n", s.paint(color.Bold, message), result.Namespace,
		count(counts[doctor.Problem], "problem"),
		count(counts[doctor.Warning], "warning")) + b.String()
}

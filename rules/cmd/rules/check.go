package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
)

func newCheckCommand(s *system) *cobra.Command {
	in := &inputs{
		sections: captureSectionsAnd(sectionNamespace, sectionAgent, sectionNode, sectionRunDir,
			sectionBackend, sectionBudget, sectionOutput),
		ignoredSections: actionSections,
	}
	return s.command("check [FLAG]...", "report whether a namespace holds exactly this ruleset", in,
		func(p *parameters, _ []string) error {
			if err := p.notRedirected(); err != nil {
				return err
			}
			return p.inNamespace(func(ns *netns.NS) error { return check(s, ns, p) })
		})
}

// checkResult is the result of check.
type checkResult struct {
	Namespace   string             `json:"namespace"`
	Backend     string             `json:"backend"`
	Equal       bool               `json:"equal"`
	Differences []rules.Difference `json:"differences"`
	// Foreign is the effect of foreign rules; omitted if there are differences.
	Foreign *foreign.Effect `json:"foreign,omitempty"`
	// IPv6Bypass is the text of the node agent about IPv6 traffic that bypasses the proxy.
	IPv6Bypass string `json:"ipv6Bypass,omitempty"`
	// IPv6Unknown is the reason why the node agent cannot decide whether there is such traffic.
	IPv6Unknown string `json:"ipv6Unknown,omitempty"`
}

func (checkResult) kind() string { return "Check" }

// check runs the command in the namespace.
func check(s *system, ns *netns.NS, p *parameters) error {
	desired, _, err := s.desiredRuleset(p, ns)
	if err != nil {
		return err
	}
	backend, err := p.backend()
	if err != nil {
		return err
	}
	found, err := backend.Check(ns, desired, compat.Snapshot{})
	if err != nil {
		if len(found.Differences) == 0 {
			return systemError(err)
		}
		// Check could not read the rules of the other backend. The differences exist anyway.
		if printErr := s.reportCheck(ns, found, nil, p.uncapturedIPv6()); exitCode(printErr) != exitDifferent {
			return printErr
		}
		return failure{exitDifferent, err}
	}
	var effect *foreign.Effect
	switch {
	case len(found.Differences) > 0: // the effect of foreign rules is not reported
	case p.host != nil:
		// The node's rules capture nothing.
		effect = &foreign.Effect{Bypasses: []foreign.Bypass{}, Unknown: []string{}}
	default:
		read := foreign.Inspect(ns, desired, p.budget)
		effect = &read.Effect
	}
	return s.reportCheck(ns, found, effect, p.uncapturedIPv6())
}

// reportCheck prints the result. The effect of foreign rules is nil if there are differences.
func (s *system) reportCheck(
	ns *netns.NS, found compat.Comparison, effect *foreign.Effect, ipv6 uncapturedIPv6,
) error {
	equal := len(found.Differences) == 0
	var lines string
	if equal {
		lines = fmt.Sprintf("equal: %s holds exactly this ruleset, by %s\n", ns, found.Backend) +
			s.effectText(effect)
	} else {
		lines = s.differencesText(found.Differences) + fmt.Sprintf("%s in %s, by %s\n",
			count(len(found.Differences), "difference"), ns, found.Backend)
	}
	if ipv6.bypass != "" {
		lines += s.paint(color.Red, "bypass: IPv6 is not captured") + "\n  " +
			rules.Printable(ipv6.bypass) + "\n"
	}
	if ipv6.unknown != "" {
		lines += s.paint(color.Red, "unknown: IPv6 is not captured, and may bypass the proxy") +
			"\n  " + rules.Printable(ipv6.unknown) + "\n"
	}
	result := checkResult{
		ns.String(), string(found.Backend), equal,
		append([]rules.Difference{}, found.Differences...), effect, ipv6.bypass,
		ipv6.unknown,
	}
	if err := s.print(lines, result); err != nil ||
		equal && effect.Verdict() == foreign.None && ipv6 == (uncapturedIPv6{}) {
		return err
	}
	return failure{code: exitDifferent}
}

// effectText describes the effect of foreign rules. It is empty if they do not let traffic bypass
// the proxy.
func (s *system) effectText(effect *foreign.Effect) string {
	title := "bypass: rules of other owners let captured traffic bypass the proxy"
	switch effect.Verdict() {
	case foreign.None:
		return ""
	case foreign.Unknown:
		title = "unknown: rules of other owners may let captured traffic bypass the proxy"
	}
	b := new(strings.Builder)
	fmt.Fprintln(b, s.paint(color.Red, title))
	for _, message := range effect.Messages() {
		fmt.Fprintf(b, "  %s\n", rules.Printable(message))
	}
	return b.String()
}

// differencesText returns the differences grouped by position, in the order of the first difference
// of each position.
func (s *system) differencesText(differences []rules.Difference) string {
	b := new(strings.Builder)
	first := map[string]int{}
	for i, d := range differences {
		if _, seen := first[d.Where]; !seen {
			first[d.Where] = i
		}
	}
	grouped := slices.Clone(differences)
	slices.SortStableFunc(grouped, func(a, b rules.Difference) int {
		return cmp.Compare(first[a.Where], first[b.Where])
	})
	where := ""
	for _, d := range grouped {
		if d.Where != where {
			where = d.Where
			fmt.Fprintln(b, s.paint(color.Bold, rules.Printable(where)))
		}
		fmt.Fprintln(b, s.differenceText(d))
	}
	return b.String()
}

// differenceText describes a difference without its position.
func (s *system) differenceText(d rules.Difference) string {
	line := func(description, found string) string {
		return fmt.Sprintf("  %-10s %s", description, rules.Printable(found))
	}
	switch d.Kind {
	case rules.Missing:
		return s.paint(color.Red, line("missing", d.Want))
	case rules.Extra:
		return s.paint(color.Green, line("extra", d.Got))
	case rules.Changed:
		return s.paint(color.Yellow, line("changed", "want  "+d.Want)) + "\n" +
			s.paint(color.Yellow, line("", "found "+d.Got))
	}
	return s.paint(color.Yellow, line(string(d.Kind), d.Want))
}

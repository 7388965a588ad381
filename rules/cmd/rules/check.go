package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/colour"
)

const checkHelp = `Tell whether a network namespace holds exactly the ruleset and the routing of the parameters. The kernel's complete state is
read, decoded and compared, order included; a note of what was sent once has no part in it. Rules of other owners do
not count. In iptables-legacy's tables our chains and the jumps to them are compared. Rules of ours in the other backend,
which should have none, are a difference.

With --pod the node agent says which namespace that is, and which ruleset it should hold.

The exit code is 0 if it does. It is 1 if not, and what is missing, extra, changed or reordered is listed.`

const checkExamples = `  rules check --pid 4711 -b '*' -i '*' -d 15090,15021,15020
  rules check --netns /run/netns/pod -b '*' -i '*' --output json
  kubectl exec -n istio-system ds/sluice-node -- rules check --pod default/web`

func newCheckCommand(s *system) *cobra.Command {
	in := &inputs{sections: ofCapture(sectionNamespace, sectionAgent, sectionBackend, sectionOutput), tolerated: actionSections}
	cmd := &cobra.Command{
		Use:     "check [FLAG]...",
		Short:   "tell whether a namespace holds exactly that ruleset",
		Long:    checkHelp,
		Example: checkExamples,
	}
	return s.command(cmd, in, func(p *parameters, _ []string) error {
		if err := p.leftAlone(); err != nil {
			return err
		}
		return p.inNamespace(func(ns *netns.NS) error { return check(s, ns, p) })
	})
}

// checked is what check has found.
type checked struct {
	Namespace   string             `json:"namespace"`
	Backend     string             `json:"backend"`
	Equal       bool               `json:"equal"`
	Differences []rules.Difference `json:"differences"`
}

func check(s *system, ns *netns.NS, p *parameters) error {
	redirect, err := s.complete(p, ns)
	if err != nil {
		return err
	}
	backend, err := p.chosen()
	if err != nil {
		return err
	}
	found, err := backend.Check(ns, rules.Compile(redirect))
	if err != nil {
		return refused(err)
	}
	return s.reportCheck(ns, found)
}

func (s *system) reportCheck(ns *netns.NS, found compat.Comparison) error {
	equal := len(found.Differences) == 0
	text := fmt.Sprintf("equal: %s holds exactly this ruleset, by %s\n", ns, found.Engine)
	if !equal {
		text = s.listing(found.Differences) + fmt.Sprintf("%s in %s, by %s\n", count(len(found.Differences), "difference"), ns, found.Engine)
	}
	result := checked{ns.String(), string(found.Engine), equal, append([]rules.Difference{}, found.Differences...)}
	if err := s.print(text, result); err != nil || equal {
		return err
	}
	return failure{code: exitDifferent}
}

// listing groups the differences by their place.
func (s *system) listing(differences []rules.Difference) string {
	b := new(strings.Builder)
	byPlace := slices.Clone(differences)
	place := map[string]int{}
	for i, d := range differences {
		if _, seen := place[d.Where]; !seen {
			place[d.Where] = i
		}
	}
	slices.SortStableFunc(byPlace, func(a, b rules.Difference) int { return cmp.Compare(place[a.Where], place[b.Where]) })
	where := ""
	for _, d := range byPlace {
		if d.Where != where {
			where = d.Where
			fmt.Fprintln(b, s.colour.Paint(colour.Bold, where))
		}
		fmt.Fprintln(b, s.differenceText(d))
	}
	return b.String()
}

func (s *system) differenceText(d rules.Difference) string {
	line := func(what, text string) string { return fmt.Sprintf("  %-10s %s", what, text) }
	switch d.Kind {
	case rules.Missing:
		return s.colour.Paint(colour.Red, line("missing", d.Want))
	case rules.Extra:
		return s.colour.Paint(colour.Green, line("extra", d.Got))
	case rules.Changed:
		return s.colour.Paint(colour.Yellow, line("changed", "want  "+d.Want)) + "\n" + s.colour.Paint(colour.Yellow, line("", "found "+d.Got))
	}
	return s.colour.Paint(colour.Yellow, line(string(d.Kind), d.Want))
}

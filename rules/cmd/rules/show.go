package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

func newShowCommand(s *system) *cobra.Command {
	in := &inputs{
		sections: captureSectionsAnd(sectionNamespace, sectionAgent, sectionNode, sectionRunDir,
			sectionBackend, sectionShow, sectionLive, sectionOutput),
		ignoredSections: actionSections,
	}
	in.check = func(p *parameters, args []string) []error {
		faults := append(noArguments(args), in.rejectedWithLive(p)...)
		if p.live && p.format == formatIPTables {
			faults = append(faults,
				errors.New("--live and --format iptables: want one of them; "+
					"iptables-save prints the live rules of iptables"))
		}
		faults = append(faults, in.countersFaults(p)...)
		if !p.live && len(in.given["backend"]) > 0 {
			faults = append(faults,
				errors.New("--backend requires --live; "+
					"--format iptables prints the rules of iptables-legacy"))
		}
		switch {
		case p.format == formatJSON && p.output == outputText && len(in.given[outputFlag]) > 0:
			faults = append(faults,
				errors.New("--format json and --output text: want one of them"))
		case p.format == formatJSON:
			p.output = outputJSON
		case p.output == outputJSON && len(in.given["format"]) > 0:
			faults = append(faults,
				fmt.Errorf("--format %s and --output json: want one of them", p.format))
		}
		return faults
	}
	return s.command("show [FLAG]...", "print the ruleset that apply would program", in,
		func(p *parameters, _ []string) error {
			isFormatGiven := len(in.given["format"]) > 0
			if p.live && (!isFormatGiven || p.format == formatJSON) {
				return s.showLive(p)
			}
			return show(s, p)
		})
}

// countersFaults returns the faults of the flags that affect only the output with counters.
func (in *inputs) countersFaults(p *parameters) []error {
	var errs []error
	for _, name := range []string{"exact", "watch"} {
		if len(in.given[name]) == 0 {
			continue
		}
		switch {
		case !p.live:
			errs = append(errs, fmt.Errorf("--%s requires --live", name))
		case len(in.given["format"]) > 0 && p.format != formatJSON:
			errs = append(errs,
				fmt.Errorf("--%s and --format %s: want one of them", name, p.format))
		}
	}
	return errs
}

// show prints a ruleset without the values of its counters.
func show(s *system, p *parameters) error {
	ruleset, err := s.rulesetOf(p)
	if err != nil {
		return err
	}
	text := ruleset.String()
	if p.format == formatIPTables {
		legacy, err := compat.Translate(ruleset)
		if err != nil {
			return err
		}
		if text, err = compat.SaveText(legacy); err != nil {
			return err
		}
	}
	return s.print(text, rulesetDocumentOf(ruleset))
}

// compile returns the ruleset of the parameters. If the parameters do not name a namespace, compile
// assumes the addresses of the pod; see assumePod.
func (s *system) compile(p *parameters) (rules.Ruleset, error) {
	if p.located != nil || p.host != nil {
		if err := p.notRedirected(); err != nil {
			return rules.Ruleset{}, err
		}
		return p.ruleset()
	}
	if !p.namesNamespace() {
		p.assumePod()
	}
	var rs rules.Ruleset
	err := p.inNamespace(func(ns *netns.NS) (err error) {
		rs, _, err = s.desiredRuleset(p, ns)
		return err
	})
	return rs, err
}

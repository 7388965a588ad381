package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	validator "github.com/sluice-mesh/sluice/compat/validation"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
)

func newValidateCommand(s *system) *cobra.Command {
	in := &inputs{
		sections: captureSectionsAnd(sectionNamespace, sectionAgent, sectionRunDir, sectionBackend,
			sectionProbe, sectionOutput),
		ignoredSections: []section{sectionDryRun, sectionAction, sectionIgnored},
	}
	return s.command("validate [FLAG]...", "test redirection with real connections", in,
		func(p *parameters, _ []string) error {
			if err := p.notRedirected(); err != nil {
				return err
			}
			return p.inNamespace(func(ns *netns.NS) error {
				_, redirect, err := s.desiredRuleset(p, ns)
				if err != nil {
					return err
				}
				return validate(s, p.validation(ns, redirect))
			})
		})
}

// validationResult is the result of validate.
type validationResult struct {
	Namespace    string            `json:"namespace"`
	Outcome      validator.Outcome `json:"outcome"`
	NotChecked   []string          `json:"notChecked,omitempty"` // the kinds
	Running      bool              `json:"running"`
	Attempts     int               `json:"attempts"`
	Milliseconds float64           `json:"milliseconds"`
	Checks       []validator.Check `json:"checks"`
}

func (validationResult) kind() string { return "Validation" }

// validate runs the validation and prints the result, for the command and for --run-validation.
func validate(s *system, v validation) error {
	v.options.Progress = s.progressOf(v)
	r, err := validator.Run(v.namespace, v.options)
	if err != nil {
		return errors.Join(s.printApplied(v, nil), systemError(err))
	}
	result := validationResult{
		Namespace: v.namespace.String(), Outcome: r.Outcome(), NotChecked: r.Unchecked(),
		Running: r.Running, Attempts: r.Attempts,
		Milliseconds: milliseconds(r.Duration), Checks: r.Checks,
	}
	if v.applied != nil {
		err = s.printApplied(v, &result)
	} else {
		err = s.print(s.validationText(result, r), result)
	}
	if err != nil {
		return err
	}
	switch result.Outcome {
	case validator.Fails:
		return failure{code: exitInvalid}
	case validator.NotDecided:
		return systemError(errors.New("nothing could be validated: see the reasons of the checks"))
	case validator.CapturesNothing:
		s.warn("these parameters capture no connection, in or out, and no DNS: " +
			"there is nothing to validate")
	}
	return nil
}

// progressOf returns a function that prints the failed checks to stderr when they change.
func (s *system) progressOf(v validation) func(validator.Result, time.Duration) {
	last := ""
	return func(r validator.Result, remaining time.Duration) {
		var failed []string
		for _, c := range r.Checks {
			if c.Status == validator.Failed {
				failed = append(failed, c.Name)
			}
		}
		if names := strings.Join(failed, "; "); names != last {
			last = names
			text := fmt.Sprintf("validating %s: %s of %d failed (%s); trying again for %.1f s",
				v.namespace, count(len(failed), "check"), len(r.Checks), names,
				remaining.Seconds())
			s.notice(progressDocument{text}, text)
		}
	}
}

// printApplied prints the results of apply and of the validation as one object, unless apply has
// already printed its result.
func (s *system) printApplied(v validation, result *validationResult) error {
	if v.applied == nil {
		return nil
	}
	v.applied.Validation = result
	return s.print("", *v.applied)
}

// statusColor returns the color of a status.
func statusColor(s validator.Status) color.Code {
	return cmp.Or(map[validator.Status]color.Code{
		validator.OK: color.Green, validator.Failed: color.Red,
	}[s], color.Yellow)
}

// validationText formats the checks for people, with details of the failed checks.
func (s *system) validationText(v validationResult, r validator.Result) string {
	b := new(strings.Builder)
	fmt.Fprintf(b, "%s in %s: %d ok, %d failed, %d not checked, %.1f ms",
		s.paint(color.Bold, string(v.Outcome)), v.Namespace,
		r.Count(validator.OK), r.Count(validator.Failed), r.Count(validator.NotChecked),
		v.Milliseconds)
	if v.Attempts > 1 {
		fmt.Fprintf(b, ", %d attempts", v.Attempts)
	}
	if v.Running {
		b.WriteString(", with the proxy that runs")
	}
	if len(v.NotChecked) > 0 {
		fmt.Fprintf(b, "; not checked: %s", strings.Join(v.NotChecked, ", "))
	}
	b.WriteString("\n")
	for _, c := range v.Checks {
		status := s.paint(statusColor(c.Status), fmt.Sprintf("%-11s", c.Status))
		switch c.Status {
		case validator.OK:
			fmt.Fprintf(b, "  %s  %s: %s\n", status, c.Name, c.Found)
		case validator.NotChecked:
			fmt.Fprintf(b, "  %s  %s: %s\n", status, c.Name, c.Reason)
		case validator.Failed:
			fmt.Fprintf(b, "  %s  %s\n", status, c.Name)
			for _, line := range []struct{ title, text string }{
				{"packet", c.Packet},
				{"expected", c.Expected},
				{"found", c.Found},
				{"reason", c.Reason},
				{"next", c.Next},
			} {
				if line.text != "" {
					fmt.Fprintf(b, "  %11s    %-9s %s\n", "", line.title, line.text)
				}
			}
		}
	}
	for _, next := range v.remedies() {
		fmt.Fprintf(b, "  %-11s  %s\n", "next", next)
	}
	return b.String()
}

// remedies returns the remedies for skipped checks.
func (v validationResult) remedies() []string {
	var remedies []string
	for _, c := range v.Checks {
		if c.Status == validator.NotChecked && c.Next != "" && !slices.Contains(remedies, c.Next) {
			remedies = append(remedies, c.Next)
		}
	}
	return remedies
}

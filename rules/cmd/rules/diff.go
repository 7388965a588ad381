package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
	params "github.com/sluice-mesh/sluice/rules/parameter"
)

// diffParameters contains the parameters that only diff has.
type diffParameters struct {
	save, save6, log, nft string // files
	left, right           string // SPECs
	strict                bool
}

// diffTable lists the parameters of diff.
func diffTable() []parameter {
	file := func(flag, help string, field func(*parameters) *string) parameter {
		return parameter{
			flag: flag, value: "FILE", section: sectionDiff, help: help,
			set: func(p *parameters, text string) error {
				if text == "" {
					return errors.New("the path is empty")
				}
				*field(p) = text
				return checkFile(text)
			},
		}
	}
	spec := func(flag string, field func(*parameters) *string) parameter {
		return parameter{
			flag: flag, value: "SPEC", section: sectionDiff, help: "the " + flag + " side",
			set: setText(field),
		}
	}
	return []parameter{
		file("iptables-save", "right side: output of iptables-save",
			func(p *parameters) *string { return &p.diff.save }),
		file("ip6tables-save", "the same for IPv6",
			func(p *parameters) *string { return &p.diff.save6 }),
		file("nft", "right side: output of nft list ruleset or nft -j list ruleset",
			func(p *parameters) *string { return &p.diff.nft }),
		file("istio-log", "right side: log of an istio-init container",
			func(p *parameters) *string { return &p.diff.log }),
		spec("left", func(p *parameters) *string { return &p.diff.left }),
		spec("right", func(p *parameters) *string { return &p.diff.right }),
		boolParameter(sectionDiff, "strict", "", "count known deviations as differences",
			func(p *parameters) *bool { return &p.diff.strict }),
	}
}

func newDiffCommand(s *system) *cobra.Command {
	in := &inputs{
		sections: captureSectionsAnd(sectionNamespace, sectionAgent, sectionRunDir, sectionDiff,
			sectionBudget, sectionOutput),
		ignoredSections: actionSections,
	}
	var sides diff.Pair[spec]
	in.check = func(p *parameters, args []string) []error {
		var faults []error
		sides, faults = sidesOf(s, in, p)
		if sides.Left.countStdin()+sides.Right.countStdin() > 1 {
			faults = append(faults,
				errors.New("- stands for the standard input, which can be one file only"))
		}
		if left, right := sides.Left.family(), sides.Right.family(); left != right &&
			left != rules.Inet && right != rules.Inet {
			faults = append(faults, errors.New("--left and --right: one side contains only IPv4 rules "+
				"and the other only IPv6 rules, so no packet can be compared"))
		}
		return append(noArguments(args), faults...)
	}
	return s.command("diff [FLAG]...", "decide whether two rulesets treat every packet alike", in,
		func(p *parameters, _ []string) error {
			if sides.Right.kind == kindLog && p.hasIstioInit() {
				return s.diff(p, diff.Pair[spec]{Left: spec{kind: kindNamespace}, Right: sides.Right})
			}
			if err := p.notRedirected(); err != nil {
				return err
			}
			return s.diff(p, sides)
		})
}

// sidesOf returns the sides to compare, or errors if the inputs do not name two sides.
func sidesOf(s *system, in *inputs, p *parameters) (diff.Pair[spec], []error) {
	d := p.diff
	var found []spec
	if d.save != "" || d.save6 != "" {
		found = append(found, spec{kind: kindSave, paths: [2]string{d.save, d.save6}})
	}
	if d.nft != "" {
		found = append(found, spec{kind: kindNFT, paths: [2]string{d.nft}})
	}
	if d.log != "" {
		found = append(found, spec{kind: kindLog, paths: [2]string{d.log}})
	}
	namesPod := p.pod != (podName{})
	if p.namesNamespace() || namesPod && len(found) == 0 {
		found = append(found, spec{kind: kindNamespace})
	}
	switch {
	case d.left != "" || d.right != "":
		return namedSides(in, p, len(found))
	case len(found) == 0:
		return diff.Pair[spec]{}, []error{errors.New("no second ruleset: give --iptables-save, " +
			"--nft, --istio-log, --netns, --pid or --pod, or --left and --right")}
	case len(found) > 1:
		return diff.Pair[spec]{}, []error{errors.New("--iptables-save, --nft, --istio-log and " +
			"the namespace (--netns, --pid) exclude each other: " +
			"--left and --right compare any two")}
	}
	left := spec{kind: kindFlags, parameters: p}
	if found[0].kind == kindLog && !in.setsCapture(s) && !namesPod {
		left.kind = kindLogged
	}
	return diff.Pair[spec]{Left: left, Right: found[0]}, nil
}

// namedSides returns the sides of --left and --right, which cannot be combined with other sides.
// others is the number of other sides that are given.
func namedSides(in *inputs, p *parameters, others int) (diff.Pair[spec], []error) {
	var faults []error
	if p.diff.left == "" || p.diff.right == "" {
		faults = append(faults, errors.New("--left and --right: want both"))
	}
	if others > 0 {
		faults = append(faults,
			errors.New("--left and --right name both sides: "+
				"they cannot be combined with another file or namespace"))
	}
	for _, flag := range in.givenIn(captureSections) {
		faults = append(faults,
			fmt.Errorf("--%s cannot be combined with --left and --right: "+
				"write it into a SPEC, as in flags:\"-b *\"", flag))
	}
	var sides diff.Pair[spec]
	for _, side := range []struct {
		flag, text string
		to         *spec
	}{{"--left", p.diff.left, &sides.Left}, {"--right", p.diff.right, &sides.Right}} {
		if side.text == "" {
			continue
		}
		found, err := parseSpec(p.names, side.text)
		if err == nil {
			err = found.check()
		}
		if err != nil {
			faults = append(faults, params.PrefixEachLine(side.flag, err))
		}
		*side.to = found
	}
	return sides, faults
}

// setsCapture reports whether a flag or a variable sets a parameter of the ruleset.
func (in *inputs) setsCapture(s *system) bool {
	return slices.ContainsFunc(in.settings(s.variable), func(set setting) bool {
		return slices.Contains(captureSections, set.parameter.section)
	})
}

// loadSides loads both sides. Flags are loaded after the other side, because a log on the other
// side contains properties of the pod.
func (s *system) loadSides(
	p *parameters, specs diff.Pair[spec],
) (left, right *diffSide, err error) {
	if specs.Right.kind == kindFlags {
		if left, err = s.load(p, specs.Left, specs.Right, nil); err != nil {
			return nil, nil, err
		}
		right, err = s.load(p, specs.Right, specs.Left, left)
		return left, right, err
	}
	right, err = s.load(p, specs.Right, specs.Left, nil)
	if err != nil && specs.Left.isFile() {
		_, leftErr := s.load(p, specs.Left, specs.Right, nil)
		return nil, nil, errors.Join(leftErr, err)
	}
	if err != nil {
		return nil, nil, err
	}
	left, err = s.load(p, specs.Left, specs.Right, right)
	return left, right, err
}

// diff makes and prints the decision.
func (s *system) diff(p *parameters, specs diff.Pair[spec]) error {
	budget := p.budget.From(time.Now())
	left, right, err := s.loadSides(p, specs)
	if err != nil {
		return err
	}
	families := commonFamilies(left, right)
	result := diff.Decide(left.Side, right.Side, diff.Options{Families: families, Budget: budget})
	report := newDiffReport(left, right, result, p.diff.strict)
	report.explainByUnstatedParameter(families, budget)
	if err := s.print(s.diffText(report), report.json()); err != nil ||
		report.verdict() == diff.Equivalent {
		return err
	}
	return failure{code: exitDifferent}
}

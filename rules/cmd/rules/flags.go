package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// inputs contains the parameters of a command, and the command line's values.
type inputs struct {
	sections []section
	// ignoredSections contain the parameters that the command accepts without effect.
	ignoredSections []section
	// check returns further errors of the parameters and the arguments. If it is nil, arguments are
	// errors.
	check func(p *parameters, args []string) []error

	parameters []parameter         // see load
	given      map[string][]string // values by name of the flag
	helpAll    bool                // --help-all is given
}

// captureSections are the sections of all commands that compile a ruleset.
var captureSections = []section{
	sectionProxy, sectionInbound, sectionTProxy, sectionOutbound, sectionDNS, sectionPod,
	sectionSluice, sectionMode, sectionAmbient,
}

// actionSections are the sections of the parameters that select the action of an init container.
// Commands that only read accept and ignore these parameters, so that the arguments of such a
// container can be pasted.
var actionSections = []section{sectionDryRun, sectionAction, sectionProbe, sectionIgnored}

// captureSectionsAnd returns captureSections and others.
func captureSectionsAnd(others ...section) []section {
	return slices.Concat(captureSections, others)
}

// load copies the parameters from the table. Commands load them only when they run, because the
// copy takes time.
func (in *inputs) load() {
	in.given = map[string][]string{}
	in.parameters = slices.DeleteFunc(allParameters(), func(p parameter) bool {
		return !slices.Contains(in.sections, p.section) &&
			!slices.Contains(in.ignoredSections, p.section)
	})
}

// parseFlags parses the command line and returns the arguments that are not flags. It does not
// validate values: they are validated together, so that all faults can be reported.
func (in *inputs) parseFlags(cmd string, args []string) ([]string, error) {
	flags := pflag.NewFlagSet(cmd, pflag.ContinueOnError)
	flags.Usage = func() {}
	letter := letterValue{in: in}
	named, letters := flagNames(args)
	for i := range in.parameters {
		p := &in.parameters[i]
		if p.flag == excludeFlag {
			letter.ports, letter.setPorts = p, p.set
		}
		short := p.short
		if short == outputLetter {
			short = "" // two parameters have this letter: letterValue is its flag
		}
		// Declaring a flag takes longer than parsing one.
		if p.flag == "" || !named[p.flag] && (short == "" || !strings.Contains(letters, short)) {
			continue
		}
		flag := flags.VarPF(flagValue{in, p}, p.flag, short, "")
		if p.value == "" {
			flag.NoOptDefVal = "true"
		}
	}
	flags.VarP(letter, outputLetter, outputLetter, "")
	flags.BoolVar(&in.helpAll, helpAllFlag, false, "")
	if slices.Contains(in.sections, sectionExplain) {
		args = replaceDashArrows(args)
	}
	err := flags.Parse(args)
	switch {
	case in.helpAll:
		return nil, pflag.ErrHelp
	case errors.Is(err, pflag.ErrHelp):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w%s; %s --help-all lists the flags", err, in.suggestFlag(err), cmd)
	}
	in.joinLists()
	return flags.Args(), nil
}

// helpAllFlag requests the description of every flag.
const helpAllFlag = "help-all"

// suggestFlag returns a question to append to the error if the error is about an unknown flag that
// is similar to a flag of the command.
func (in *inputs) suggestFlag(err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	names := []string{"help", helpAllFlag}
	for _, p := range in.parameters {
		if p.flag != "" {
			names = append(names, p.flag)
		}
	}
	return didYouMean(unknown.GetSpecifiedName(), "--", names)
}

// flagNames returns the long and short names in arguments that look like flags, including values
// that look like flags.
func flagNames(args []string) (names map[string]bool, letters string) {
	names = map[string]bool{}
	// A builder, because thousands of arguments may be short flags.
	var all strings.Builder
	for _, a := range args {
		if name, long := strings.CutPrefix(a, "--"); long {
			name, _, _ = strings.Cut(name, "=")
			names[name] = true
		} else if strings.HasPrefix(a, "-") {
			all.WriteString(a[1:])
		}
	}
	return names, all.String()
}

// flagValue stores the command line's value of a parameter.
type flagValue struct {
	in *inputs
	p  *parameter
}

// Set implements [pflag.Value].
func (v flagValue) Set(text string) error {
	v.in.addValue(v.p, text)
	return nil
}

// addValue stores a value of a flag. All values of a list and of a repeatable flag are kept, and
// only the last value of another flag.
func (in *inputs) addValue(p *parameter, text string) {
	if !p.repeat && !p.list {
		in.given[p.flag] = nil
	}
	in.given[p.flag] = append(in.given[p.flag], text)
}

// joinLists joins the lists of repeated flags. It omits empty lists, and a list that equals the
// list before it, such as a repeated "*".
func (in *inputs) joinLists() {
	for _, p := range in.parameters {
		if texts := in.given[p.flag]; p.list && len(texts) > 1 {
			texts = slices.Compact(slices.DeleteFunc(texts, isEmpty))
			in.given[p.flag] = []string{strings.Join(texts, ",")}
		}
	}
}

// String implements [pflag.Value].
func (v flagValue) String() string { return v.p.fallback }

// Type implements [pflag.Value].
func (v flagValue) Type() string {
	if v.p.value == "" {
		return "bool"
	}
	return v.p.value
}

// The flags with the letter outputLetter.
const (
	outputFlag  = "output"
	excludeFlag = "istio-local-outbound-ports-exclude"
	// outputLetter is the short form of both: -o means --output if a value of --output follows, and
	// otherwise Istio's --istio-local-outbound-ports-exclude.
	outputLetter = "o"
)

// letterValue stores the value of the flag -o.
type letterValue struct {
	in       *inputs
	ports    *parameter                      // of excludeFlag; nil if the command lacks this flag
	setPorts func(*parameters, string) error // the value of ports.set before letterValue.Set
}

// Set implements [pflag.Value].
func (v letterValue) Set(text string) error {
	if v.ports == nil || text == outputText || text == outputJSON {
		v.in.given[outputFlag] = []string{text}
		return nil
	}
	v.in.addValue(v.ports, text)
	v.ports.set = func(p *parameters, text string) error {
		if err := v.setPorts(p, text); err != nil {
			return fmt.Errorf("%w; only -o text and -o json choose the output", err)
		}
		return nil
	}
	return nil
}

// String implements [pflag.Value].
func (letterValue) String() string { return "" }

// Type implements [pflag.Value].
func (letterValue) Type() string { return "text|json" }

package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
	params "github.com/sluice-mesh/sluice/rules/parameter"
)

// A setting contains the texts that are given for a parameter, and their source.
type setting struct {
	parameter *parameter
	texts     []string
	source    string // the flag or the variable, as named in errors
}

// settings returns the settings of all parameters that are set: the flag, or else the last
// variable. Like Istio it ignores the other variables without validating them. It also ignores the
// variables of parameters that do not apply to the mode.
func (in *inputs) settings(variable func(string) (string, bool)) []setting {
	var found []setting
	other := in.otherMode()
	for i := range in.parameters {
		p := &in.parameters[i]
		if texts, ok := in.given[p.flag]; ok && p.flag != "" {
			found = append(found, setting{p, texts, flagName(p)})
			continue
		}
		if p.mode == other {
			continue
		}
		if text, source := params.FromEnvironment(p.variables, p.list, variable); source != "" {
			found = append(found, setting{p, []string{text}, source})
		}
	}
	return found
}

// flagName returns the name of a parameter for errors.
func flagName(p *parameter) string {
	return (&params.Parameter{Flag: p.flag, Short: p.short}).FlagName()
}

// parse parses the values of all parameters, and sets the output format of the system. The error
// has a line for each invalid input.
func (in *inputs) parse(s *system, args []string) (*parameters, error) {
	p := defaultParameters(params.Names{Users: s.users, Groups: s.groups})
	var faults []error
	sources := map[string]string{} // by field of the Redirect, or by flag
	for _, setting := range in.settings(s.variable) {
		sources[cmp.Or(setting.parameter.field, setting.parameter.flag)] = setting.source
		texts, err := setting.parameter.expandLists(setting.texts)
		if err != nil {
			faults = append(faults, params.PrefixEachLine(setting.source, err))
		}
		for _, text := range texts {
			if err := setting.parameter.set(p, text); err != nil {
				faults = append(faults, params.PrefixEachLine(setting.source, err))
			}
		}
	}
	if p.StrictIstio {
		p.Redirect.StrictIstio()
	}
	if p.netnsPath != "" && p.pid != 0 {
		faults = append(faults, errors.New("--netns and --pid: want one of them"))
	}
	faults = append(faults, in.podFaults(p)...)
	faults = append(faults, p.namespaceFaults(sources)...)
	faults = append(faults, in.modeFaults()...)
	faults = append(faults, p.faults(sources)...)
	if in.check != nil {
		faults = append(faults, in.check(p, args)...)
	} else {
		faults = append(faults, noArguments(args)...)
	}
	s.json = p.output == outputJSON
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return p, nil
}

// namespaceFaults returns an error if the named namespace does not exist or is not a network
// namespace. The error names the input that takes precedence.
func (p *parameters) namespaceFaults(sources map[string]string) []error {
	if p.pod != (podName{}) || p.node {
		return nil // the node agent names the namespace
	}
	err := p.checkNamespace()
	if err == nil {
		return nil
	}
	source := sources["network-namespace"]
	switch {
	case p.pid != 0:
		source = sources["pid"]
	case p.netnsPath != "":
		source = sources["netns"]
	}
	return []error{params.PrefixEachLine(source, err)}
}

// faults returns the faults of the whole redirection as errors that name the inputs.
func (p *parameters) faults(sources map[string]string) []error {
	var faults rules.Faults
	if !errors.As(p.validate(), &faults) {
		return nil
	}
	errs := make([]error, len(faults))
	for i, f := range faults {
		f.Field = cmp.Or(sources[f.Field], f.Field)
		errs[i] = errors.New(f.String())
	}
	return errs
}

// validate returns the faults of the whole redirection.
func (p *parameters) validate() error {
	if p.AmbientMode {
		a := p.AmbientRedirect()
		return a.Validate()
	}
	v := p.Values
	v.IdentifyProxy(nil)
	return v.Redirect.Validate()
}

// noArguments rejects arguments. An argument is often a value whose flag is missing.
func noArguments(args []string) []error {
	errs := make([]error, len(args))
	for i, a := range args {
		errs[i] = fmt.Errorf("%q is neither a flag nor the value of one", a)
	}
	return errs
}

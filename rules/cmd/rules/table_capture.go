package main

import params "github.com/sluice-mesh/sluice/rules/parameter"

// captureTable lists the parameters of a redirection that istio-iptables has.
func captureTable() []parameter { return catalogRows(params.All(), modeSidecar) }

// ambientTable lists the parameters of a redirection that only ambient mode has.
func ambientTable() []parameter { return catalogRows(params.Ambient(), modeAmbient) }

// sluiceTable lists the parameters of a redirection that Istio does not have.
func sluiceTable() []parameter {
	table := catalogRows(params.SluiceOnly(), modeSidecar)
	for i := range table {
		switch table[i].flag {
		case "backend":
			table[i].help += "; to read and to remove rules, auto is the backend that contains " +
				"rules of Sluice"
		case "strict-istio":
			table[i].help += " (see rules help deviations)"
		}
	}
	return table
}

// catalogRows returns the rows of the table for parameters of the catalog. The parameters apply to
// the mode, or to both modes.
func catalogRows(catalog []params.Parameter, only mode) []parameter {
	table := make([]parameter, 0, len(catalog))
	for i := range catalog {
		p := &catalog[i]
		if p.Flag == "" && len(p.Variables) == 0 {
			continue // only a pod sets it
		}
		mode := only
		if p.Ambient || p.Flag == ambientFlag {
			mode = modeAny
		}
		table = append(table, parameter{
			mode: mode,
			flag: p.Flag, short: p.Short, variables: p.Variables,
			value: p.Placeholder, words: p.Kind.Words(), fallback: p.Default, help: p.Help,
			field: p.Field, section: sectionOf(p.Section), list: p.IsList(), repeat: p.Repeat,
			set: func(to *parameters, text string) error {
				return p.Set(&to.Values, text, to.names)
			},
		})
	}
	return table
}

// sectionOf returns the command's help section for a section of the catalog. Except for
// SectionBackend, both have the same order.
func sectionOf(s params.Section) section {
	if s == params.SectionBackend {
		return sectionBackend
	}
	return sectionProxy + section(s)
}

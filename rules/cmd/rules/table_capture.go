package main

import params "github.com/sluice-mesh/sluice/rules/parameter"

// captureTable lists the parameters of istio-iptables that shape the ruleset.
func captureTable() []parameter {
	all := params.All()
	table := make([]parameter, 0, len(all))
	for i := range all {
		p := &all[i]
		if p.Flag == "" && len(p.Variables) == 0 {
			continue // only a pod states it
		}
		table = append(table, parameter{
			flag: p.Flag, short: p.Short, variables: p.Variables,
			value: p.Placeholder, fallback: p.Default, help: p.Help,
			field: p.Field, section: sectionProxy + section(p.Section), list: p.List(),
			set: func(to *parameters, text string) error { return p.Set(&to.Values, text, to.names) },
		})
	}
	return table
}

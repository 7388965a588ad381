package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-mesh/sluice/rules/diff"
)

// budgetTable lists the parameters that limit the work of diff and explain.
func budgetTable() []parameter {
	return []parameter{
		{
			flag: "max-time", value: "DURATION", fallback: diff.DefaultBudget.Time.String(),
			section: sectionBudget,
			help: "time limit of reading and deciding, such as 500ms or 1m; beyond it the answer " +
				`is "cannot decide"`,
			set: func(p *parameters, text string) error {
				d, err := time.ParseDuration(text)
				if err != nil || d <= 0 {
					return fmt.Errorf("%q is not a duration above 0, such as 500ms, 10s or 1m",
						text)
				}
				p.budget.Time = d
				return nil
			},
		},
		{
			flag: "max-memory", value: "MB",
			fallback: strconv.FormatInt(diff.DefaultBudget.Memory>>20, 10), section: sectionBudget,
			help: "memory limit of the decision, in megabytes; beyond it the answer is " +
				`"cannot decide"`,
			set: func(p *parameters, text string) error {
				n, err := strconv.ParseInt(text, 10, 32)
				if err != nil || n <= 0 {
					return fmt.Errorf("%q is not a number of megabytes from 1 to 2147483647", text)
				}
				p.budget.Memory = n << 20
				return nil
			},
		},
	}
}

package main

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-mesh/sluice/rules/diff"
)

// defaultBudget and defaultDoctorBudget return the default limits of the work of check, diff and
// explain, and of doctor.
func defaultBudget() diff.Budget       { return withinMemoryLimit(diff.DefaultBudget) }
func defaultDoctorBudget() diff.Budget { return withinMemoryLimit(diff.AgentRetryBudget) }

// withinMemoryLimit returns the budget with at most half of the memory limit of the process.
func withinMemoryLimit(b diff.Budget) diff.Budget {
	b.Memory = min(b.Memory, shareOfMemoryLimit(2))
	return b
}

// shareOfMemoryLimit returns the memory limit of the process divided by a number, in bytes, as a
// whole number of MiB above 0. The memory limit (GOMEMLIMIT) of a command in the container of a
// node agent is the limit of the container, in which the agent needs memory too.
func shareOfMemoryLimit(divisor int64) int64 {
	const unchanged = -1
	return max(1, debug.SetMemoryLimit(unchanged)/divisor>>20) << 20
}

// maxInput returns the maximum size of a text of rules in bytes: 64 MiB, which is more than
// iptables or nft print for 100,000 rules, but at most 1/32 of the memory limit of the process,
// because the rules of a text need more memory than the text.
func maxInput() int64 { return min(64<<20, shareOfMemoryLimit(32)) }

// maxLiveRules returns the maximum size of live nftables rules in bytes: 64 MiB, which is about
// 100,000 rules, but at most 1/16 of the memory limit of the process, because a command may have
// two readings in memory, each larger than the rules.
func maxLiveRules() int64 { return min(64<<20, shareOfMemoryLimit(16)) }

// budgetTable lists the parameters that limit the work of check, diff and explain, and of doctor.
func budgetTable() []parameter {
	return slices.Concat(
		budgetParameters(sectionBudget, defaultBudget(),
			"the decision", "; in diff and explain the time of reading counts, but reading does not end early",
			func(p *parameters) *diff.Budget { return &p.budget }),
		budgetParameters(sectionDoctorBudget, defaultDoctorBudget(), "a decision about the live rules", "",
			func(p *parameters) *diff.Budget { return &p.doctorBudget }))
}

// budgetParameters returns the parameters of a section that set the fields of a budget. work is the
// limited work, and timeNote the end of the help of the time limit.
func budgetParameters(
	s section, fallback diff.Budget, work, timeNote string, budget func(*parameters) *diff.Budget,
) []parameter {
	return []parameter{
		{
			flag: "max-time", value: "DURATION", fallback: fallback.Time.String(), section: s,
			help: "time limit of " + work + ", such as 500ms or 1m; beyond it the answer is " +
				`"cannot decide"` + timeNote,
			set: setDuration(func(p *parameters) *time.Duration { return &budget(p).Time },
				"500ms, 10s or 1m"),
		},
		{
			flag: "max-memory", value: "MB",
			fallback: strconv.FormatInt(fallback.Memory>>20, 10), section: s,
			help: "memory limit of the decision, in megabytes; beyond it the answer is " +
				`"cannot decide"; the default is at most half of $GOMEMLIMIT`,
			set: func(p *parameters, text string) error {
				n, err := strconv.ParseInt(text, 10, 32)
				if err != nil || n <= 0 {
					return fmt.Errorf("%q is not a number of megabytes from 1 to 2147483647", text)
				}
				budget(p).Memory = n << 20
				return nil
			},
		},
	}
}

package main

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/sluice-mesh/sluice/rules/diff"
	params "github.com/sluice-mesh/sluice/rules/parameter"
)

// In the container of a node agent, GOMEMLIMIT is the memory limit of the container.
func TestDefaultMemoryIsAtMostHalfOfTheMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for limit, want := range map[int64][2]int64{
		math.MaxInt64:    {diff.DefaultBudget.Memory, diff.AgentBudget.Memory},
		256 << 20:        {128 << 20, diff.AgentBudget.Memory},
		30<<20 + 500_000: {15 << 20, 15 << 20},
		1:                {1 << 20, 1 << 20},
	} {
		debug.SetMemoryLimit(limit)
		p := defaultParameters(params.Names{})
		if got := [2]int64{p.budget.Memory, p.doctorBudget.Memory}; got != want {
			t.Errorf("limit %d: budgets %d, want %d", limit, got, want)
		}
	}
}

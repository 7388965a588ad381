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
		math.MaxInt64:    {diff.DefaultBudget.Memory, diff.AgentRetryBudget.Memory},
		256 << 20:        {128 << 20, diff.AgentRetryBudget.Memory},
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

// A pod may have very many rules. In the container of a node agent, reading them must not exhaust
// the memory of the agent.
func TestTheSizeOfLiveRulesIsLimited(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for limit, want := range map[int64]int64{math.MaxInt64: 64 << 20, 256 << 20: 16 << 20, 1: 1 << 20} {
		debug.SetMemoryLimit(limit)
		if got := maxLiveRules(); got != want {
			t.Errorf("memory limit %d: %d bytes of rules, want %d", limit, got, want)
		}
	}
}

// A text of rules may be endless, for example the log of a pod. Its size is limited in each format,
// as a file and as standard input.
func TestTheSizeOfInputIsLimited(t *testing.T) {
	before := debug.SetMemoryLimit(256 << 20)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for _, source := range []struct{ path, name string }{
		{"-", "standard input"}, {"/dev/zero", "/dev/zero"},
	} {
		for _, flag := range []string{"--iptables-save", "--ip6tables-save", "--nft", "--istio-log"} {
			s, stderr := testSystem()
			s.stdin = endless{}
			want := "rules: " + source.name + ": larger than 8 MiB\n"
			code := run(s, []string{"diff", "-b", "*", flag, source.path})
			if code != exitBadInput || stderr.String() != want {
				t.Errorf("%s %s: exit code %d and %q, want %d and %q", flag, source.path, code, stderr,
					exitBadInput, want)
			}
		}
	}
	debug.SetMemoryLimit(math.MaxInt64)
	if got := maxInput(); got != 64<<20 {
		t.Errorf("without a memory limit: %d bytes, want 64 MiB", got)
	}
}

// endless is a reader of blank lines without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

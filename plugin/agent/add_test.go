package agent_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/agenttest"
	"github.com/sluice-mesh/sluice/plugin/decide"
)

func TestAddValidate(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*agent.Add)
		text   string
	}{
		{"a success", func(*agent.Add) {}, ""},
		{"a failure without rules", func(a *agent.Add) {
			a.Result, a.Backend, a.Bytes = "error", "none", 0
		}, ""},
		{"an unknown result", func(a *agent.Add) {
			a.Result = "hm"
		}, `result: "hm" is not one of ["success" "error"]`},
		{"an unknown decision", func(a *agent.Add) { a.Decision = "" }, `decision: "" is not one of`},
		{"a call that failed before the decision", func(a *agent.Add) {
			a.Result, a.Decision, a.Reason = "error", "undecided", "undecided"
		}, ""},
		{"IPv6 that is not captured", func(a *agent.Add) {
			a.Uncaptured = []string{"ipv6"}
		}, ""},
		{"an unknown reason", func(a *agent.Add) { a.Reason = "hm" }, `reason: "hm" is not one of`},
		{"a reason that is not final", func(a *agent.Add) {
			a.Reason = "pod-unknown"
		}, `reason: "pod-unknown" is not one of`},
		{"a family that is always captured", func(a *agent.Add) {
			a.Uncaptured = []string{"ipv4"}
		}, `uncaptured: "ipv4" is not one of`},
		{"a repeated family", func(a *agent.Add) {
			a.Uncaptured = []string{"ipv6", "ipv6"}
		}, `uncaptured: "ipv6" is repeated`},
		{"an unknown backend", func(a *agent.Add) {
			a.Backend = "ebpf"
		}, `backend: "ebpf" is not one of`},
		{"a negative duration", func(a *agent.Add) {
			a.Duration = -1
		}, "duration: -1ns is negative"},
		{"a negative size", func(a *agent.Add) { a.Bytes = -1 }, "bytes: -1 is negative"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := agent.Add{
				Result: "success", Decision: "redirect", Reason: "mesh-pod", Backend: "nft",
				Duration: time.Millisecond, Bytes: 4096,
			}
			row.change(&a)
			err := a.Validate()
			if row.text == "" {
				if err != nil {
					t.Errorf("error %v, want none", err)
				}
				return
			}
			agenttest.CheckText(t, err, row.text)
		})
	}
}

// TestReasonsAreTheFinalReasonsOfDecisions checks that a decision that is not final cannot be
// reported.
func TestReasonsAreTheFinalReasonsOfDecisions(t *testing.T) {
	for _, r := range decide.Reasons() {
		final := r != decide.PodUnknown && r != decide.NamespaceUnknown
		if got := slices.Contains(agent.Reasons(), string(r)); got != final {
			t.Errorf("reason %s can be reported: %v, want %v", r, got, final)
		}
	}
}

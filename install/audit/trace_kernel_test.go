package audit_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules/diff"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestTraceIsNoDrift traces a pod while it is audited. Nothing is repaired or reported, and the
// rules of the trace remain until it ends. The rules of a killed trace are removed.
func TestTraceIsNoDrift(t *testing.T) {
	for _, backend := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		t.Run(string(backend), func(t *testing.T) {
			network := newNetwork(t)
			r, rs, b := startAuditor(t, network, backend)
			traced := func() bool { return foreign.Inspect(network.Pod, rs, diff.DefaultBudget).Traced }

			session, err := trace.Open(network.Pod, trace.Options{})
			if err != nil {
				t.Fatal(err)
			}
			marks, err := compat.MarkTraces(network.Pod, trace.Options{})
			if err != nil {
				t.Fatal(err)
			}
			before := r.metric("sluice_audits_total{equal}")
			rulestest.Eventually(t, "the pod is audited twice", func() bool {
				return r.metric("sluice_audits_total{equal}") >= before+2
			})
			if !traced() || r.states() != "1 redirected" {
				t.Errorf("during a trace: %s, the rules of the trace exist: %t; want 1 redirected, true", r.states(),
					traced())
			}
			if err := marks.Close(); err != nil {
				t.Fatal(err)
			}
			if err := session.Close(); err != nil {
				t.Fatal(err)
			}
			istiotest.Run(t, network.Pod, "table inet "+trace.Table+" {}", "nft", "-f", "-")
			istiotest.Run(t, network.Pod, "*raw\n:"+trace.Chain+" - [0:0]\n-A OUTPUT -j "+trace.Chain+
				"\n-A "+trace.Chain+" -p tcp -j TRACE\nCOMMIT\n",
				"iptables-legacy-restore", "--noflush")
			rulestest.Eventually(t, "the rules of a killed trace are removed", func() bool { return !traced() })
			if reported := r.takeEvents(); reported != "" {
				t.Errorf("events %s, want none", reported)
			}
			if !hasRules(t, b, network.Pod, rs) {
				t.Error("the pod's own rules have changed")
			}
		})
	}
}

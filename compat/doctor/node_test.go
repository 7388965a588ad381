package doctor

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// A finding about dropped probes names the policy or the rule that drops them.
func TestDiagnoseNodeNamesTheReasonForDroppedProbes(t *testing.T) {
	h := rules.DefaultAmbientHost()
	h.Pods = []netip.Addr{netip.MustParseAddr("10.244.1.5")}
	for _, tc := range []struct {
		name       string
		action     rules.Action
		want, next string
	}{
		{
			"the policy drops",
			rules.Count{},
			"probes to 10.244.1.5 are dropped: chain ip firewall post drops by its policy",
			"accept the probes in that chain, or change its policy",
		},
		{
			"a rule drops", rules.Drop,
			"probes to 10.244.1.5 are dropped by ip firewall post #1: drop", "remove that rule",
		},
	} {
		f := NodeFacts{Facts: healthy(), Live: compat.Live{Ruleset: rules.Ruleset{
			Tables: []rules.Table{{Family: rules.IPv4, Name: "firewall", Chains: []rules.Chain{{
				Name:  "post",
				Base:  &rules.Base{Type: rules.Filter, Hook: rules.Postrouting, Drop: true},
				Rules: []rules.Rule{{Handle: 1, Actions: []rules.Action{tc.action}}},
			}}}},
		}}}
		want := Finding{Topic: "rules", Severity: Problem, Summary: tc.want, Next: tc.next}
		if findings := DiagnoseNode(f, h); !slices.Contains(findings, want) {
			t.Errorf("%s: no %+v in %+v", tc.name, want, findings)
		}
	}
}

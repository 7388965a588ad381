package doctor

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
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

// A finding about the source of probes names the rule that changes it, and not a later rule that
// only counts.
func TestDiagnoseNodeNamesTheReasonForAWrongProbeSource(t *testing.T) {
	h := rules.DefaultAmbientHost()
	h.Pods = []netip.Addr{netip.MustParseAddr("10.244.1.5")}
	counts := rules.Table{Family: rules.IPv4, Name: "counts", Chains: []rules.Chain{{
		Name: "post", Base: &rules.Base{Hook: rules.Postrouting, Priority: 200},
		Rules: []rules.Rule{{Handle: 1, Actions: []rules.Action{rules.Count{}}}},
	}}}
	translates := rules.Table{Family: rules.IPv4, Name: "other", Chains: []rules.Chain{{
		Name: "post", Base: &rules.Base{Type: rules.NAT, Hook: rules.Postrouting, Priority: 100},
		Rules: []rules.Rule{{Handle: 1, Actions: []rules.Action{
			rules.SNATTo{Addr: netip.MustParseAddr("10.0.0.9")},
		}}},
	}}}
	const consequence = ": the pod captures the probes, and ztunnel may reject them"
	for _, tc := range []struct {
		name       string
		tables     []rules.Table
		want, next string
	}{
		{
			"a rule changes the source",
			[]rules.Table{translates, counts},
			"probes to 10.244.1.5 do not get the source 169.254.7.127; their source is changed by " +
				"ip other post #1: snat ip to 10.0.0.9" + consequence,
			"remove that rule, or move its chain after Sluice's",
		},
		{
			"no rule changes the source",
			[]rules.Table{counts},
			"probes to 10.244.1.5 keep their source" + consequence +
				"; the last rule that matches them is ip counts post #1: counter",
			"run rules check --node to find differences from Sluice's rules",
		},
		{
			"no rule", nil,
			"no rule changes the source of probes to 10.244.1.5 to 169.254.7.127" + consequence,
			"the agent writes the rules again; if it cannot, run rules status to see the reason",
		},
	} {
		f := NodeFacts{Facts: healthy(), Live: compat.Live{Ruleset: rules.Ruleset{Tables: tc.tables}}}
		want := Finding{Topic: "rules", Severity: Problem, Summary: tc.want, Next: tc.next}
		if findings := DiagnoseNode(f, h); !slices.Contains(findings, want) {
			t.Errorf("%s: no %+v in %+v", tc.name, want, findings)
		}
	}
}

// If a packet is dropped by the policy of a chain, the note about this policy is the reason for the
// drop. Other notes are not.
func TestDroppedWithoutRule(t *testing.T) {
	p, err := rules.ParsePacket("out tcp 10.244.1.5:1 > 192.0.2.1:443 uid 1000 state established")
	if err != nil {
		t.Fatal(err)
	}
	skipped := natTable("second", -110, redirectHTTP)
	for want, drops := range map[string]bool{"": false, "chain ip last out drops by its policy": true} {
		last := rules.Table{Family: rules.IPv4, Name: "last", Chains: []rules.Chain{{
			Name: "out", Base: &rules.Base{Type: rules.Filter, Hook: rules.Output, Drop: drops},
		}}}
		trace := diff.Explain(&rules.Ruleset{Tables: []rules.Table{skipped, last}}, p)
		got := ""
		if note := trace.DroppedWithoutRule(); note != nil {
			got = note.String()
		}
		if len(trace.Passes[0].Notes) == 0 || got != want {
			t.Errorf("notes %v: the reason is %q, want %q", trace.Passes[0].Notes, got, want)
		}
	}
}

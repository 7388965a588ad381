package istio_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// checkTranslation compares Sluice's rules for iptables-legacy and for nf_tables.
func (s testCase) checkTranslation(t *testing.T) {
	t.Helper()
	legacy, err := compat.Translate(s.sluiceRules)
	if err != nil {
		t.Errorf("%s\ntranslate the rules for iptables-legacy: %v", s, err)
		return
	}
	translated := diff.Side{
		Ruleset: rules.Ruleset{Tables: legacy.Tables, Routing: legacy.Routing}, RoutingKnown: true,
	}
	if r := diff.Decide(s.sluiceSide(), translated,
		diff.Options{}); r.StrictVerdict() != diff.Equivalent {
		t.Errorf("%s\nrules for nf_tables and for iptables-legacy: %s, want equivalent\n%s", s, r.StrictVerdict(),
			describe(r, "nf_tables", "iptables-legacy"))
	}
}

package doctor

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/rules"
)

// TestDiagnoseReportsTheForeignEffect verifies the finding about the effect of foreign rules on
// captured traffic, and the verdict of all findings.
func TestDiagnoseReportsTheForeignEffect(t *testing.T) {
	bypass := func(owner foreign.Owner) *foreign.Effect {
		return &foreign.Effect{Bypasses: []foreign.Bypass{{
			Packets: "packets with the effect", Rule: "rule", Owner: owner,
		}}}
	}
	for _, row := range []struct {
		name     string
		effect   *foreign.Effect
		severity Severity
		next     string // a substring of Finding.Next
		verdict  Verdict
	}{
		{"the effect was not determined", nil, "", "", Works},
		{"no effect", &foreign.Effect{}, OK, "", Works},
		{
			"a foreign rule decides a bypass", bypass(foreign.OwnerNFT), Problem,
			"find the program that adds this rule", Degraded,
		},
		{
			"a rule of Sluice decides a bypass", bypass(foreign.OwnerSluice), Problem,
			"run rules check", Degraded,
		},
		{
			"the effect is unknown", &foreign.Effect{Unknown: []string{"the effect is unknown"}}, Warning,
			"check the effect", Works,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			facts := healthy()
			facts.Foreign = row.effect
			findings := Diagnose(facts, typical(rules.ModeRedirect))
			var found Finding
			for _, f := range findings {
				if strings.Contains(f.Summary, "the effect") ||
					f.Summary == "no foreign rule makes captured traffic bypass the proxy" {
					found = f
				}
			}
			if found.Severity != row.severity || !strings.Contains(found.Next, row.next) ||
				VerdictOf(findings) != row.verdict {
				t.Errorf("severity %q, next %q, verdict %s, want %q, %q, %s\n%s", found.Severity, found.Next,
					VerdictOf(findings), row.severity, row.next, row.verdict, list(findings))
			}
		})
	}
}

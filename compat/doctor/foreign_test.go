package doctor

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// TestDiagnoseReportsTheForeignEffect verifies the finding about the effect of foreign rules on
// captured traffic, and the verdict of all findings.
func TestDiagnoseReportsTheForeignEffect(t *testing.T) {
	for _, row := range []struct {
		name     string
		effect   *ForeignEffect
		severity Severity
		verdict  Verdict
	}{
		{"the effect was not determined", nil, "", Works},
		{"no effect", &ForeignEffect{}, OK, Works},
		{"captured traffic bypasses the proxy", &ForeignEffect{Bypasses: []string{"the effect"}}, Problem, Degraded},
		{"the effect is unknown", &ForeignEffect{Unknown: []string{"the effect"}}, Warning, Works},
	} {
		t.Run(row.name, func(t *testing.T) {
			facts := healthy()
			facts.Foreign = row.effect
			findings := Diagnose(facts, typical(rules.ModeRedirect))
			var severity Severity
			for _, f := range findings {
				if f.Summary == "the effect" ||
					f.Summary == "no foreign rule makes captured traffic bypass the proxy" {
					severity = f.Severity
				}
			}
			if severity != row.severity || Sum(findings) != row.verdict {
				t.Errorf("severity %q, verdict %s, want %q, %s\n%s", severity, Sum(findings), row.severity,
					row.verdict, list(findings))
			}
		})
	}
}

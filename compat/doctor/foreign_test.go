package doctor

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// TestForeignEffect verifies the reported effect of foreign rules on captured traffic, and the sum
// of the findings.
func TestForeignEffect(t *testing.T) {
	for _, row := range []struct {
		name     string
		effect   *ForeignEffect
		severity Severity
		verdict  Verdict
	}{
		{"not asked", nil, "", Sum(nil)},
		{"none", &ForeignEffect{}, OK, Sum(nil)},
		{"bypass", &ForeignEffect{Bypasses: []string{"the effect"}}, Problem, Degraded},
		{"unknown", &ForeignEffect{Unknown: []string{"the effect"}}, Warning, Sum(nil)},
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
				t.Errorf("%q, %s\n%s", severity, Sum(findings), list(findings))
			}
		})
	}
}

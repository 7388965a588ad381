package istio_test

import (
	"os"
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/rules/diff"
)

// isLong reports whether SLUICE_LONG selects the long form of the tests.
func isLong() bool { return os.Getenv("SLUICE_LONG") == "1" }

// appliedGroups contains the groups whose rules are applied to the kernel even in the short form.
var appliedGroups = []string{"usual", "everything", "random"}

// checkApplied runs rules apply with the same arguments and each backend, and compares the kernel's
// rules with istio-iptables' rules.
func (s testCase) checkApplied(t *testing.T, istioSide diff.Side) {
	t.Helper()
	if !isLong() && !slices.Contains(appliedGroups, s.Group) {
		return
	}
	for _, backend := range []string{"nft", "legacy"} {
		ns := newPod(t, s.Pod)
		args := slices.Concat([]string{"apply"}, s.Args, []string{"--strict-istio", "--backend=" +
			backend})
		result, err := program(t, sluiceCommand).Run(ns, s.Configuration, args...)
		if err != nil {
			t.Fatal(err)
		}
		if result.Status != 0 {
			t.Errorf("%s\nrules apply with backend %s: exit status %d, want 0: %s", s, backend,
				result.Status, result.Errors)
			continue
		}
		r := diff.Decide(diff.Side{Ruleset: readLive(t, ns), RoutingKnown: true}, istioSide,
			diff.Options{})
		if r.StrictVerdict() != diff.Equivalent {
			t.Errorf("%s\nrules apply with backend %s and istio-iptables: %s, want equivalent\n%s", s,
				backend, r.StrictVerdict(),
				describe(r, backend, "istio-iptables"))
		}
	}
}

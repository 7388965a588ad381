package istio_test

import (
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// dryRun is the finding that istio-nftables programs rules in a dry run.
var dryRun = finding{id: "dry-run", description: "a dry run programs the rules"}

// checkNoRules checks that the programs create no rules, except istio-nftables in a dry run.
func (n *differenceCounter) checkNoRules(t *testing.T, c istio.Configuration) {
	t.Helper()
	for _, variant := range []string{byLegacy, byNative} {
		ns, result := start(t, c, variant)
		want := diff.Equivalent
		if variant == byNative && isDryRun(c) {
			want = diff.Different
		}
		r := compareWithEmpty(t, ns)
		if got := r.StrictVerdict(); result.Status != 0 || got != want {
			t.Errorf("%s %s\nexit status %d, compared with no rules: %s, want %s\n%s", variant, c,
				result.Status, got, want,
				describe(r, "istio", "no rules"))
		}
		if want == diff.Different && len(r.Classes) > 0 {
			n.add(dryRun.id, c.Name, r.Classes[0])
		}
	}
	ns := newPod(t, c.Pod)
	result, err := program(t, sluiceCommand).Run(ns, c, slices.Concat([]string{"apply"}, c.Args)...)
	if err != nil {
		t.Fatal(err)
	}
	if r := compareWithEmpty(t, ns); result.Status != 0 || r.StrictVerdict() != diff.Equivalent {
		t.Errorf("%s\nrules apply: exit status %d, want 0 and no rules in the namespace:\n%s", c,
			result.Status, describe(r, "rules", "no rules"))
	}
}

// compareWithEmpty compares the namespace's rules with an empty ruleset.
func compareWithEmpty(t *testing.T, ns *netns.NS) diff.Result {
	t.Helper()
	left := rules.Ruleset{Tables: readLive(t, ns).Tables}
	return diff.Decide(diff.Side{Ruleset: left}, diff.Side{}, diff.Options{})
}

func isDryRun(c istio.Configuration) bool {
	return slices.Contains(c.Args, "--dry-run") || slices.Contains(c.Env, "DRY_RUN=true")
}

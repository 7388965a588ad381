package nft

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestReadReturnsTheAppliedRuleset applies, replaces and removes rulesets of random parameters.
func TestReadReturnsTheAppliedRuleset(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	redirects := anyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		first, second := rules.MustCompile(redirects.Draw(t, "first")),
			rules.MustCompile(redirects.Draw(t, "second"))

		mustApply(t, ns, first, Created)
		checkRuleset(t, ns, first)
		before := generationOf(t, ns)
		mustApply(t, ns, first, Unchanged)
		if after := generationOf(t, ns); after != before {
			t.Fatalf("a second Apply changes the ruleset: generation %d, then %d", before, after)
		}

		if rules.Equal(first, second) {
			mustApply(t, ns, second, Unchanged)
		} else {
			mustApply(t, ns, second, Replaced, Updated)
		}
		checkRuleset(t, ns, second)

		if removed, err := Remove(ns); err != nil || !removed {
			t.Fatalf("removed %t, error %v, want the removal of the table", removed, err)
		}
		checkEmpty(t, ns)
		if removed, err := Remove(ns); err != nil || removed {
			t.Fatalf("second Remove: removed %t, error %v, want no change", removed, err)
		}
	})
}

// TestResultCountsAllObjects checks the numbers of objects and of changes in the result.
func TestResultCountsAllObjects(t *testing.T) {
	ns := netnstest.New(t)
	dual, ipv4 := example("tproxy-dual"), example("sidecar-ipv4")
	tx, err := Encode(dual)
	if err != nil {
		t.Fatal(err)
	}
	countRules := func(rs rules.Ruleset) (n int) {
		for _, c := range rs.Tables[0].Chains {
			n += len(c.Rules)
		}
		return n
	}
	const routes = 5 // two policy rules, two routes and ::6
	for _, step := range []struct {
		rs   rules.Ruleset
		want Result
	}{
		{
			dual,
			Result{
				Outcome: Created, Rules: countRules(dual), Bytes: len(tx.Bytes()), Routes: routes,
			},
		},
		{dual, Result{Outcome: Unchanged, Rules: countRules(dual)}},
		{ipv4, Result{Outcome: Replaced, Rules: countRules(ipv4), Routes: routes}},
		{
			manyPrefixes(0, 3),
			Result{
				Outcome: Replaced, Rules: countRules(manyPrefixes(0, 3)), Sets: 2, Elements: 6,
				Routes: 1, // ::6
			},
		},
		{
			manyPrefixes(1, 4),
			Result{Outcome: Updated, Rules: countRules(manyPrefixes(1, 4)), Sets: 2, Elements: 8},
		},
	} {
		got := mustApply(t, ns, step.rs, step.want.Outcome)
		if step.want.Bytes == 0 && step.want.Outcome != Unchanged {
			step.want.Bytes = got.Bytes // not compared by this test
		}
		if got != step.want {
			t.Errorf("result %+v, want %+v", got, step.want)
		}
	}
}

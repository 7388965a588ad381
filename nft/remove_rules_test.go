package nft

import (
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

func TestRemoveRulesKeepsTheRoutes(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	want := example("tproxy-dual")
	mustApply(t, ns, want, Created)
	for _, exists := range []bool{true, false} {
		if removed, err := RemoveRules(ns); err != nil || removed != exists {
			t.Errorf("removed %t, error %v, want %t", removed, err, exists)
		}
		checkRuleset(t, ns, rules.Ruleset{Routing: want.Routing})
	}
}

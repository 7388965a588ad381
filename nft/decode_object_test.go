package nft

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestUnresolvedReferencesAreUnknown covers references that the decoder does not resolve: to a
// named object, whose definition may differ, and to a device by its index, which may denote another
// device in another namespace.
func TestUnresolvedReferencesAreUnknown(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ objects, rule, want string }{
		{`ct helper h { type "ftp" protocol tcp; };`, `ct helper set "h"`, rules.NoData},
		{
			"ct expectation e { protocol tcp; dport 1; timeout 1m; size 1; };",
			`ct expectation set "e"`, rules.NoData,
		},
		{"", `dup to 10.0.0.1 device "lo"`, "index in"},
	} {
		ns := netnstest.New(t)
		load(t, ns, "table ip t { "+row.objects+" chain c { "+row.rule+"; }; }")
		got, err := ReadAll(ns)
		if err != nil {
			t.Fatal(err)
		}
		actions := got.Tables[0].Chains[0].Rules[0].Actions
		if len(actions) != 1 {
			t.Fatalf("%s: actions %v, want one action", row.rule, actions)
		}
		u, isUnknown := actions[0].(rules.Unknown)
		if !isUnknown || u.Effect != rules.AnyEffect || !strings.Contains(u.Data, row.want) {
			t.Errorf("%s: %#v, want an unknown action with any effect and %q in its data", row.rule,
				actions[0], row.want)
		}
	}
}

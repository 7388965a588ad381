package chaintest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
)

// TestCheckNamesTheDrift checks that CHECK names a change that is made after ADD, and that the next
// ADD repairs the rules.
func TestCheckNamesTheDrift(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, c := range []struct {
		name    string
		backend compat.BackendName
		pod     string
		command string // run in the pod's namespace
		drift   string // in the error of CHECK
	}{
		{
			"a rule before Sluice's rules", compat.BackendNFT, "sidecar",
			"nft insert rule inet sluice nat-output accept",
			"extra in chain inet sluice nat-output: accept",
		},
		{
			"the table is missing", compat.BackendNFT, "sidecar", "nft delete table inet sluice",
			"missing in the ruleset: table inet sluice",
		},
		{
			"an empty chain", compat.BackendNFT, "sidecar",
			"nft flush chain inet sluice nat-output", "missing",
		},
		{
			"the route is missing", compat.BackendNFT, "tproxy", "ip route flush table 133",
			"133",
		},
		{
			"the policy rule is missing", compat.BackendNFT, "tproxy",
			"ip rule del lookup 133", "133",
		},
		{
			"the jump to Sluice's chain is missing", compat.BackendLegacy, "sidecar",
			"iptables-legacy -t nat -F OUTPUT", "OUTPUT",
		},
		{
			"the mangle table is empty", compat.BackendLegacy, "tproxy", "iptables-legacy -t mangle -F",
			"mangle",
		},
		{
			"the other backend has rules of Sluice too", compat.BackendLegacy, "sidecar",
			"nft add table inet sluice", "sluice",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := n.newPod(t, c.pod)
			config := chain{version: latest, fields: map[string]any{"backend": string(c.backend)}}
			result := someResult(p)
			for _, verb := range []string{"ADD", "CHECK"} {
				if _, err := p.execute(t, verb, config, result); err != nil {
					t.Fatalf("%s: %v", verb, err)
				}
			}
			before := p.rules(t)
			p.run(t, strings.Fields(c.command)...)
			_, err := p.execute(t, "CHECK", config, result)
			if err == nil || !strings.Contains(err.Error(), c.drift) {
				t.Errorf("CHECK: %v; want an error with %q", err, c.drift)
			}
			t.Logf("CHECK: %v", err)
			for _, verb := range []string{"ADD", "CHECK"} {
				if _, err := p.execute(t, verb, config, result); err != nil {
					t.Errorf("%s again: %v", verb, err)
				}
			}
			if diff := cmp.Diff(before, p.rules(t)); diff != "" {
				t.Errorf("rules after the second ADD (-before +after):\n%s", diff)
			}
		})
	}
}

package nft

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// TestUnmodeledChainsAreListed covers chains of families that the model does not support, and
// chains that are attached to devices. Chains without effect are not listed: chains without a hook,
// chains of a dormant table, and chains without rules whose policy is accept.
func TestUnmodeledChainsAreListed(t *testing.T) {
	ns := netnstest.New(t)
	load(t, ns, `
		table netdev filter {
			chain ingress { type filter hook ingress device "lo" priority 0; drop; ip ttl 5 accept; counter; }
			chain egress { type filter hook egress device "lo" priority 0; policy drop; }
			chain empty { type filter hook ingress devices = { "lo" } priority 10; }
			chain called { drop; }
		}
		table netdev asleep { flags dormant; chain ingress { type filter hook ingress device "lo" priority 0; drop; }; }
		table bridge b { chain c { type filter hook forward priority 0; drop; }; }
		table arp a { chain c { type filter hook input priority 0; drop; }; }
		table inet i {
			chain early { type filter hook ingress device "lo" priority 0; ip ttl 5 drop; }
			chain late { type filter hook prerouting priority 0; ip ttl 5 drop; }
		}
		table ip plain { chain c { type filter hook input priority 0; drop; }; }`)
	r, err := ReadAllTables(ns, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range r.UnmodeledChains {
		got = append(got, c.String())
	}
	want := []string{
		"table netdev filter chain ingress at ingress of lo (3 rules)",
		"table netdev filter chain egress at egress of lo (0 rules, policy drop)",
		"table bridge b chain c at forward (1 rule)",
		"table arp a chain c at input (1 rule)",
		"table inet i chain early at ingress of lo (1 rule)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unmodeled chains (-want +got):\n%s", diff)
	}
	if len(r.Tables) != 2 {
		t.Errorf("%d tables of families that the model supports, want 2, the tables i and plain",
			len(r.Tables))
	}
}

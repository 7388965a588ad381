package diff

import (
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// A deviation that changes no rule has no variant, even if the other side has two tables of the
// same name, one of iptables-legacy and one of iptables-nft.
func TestVariantsOfTablesWithEqualNames(t *testing.T) {
	redirect := rules.DefaultRedirect()
	redirect.InboundPorts.All = true
	live := rules.Ruleset{Tables: []rules.Table{
		{Family: rules.IPv4, Name: "nat", Chains: []rules.Chain{{Name: "ISTIO_OUTPUT"}}},
		{Family: rules.IPv4, Name: "nat", Chains: []rules.Chain{{Name: "OUTPUT"}}},
	}}
	d := newDecision(Side{Ruleset: rules.MustCompile(redirect), Redirect: &redirect},
		Side{Ruleset: live}, Options{})
	var got [][]rules.DeviationID
	for _, v := range d.buildVariants() {
		got = append(got, v.disabled)
	}
	want := [][]rules.DeviationID{{rules.NATFirst}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("deviations that the variants disable: %v, want %v", got, want)
	}
}

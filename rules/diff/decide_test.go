package diff

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// TestComparisonReleasesMemory verifies that after a comparison the meter counts only memory that
// is still in use: the diagrams that the spaces of each family share, and the lists of addresses.
func TestComparisonReleasesMemory(t *testing.T) {
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.OutboundCIDRs.All = true, true
	side := Side{Ruleset: rules.MustCompile(r)}
	for _, most := range []int{maxSharedNodes, 0} {
		d := newDecision(side, side, Options{})
		d.maxSharedNodes = most
		d.interfaces = newInterfaceClasses(d.names, d.meter)
		before := d.meter.memory
		d.compareScopes()
		want := before + d.runLists.bytes
		for _, shared := range d.diagrams {
			want += shared.memory()
		}
		if d.meter.memory != want {
			t.Errorf("diagrams shared up to %d nodes: the meter counts %d bytes, want %d", most,
				d.meter.memory, want)
		}
		if most == 0 && len(d.diagrams) > 0 {
			t.Errorf("no diagrams shared: %d remain, want none", len(d.diagrams))
		}
	}
}

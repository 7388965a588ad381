package kerneltest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestNFTTemplateIsShared verifies that packets of another namespace see a mark that xtables has
// written to the template of nft's zones, and that no decision relies on the value of this mark.
func TestNFTTemplateIsShared(t *testing.T) {
	zone := chains(rules.Inet, []string{base("filter", "prerouting", "-310"), "ct zone set 5"})
	writes, reads := network(t), network(t)
	load := func(n *kerneltest.Network, list ...string) *rules.Ruleset {
		t.Helper()
		if err := n.Load(rulesetOf(zone, xtables(legacy, "raw", list...))); err != nil {
			t.Fatal(err)
		}
		live, err := n.Read()
		if err != nil {
			t.Fatal(err)
		}
		return &live.Ruleset
	}
	load(writes, "PREROUTING -j CONNMARK --set-mark 7")
	conditional := load(reads, "PREROUTING -m connmark --mark 7 -j MARK --set-mark 9")
	// Each CPU has its own template. The kernel selects the CPU that handles a packet.
	deadline := time.Now().Add(time.Minute)
	for sendSYN(t, writes); sendSYN(t, reads).Mark != 9; sendSYN(t, writes) {
		if time.Now().After(deadline) {
			t.Fatal("no packet of the other namespace has the mark 9 within a minute")
		}
	}
	for _, list := range []string{
		"PREROUTING -j MARK --set-mark 9", "PREROUTING -j MARK --set-mark 0",
	} {
		other := load(reads, list)
		r := diff.Decide(diff.Side{Ruleset: *conditional}, diff.Side{Ruleset: *other},
			diff.Options{})
		if r.StrictVerdict() == diff.Equivalent {
			t.Errorf("a condition on the template's mark, compared with %q: %s, want another verdict",
				list, r.StrictVerdict())
		}
	}
	r := diff.Decide(diff.Side{Ruleset: *conditional}, diff.Side{Ruleset: *conditional},
		diff.Options{})
	if r.StrictVerdict() != diff.Equivalent {
		t.Errorf("a ruleset compared with itself: %s, want %s", r.StrictVerdict(), diff.Equivalent)
	}
}

// sendSYN sends syn, and returns its effect.
func sendSYN(t *testing.T, n *kerneltest.Network) kerneltest.Effect {
	t.Helper()
	p := syn
	n.Complete(&p)
	o, err := n.Observe([]rules.Packet{p})
	if err != nil {
		t.Fatal(err)
	}
	effect, err := o[0].Effect(&p)
	if err := errors.Join(o[0].Err, err); err != nil {
		t.Fatalf("the packet cannot be sent or observed: %v", err)
	}
	return effect
}

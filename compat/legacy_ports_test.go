package compat_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// TestManyPortsBecomeAsFewRulesAsPossible translates 20,000 ports. No two of them are adjacent.
func TestManyPortsBecomeAsFewRulesAsPossible(t *testing.T) {
	const ports = 20000
	r := rules.DefaultRedirect()
	r.InboundPorts.All = true
	for i := range ports {
		r.InboundExcludePorts = append(r.InboundExcludePorts, rules.Single(uint16(1+2*i)))
	}
	l, err := compat.Translate(rules.MustCompile(r))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range l.Tables[0].Chains {
		for _, rule := range c.Rules {
			for _, m := range rule.Matches {
				if m, ok := m.(rules.MatchPort); ok && len(m.Ports) > 1 {
					n++
				}
			}
		}
	}
	if want := (ports + xt.MaxSlots - 1) / xt.MaxSlots; n != want {
		t.Errorf("%d rules with several ports in %s, want %d", n, l.Tables[0].Name, want)
	}
}

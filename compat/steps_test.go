package compat_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// If both mangle and nat change in a family that already has rules of Sluice, Steps inserts the
// gate, a chain in mangle that drops TCP packets of new connections until both tables are replaced.
func TestStepsInsertAGateIfMangleAndNATChange(t *testing.T) {
	gate := []rules.Table{compat.WithGate()}
	for _, tc := range []struct {
		name     string
		from, to []rules.Table
		want     []string
	}{
		{"no change", tables(t), tables(t), nil},
		{
			"a first installation has no gate", nil, tables(t, tproxy, allDNS),
			[]string{"ip raw", "ip mangle", "ip nat"},
		},
		{
			"capture moves to mangle", tables(t), tables(t, tproxy),
			[]string{"ip mangle gate", "ip nat", "ip mangle"},
		},
		{
			"capture moves to nat", tables(t, tproxy), tables(t),
			[]string{"ip mangle gate", "ip nat", "ip mangle delete"},
		},
		{"only nat changes", tables(t, tproxy), tables(t, tproxy, excludedCIDR), []string{"ip nat"}},
		{"only mangle changes", tables(t), tables(t, dropInvalid), []string{"ip mangle"}},
		{"DNS capture is enabled", tables(t), tables(t, allDNS), []string{"ip raw", "ip nat"}},
		{
			"DNS capture is disabled", tables(t, allDNS), tables(t),
			[]string{"ip raw delete", "ip nat"},
		},
		{
			"IPv6 is added: no gate, because no IPv6 was captured before", tables(t, tproxy), tables(t, tproxy, dual),
			[]string{"ip6 mangle", "ip6 nat"},
		},
		{
			"IPv6 is removed", tables(t, tproxy, dual), tables(t, tproxy),
			[]string{"ip6 mangle gate", "ip6 nat delete", "ip6 mangle delete"},
		},
		{"each family has its own gate", tables(t, dual), tables(t, dual, tproxy), []string{
			"ip mangle gate", "ip nat", "ip mangle", "ip6 mangle gate", "ip6 nat", "ip6 mangle",
		}},
		{
			"a gate that a killed process left is removed last", gate, tables(t, tproxy),
			[]string{"ip mangle gate", "ip nat", "ip mangle"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, compat.Steps(tc.to, tc.from)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// tables returns the iptables-legacy tables of the ruleset that compiled returns.
func tables(t *testing.T, change ...func(*rules.Redirect)) []rules.Table {
	t.Helper()
	l, err := compat.Translate(compiled(t, change...))
	if err != nil {
		t.Fatal(err)
	}
	return l.Tables
}

// EstablishedPackets sums only the packets of the rules for established connections, although the
// kernel counts the packets of every rule.
func TestEstablishedPacketsIgnoresOtherRules(t *testing.T) {
	keep := func(r *rules.Redirect) { r.KeepEstablished = true }
	desired, live := tables(t, tproxy, keep), tables(t, tproxy, keep)
	counted := uint64(0)
	for _, table := range live {
		for _, c := range table.Chains {
			for i := range c.Rules {
				c.Rules[i].Hits.Packets = 1000
				if slices.Contains(c.Rules[i].Actions, rules.Action(rules.Count{})) {
					counted++
					c.Rules[i].Hits.Packets = 3
				}
			}
		}
	}
	if got := compat.EstablishedPackets(desired, live); got != 3*counted || counted == 0 {
		t.Errorf("%d packets, want 3 for each of %d rules", got, counted)
	}
	if got := compat.EstablishedPackets(tables(t), tables(t)); got != 0 {
		t.Errorf("%d packets without such rules, want 0", got)
	}
}

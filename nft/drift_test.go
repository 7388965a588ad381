package nft

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestForeignObjectsAreFoundAndRemoved checks which foreign objects a read reports, and which of
// them Apply removes: all objects in the table of Sluice, and policy rules that Sluice might have
// added.
func TestForeignObjectsAreFoundAndRemoved(t *testing.T) {
	const (
		someSet  = "add set inet sluice spare { type ipv4_addr; }"
		extraSet = "extra in table inet sluice: set spare, which no rule uses"
	)
	for _, row := range []struct {
		name    string
		example string
		nft     string // input of the nft command
		ip      string // arguments of the ip command
		// found and remaining contain the differences before and after Apply.
		found     []string
		outcome   Outcome
		remaining []string
	}{
		{"a set", "exclusions-dual", someSet, "", []string{extraSet}, Replaced, nil},
		{
			"an additional set in a ruleset without sets", "sidecar-ipv4", someSet, "",
			[]string{extraSet},
			Replaced, nil,
		},
		{
			"a map with elements", "sidecar-ipv4",
			"add map inet sluice spare { type ipv4_addr : verdict; elements = { 10.0.0.1 : drop }; }", "",
			[]string{extraSet},
			Replaced, nil,
		},
		{
			"a set with a rule that uses it in an unknown expression", "sidecar-ipv4",
			"add set inet sluice spare { type ipv4_addr; flags dynamic; timeout 1m; }\n" +
				"add rule inet sluice nat-output add @spare { ip daddr }", "",
			[]string{
				"extra in chain inet sluice nat-output: meta nfproto ipv4 unknown(dynset @spare)",
			},
			Replaced, nil,
		},
		{
			"a map of counters with a rule that uses it", "sidecar-ipv4",
			"add counter inet sluice some\n" +
				"add map inet sluice spare { type ipv4_addr : counter; elements = { 10.0.0.1 : \"some\" }; }\n" +
				"add rule inet sluice nat-output counter name ip daddr map @spare", "",
			[]string{"extra in chain inet sluice nat-output: meta nfproto ipv4 unknown(objref)"},
			Replaced, nil,
		},
		{
			"a route", "tproxy-dual", "", "-4 route add blackhole 10.0.0.0/8 table 133",
			[]string{"extra in routing: ip -4 route blackhole 10.0.0.0/8 table 133"},
			Unchanged,
			[]string{"extra in routing: ip -4 route blackhole 10.0.0.0/8 table 133"},
		},
		{
			"a route in a foreign table, without rules of Sluice", "sidecar-ipv4", "",
			"-4 route add blackhole 10.0.0.0/8 table 133", nil, Unchanged, nil,
		},
		{
			"a policy rule like Sluice's", "sidecar-ipv4", "",
			"-4 rule add pref 133 fwmark 7 lookup 100",
			[]string{
				"extra in routing: ip -4 rule priority 133 fwmark 0x7 lookup 100, without its route",
			},
			Updated, nil,
		},
		{
			"a policy rule at Sluice's priority that Sluice never creates", "tproxy-dual", "",
			"-6 rule add pref 133 from fd00::1 lookup 100",
			[]string{"extra in routing: ip -6 rule priority 133 from fd00::1/128 lookup 100"},
			Unchanged,
			[]string{"extra in routing: ip -6 rule priority 133 from fd00::1/128 lookup 100"},
		},
		{
			"a policy rule of Sluice without its route", "tproxy-dual", "",
			"-4 route del local default dev lo table 133",
			[]string{
				"missing in routing: ip -4 rule priority 133 fwmark 0x539 lookup 133; local default dev lo table 133",
			},
			Updated, nil,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			want := example(row.example)
			mustApply(t, ns, want, Created)
			if row.nft != "" {
				load(t, ns, row.nft)
			}
			if row.ip != "" {
				command(t, ns, "", "ip", strings.Fields(row.ip)...)
			}
			if diff := cmp.Diff(row.found, differences(t, ns, want)); diff != "" {
				t.Errorf("before Apply, -want +got\n%s", diff)
			}
			mustApply(t, ns, want, row.outcome)
			if diff := cmp.Diff(row.remaining, differences(t, ns, want)); diff != "" {
				t.Errorf("after Apply, -want +got\n%s", diff)
			}
			mustApply(t, ns, want, Unchanged)
		})
	}
}

// differences returns the differences between the namespace and the ruleset.
func differences(t *testing.T, ns *netns.NS, want rules.Ruleset) []string {
	t.Helper()
	got, err := Read(ns)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, d := range rules.Compare(want, got) {
		texts = append(texts, d.String())
	}
	return texts
}

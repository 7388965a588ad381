package rulestest

import (
	"net/netip"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// ReplaceIPSets replaces each match of an ipset by a match of the set's members. members contains
// the addresses by the name of the set. ReplaceIPSets fails the test if no rule uses an ipset, or
// if a rule uses another kind of list than an ipset of destination addresses.
func ReplaceIPSets(t testing.TB, rs rules.Ruleset, members map[string][]netip.Addr) {
	t.Helper()
	replaced := 0
	for _, r := range rs.AllRules() {
		for i, m := range r.Matches {
			listed, ok := m.(rules.MatchListed)
			if !ok {
				continue
			}
			name, isIPSet := strings.CutPrefix(listed.List, "ipset ")
			if !isIPSet || listed.Parts != "dst" {
				t.Fatalf("%s: not a match of destinations by an ipset", listed)
			}
			var ranges []netipx.IPRange
			for _, a := range members[name] {
				ranges = append(ranges, netipx.IPRangeFrom(a, a))
			}
			r.Matches[i] = rules.MatchAddr{
				Not: listed.Not, Side: rules.Destination, Ranges: rules.NormalizeAddrs(ranges),
			}
			replaced++
		}
	}
	if replaced == 0 {
		t.Fatal("no rule uses an ipset")
	}
}

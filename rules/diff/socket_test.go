package diff_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestSocketsBeforeConntrack verifies that a decision does not assume that the kernel finds the
// same socket before and after conntrack. For a reply to a translated source, the kernel finds the
// socket by the connection.
func TestSocketsBeforeConntrack(t *testing.T) {
	at := func(priority int) rules.Ruleset {
		// A chain after NAT makes connections with translations relevant.
		return ruleset(base(rules.Filter, rules.Prerouting, priority,
			when(rules.Drop, rules.MatchSocket{Kind: rules.NFTSocket})),
			base(rules.Filter, rules.Prerouting, -50, when(setMark(1, everyBit), tcp)))
	}
	if r := decide(at(-300), at(-150)); r.StrictVerdict() == diff.Equivalent {
		t.Errorf("a socket match before conntrack and one after it: verdict %s, want another",
			diff.Equivalent)
	}
	if r := decide(at(-160), at(-150)); r.StrictVerdict() != diff.Equivalent {
		t.Errorf("two socket matches after conntrack: verdict %s, want %s", r.StrictVerdict(),
			diff.Equivalent)
	}
}

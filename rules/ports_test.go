package rules_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// excludedPorts returns the ports of the rule for excluded inbound ports.
func excludedPorts(t testing.TB, rs rules.Ruleset) []rules.PortRange {
	for _, r := range rs.AllRules() {
		for _, m := range r.Matches {
			if m, ok := m.(rules.MatchPort); ok && r.Comment == "excluded inbound port" {
				return m.Ports
			}
		}
	}
	t.Fatal("no rule excludes inbound ports, want one")
	return nil
}

// excludingPorts returns the compiled rules that capture all inbound ports except the given ones.
func excludingPorts(ports []rules.PortRange) rules.Ruleset {
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.InboundExcludePorts = true, ports
	return rules.MustCompile(r)
}

// In a short list, adjacent ports stay single. In a long list they become ranges.
func TestManyAdjacentPortsBecomeRanges(t *testing.T) {
	for _, row := range []struct{ from, ports, want int }{
		{15020, 2, 2},
		{1, rules.ManyPorts - 1, rules.ManyPorts - 1},
		{1, rules.ManyPorts, 1},
		{1, 40000, 1},
		{65536 - rules.ManyPorts, rules.ManyPorts, 1},
	} {
		var list []rules.PortRange
		for i := range row.ports {
			list = append(list, rules.Single(uint16(row.from+i)))
		}
		if got := excludedPorts(t, excludingPorts(list)); len(got) != row.want {
			t.Errorf("%d ports from %d: %d ranges, want %d", row.ports, row.from, len(got),
				row.want)
		}
	}
}

// TestMergedPortsAreEquivalent generates lists of ports that the compiler merges, and compares each
// ruleset with a ruleset that contains the unmerged ports.
func TestMergedPortsAreEquivalent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOfNDistinct(rapid.Uint16Range(1, 2000), rules.ManyPorts,
			rules.ManyPorts+100, rapid.ID[uint16]).Draw(t, "ports")
		joined := excludingPorts(rules.Singles(numbers...))
		single := excludingPorts(rules.Singles(numbers...))
		for _, r := range single.AllRules() {
			for i, m := range r.Matches {
				if m, ok := m.(rules.MatchPort); ok && r.Comment == "excluded inbound port" {
					m.Ports = rules.Singles(numbers...)
					r.Matches[i] = m
				}
			}
		}
		result := diff.Decide(diff.Side{Ruleset: joined}, diff.Side{Ruleset: single},
			diff.Options{})
		if result.StrictVerdict() != diff.Equivalent {
			t.Fatalf("verdict %s, want %s: %+v", result.StrictVerdict(), diff.Equivalent, result)
		}
	})
}

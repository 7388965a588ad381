package compat_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A packet matches rules with the same roles before and after the translation. The translation
// removes a return at the end of a chain. The role of such a rule may therefore be missing.
func TestTranslatedRulesHaveTheSameRoles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := rules.MustCompile(generator{t}.redirect())
		legacy, err := compat.Translate(rs)
		if err != nil {
			t.Fatalf("%v\n%s", err, rs)
		}
		translated := rules.Ruleset{Tables: legacy.Tables, Routing: legacy.Routing}
		random := rand.New(rand.NewPCG(1, 2))
		for range 100 {
			p := anyPacket(random)
			want, got := rolesOf(&rs, p), rolesOf(&translated, p)
			want = slices.DeleteFunc(want, func(r rules.Role) bool {
				return !hasRole(&translated, p.Family(), r)
			})
			if !slices.Equal(want, got) {
				t.Fatalf("%s: roles %v after the translation, want %v\n%s\n%s", p, got, want, rs, translated)
			}
			if len(want) > 2 { // one inbound and one outbound role
				t.Fatalf("%s: %d rules with a role, want at most 2\n%s", p, len(want), rs)
			}
		}
	})
}

// rolesOf returns the roles of the rules that a packet matches.
func rolesOf(rs *rules.Ruleset, p rules.Packet) []rules.Role {
	var list []rules.Role
	for _, pass := range diff.Explain(rs, p).Passes {
		for _, s := range pass.Steps {
			if r := s.Rule(); r.Role != rules.NoRole {
				list = append(list, r.Role)
			}
		}
	}
	return list
}

func hasRole(rs *rules.Ruleset, f rules.Family, role rules.Role) bool {
	return slices.ContainsFunc(rs.Tables, func(t rules.Table) bool {
		return t.Family == f && slices.ContainsFunc(t.Chains, func(c rules.Chain) bool {
			return slices.ContainsFunc(c.Rules, func(r rules.Rule) bool { return r.Role == role })
		})
	})
}

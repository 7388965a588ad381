package nft

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestTheNftCommandListsOurTable shows what an administrator sees: the golden files are to be read.
func TestTheNftCommandListsOurTable(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			applied(t, ns, compiled(e.change), Created)
			golden(t, "list-"+e.name, nftCommand(t, ns, "", "--stateless", "list", "ruleset"))
		})
	}
}

// TestTheNftCommandLoadsItsOwnListing makes sure that a saved listing restores the rules.
func TestTheNftCommandLoadsItsOwnListing(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			ours, restored := netnstest.New(t), netnstest.New(t)
			applied(t, ours, compiled(e.change), Created)
			load(t, restored, nftCommand(t, ours, "", "list", "ruleset"))
			want, err := Read(ours)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Read(restored)
			if err != nil {
				t.Fatal(err)
			}
			got.Routing = want.Routing // no matter of the nft command
			if diffs := rules.Compare(want, got); len(diffs) > 0 {
				t.Error(listing(diffs))
			}
		})
	}
}

// TestTheTextOfARulesetIsTheRuleset holds for whatever parameters there are: the nft command loads
// what Ruleset.String writes, and it reads back as the same ruleset.
func TestTheTextOfARulesetIsTheRuleset(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	redirects := AnyRedirect()
	rapid.Check(t, func(rt *rapid.T) {
		want := rules.MustCompile(redirects.Draw(rt, "redirect"))
		load(t, ns, "flush ruleset\n"+want.String())
		got, err := Read(ns)
		if err != nil {
			rt.Fatal(err)
		}
		got.Routing = want.Routing
		if diffs := rules.Compare(joined(want), joined(got)); len(diffs) > 0 {
			rt.Fatalf("%s\nof\n%s", listing(diffs), want)
		}
	})
}

// joined joins the ranges of ports and ids that touch, as the nft command does in anonymous sets.
func joined(rs rules.Ruleset) rules.Ruleset {
	for _, table := range rs.Tables {
		for _, chain := range table.Chains {
			for _, rule := range chain.Rules {
				for i, m := range rule.Matches {
					switch m := m.(type) {
					case rules.MatchPort:
						m.Ports = join(m.Ports)
						rule.Matches[i] = m
					case rules.MatchOwner:
						m.IDs = join(m.IDs)
						rule.Matches[i] = m
					}
				}
			}
		}
	}
	return rs
}

func join[T uint16 | uint32](ranges []rules.Range[T]) []rules.Range[T] {
	var list []rules.Range[T]
	for _, r := range ranges {
		if last := len(list) - 1; last >= 0 && list[last].Last+1 == r.First {
			list[last].Last = r.Last
			continue
		}
		list = append(list, r)
	}
	return list
}

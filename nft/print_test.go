package nft

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestNftCommandListsTheTable compares listings of the nft command with golden files. An
// administrator must be able to read the listings.
func TestNftCommandListsTheTable(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			mustApply(t, ns, compileWith(e.change), Created)
			golden(t, "list-"+e.name, nftCommand(t, ns, "", "--stateless", "list", "ruleset"))
		})
	}
}

// TestNftCommandLoadsItsOwnListing checks that a saved listing restores the rules.
func TestNftCommandLoadsItsOwnListing(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			original, restored := netnstest.New(t), netnstest.New(t)
			mustApply(t, original, compileWith(e.change), Created)
			load(t, restored, nftCommand(t, original, "", "list", "ruleset"))
			want, err := Read(original)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Read(restored)
			if err != nil {
				t.Fatal(err)
			}
			got.Routing = want.Routing // the nft command does not list routes
			if diffs := rules.Compare(want, got); len(diffs) > 0 {
				t.Errorf("the restored ruleset differs from the original:\n%s", listing(diffs))
			}
		})
	}
}

// TestNftCommandLoadsTheTextOfARuleset checks for random parameters that the nft command loads the
// output of Ruleset.String, and that Read then returns the same ruleset.
func TestNftCommandLoadsTheTextOfARuleset(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	redirects := anyRedirect()
	rapid.Check(t, func(rt *rapid.T) {
		want := rules.MustCompile(redirects.Draw(rt, "redirect"))
		load(t, ns, "flush ruleset\n"+want.String())
		got, err := Read(ns)
		if err != nil {
			rt.Fatal(err)
		}
		got.Routing = want.Routing
		if diffs := rules.Compare(joinRanges(want), joinRanges(got)); len(diffs) > 0 {
			rt.Fatalf("the loaded ruleset differs:\n%s\nwant\n%s", listing(diffs), want)
		}
	})
}

// joinRanges joins adjacent ranges of ports and ids in the ruleset, as the nft command does in
// anonymous sets, and returns the ruleset.
func joinRanges(rs rules.Ruleset) rules.Ruleset {
	for _, table := range rs.Tables {
		for _, chain := range table.Chains {
			for _, rule := range chain.Rules {
				for i, m := range rule.Matches {
					switch m := m.(type) {
					case rules.MatchPort:
						m.Ports = joinAdjacent(m.Ports)
						rule.Matches[i] = m
					case rules.MatchOwner:
						m.IDs = joinAdjacent(m.IDs)
						rule.Matches[i] = m
					}
				}
			}
		}
	}
	return rs
}

// joinAdjacent joins adjacent ranges of a sorted list.
func joinAdjacent[T uint16 | uint32](ranges []rules.Range[T]) []rules.Range[T] {
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

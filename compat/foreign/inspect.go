package foreign

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A Reading is an effect, and by what is known later whether it still holds.
type Reading struct {
	Effect
	legacy xtables.Digest
}

// Inspect reads all live rules of the namespace (nil: the current one), and decides what those of
// others do to the traffic that the desired ruleset captures. What cannot be read is unknown. Our
// rules must be in place. The budget bounds the decision.
func Inspect(ns *netns.NS, desired rules.Ruleset, b diff.Budget) Reading {
	var r Reading
	var err error
	if r.legacy, err = xtables.DigestTables(ns); err != nil {
		return Reading{Effect: unreadable(err)}
	}
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		return Reading{Effect: unreadable(err)}
	}
	r.Effect = Decide(live, desired, b)
	return r
}

// Examine is [Inspect] for a namespace that need not have our rules: if it has none, the desired
// ruleset is taken to come beside what is live, as the rules made last.
func Examine(ns *netns.NS, desired rules.Ruleset, b diff.Budget) Effect {
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		return unreadable(err)
	}
	if !hasOurs(&live) {
		live.Ruleset.Tables = slices.Concat(desired.Tables, live.Ruleset.Tables)
		live.Ruleset.Routing = desired.Routing
	}
	return Decide(live, desired, b)
}

// hasOurs reports whether some rules are ours.
func hasOurs(live *compat.Live) bool {
	return slices.ContainsFunc(live.Ruleset.Tables, func(t rules.Table) bool {
		ours := func(c rules.Chain) bool { return compat.IsOurs(c.Name) }
		return t.Family == rules.Inet && t.Name == rules.TableName || compat.IsLegacy(&t) && slices.ContainsFunc(t.Chains, ours)
	})
}

// Holds reports whether an earlier reading of the namespace still holds, provided that no rule of
// nftables, no route and no desired rule has changed since. It reads the tables of iptables-legacy,
// which change without an event. A reading that has failed never holds.
func (r *Reading) Holds(ns *netns.NS) bool {
	if r.Exhausted {
		return false
	}
	now, err := xtables.DigestTables(ns)
	return err == nil && now == r.legacy
}

// unreadable is the effect of rules that cannot be read.
func unreadable(err error) Effect {
	return Effect{Unknown: []string{fmt.Sprintf("the rules of others cannot be read: %v", err)}, Exhausted: true}
}

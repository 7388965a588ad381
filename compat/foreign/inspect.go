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

// A Reading is an effect, with the data to check later whether it is still valid.
type Reading struct {
	Effect
	legacy xtables.Digest
}

// Inspect reads all live rules of the namespace (nil: the current one), and returns the effect of
// the foreign ones on the traffic that the desired ruleset captures. Rules that cannot be read make
// the effect unknown. Sluice's rules must be installed. The budget limits the decision.
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

// Examine is [Inspect] for a namespace that may not have Sluice's rules: then the desired ruleset
// is assumed to be added after the live rules.
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

// hasOurs reports whether some rules are Sluice's.
func hasOurs(live *compat.Live) bool {
	return slices.ContainsFunc(live.Ruleset.Tables, func(t rules.Table) bool {
		ours := func(c rules.Chain) bool { return compat.IsSluiceChain(c.Name) }
		return t.Family == rules.Inet && t.Name == rules.TableName ||
			compat.IsLegacy(&t) && slices.ContainsFunc(t.Chains, ours)
	})
}

// Holds reports whether an earlier reading of the namespace is still valid, provided that no
// nftables rule, route and desired rule has changed. It reads the tables of iptables-legacy, for
// which the kernel has no events. A failed reading is never valid.
func (r *Reading) Holds(ns *netns.NS) bool {
	if r.Exhausted {
		return false
	}
	now, err := xtables.DigestTables(ns)
	return err == nil && now == r.legacy
}

// unreadable returns the effect of rules that cannot be read.
func unreadable(err error) Effect {
	return Effect{
		Unknown: []string{fmt.Sprintf("foreign rules cannot be read: %v", err)}, Exhausted: true,
	}
}

package route

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// Rollback removes what [Ensure] added after a change of rules that has failed,
// except for what the rules that stay may use. Call it only while others who
// change routes wait: they may have found complete what it removes.
func (c Change) Rollback(stay []rules.Table) error { return c.Except(used(stay, c.want)).Undo() }

// Finish ends a change of rules that needed the routing given to [Ensure]: it
// removes what no rules need any more, and returns how many rules, routes and
// addresses were added and removed, also with an error. hadRules reports whether
// there were rules of ours before the change. exclusive reports whether others
// who change routes waited; if not, what they removed meanwhile is added again.
// The errors say that the rules are in place; the next change completes the rest.
func (c Change) Finish(hadRules, exclusive bool) (changed int, err error) {
	changed = c.Len()
	if c.Stale() {
		// Left by earlier rules of ours, or by a process that was killed before it made any.
		pruned, err := Prune(c.ns, kept(c.want, hadRules))
		changed += pruned
		if err != nil {
			return changed, fmt.Errorf("the rules are in place, but not all old routes are gone: %w", err)
		}
	}
	if !exclusive {
		// A process that did not wait may have removed as stale what these rules need.
		if _, err := Ensure(c.ns, c.want); err != nil {
			return changed, fmt.Errorf("the rules are in place, but not their routes: %w", err)
		}
	}
	return changed, nil
}

// PruneAfter is [Prune] of everything in the calling thread's namespace, after all
// rules of ours were removed; hadRules reports whether there were any.
func PruneAfter(hadRules bool) (removed int, err error) {
	return Prune(nil, kept(rules.Routing{}, hadRules))
}

// kept is what stays when all else of ours is pruned. ::6 may as well be Istio's:
// it goes only if rules of ours were there, of which it was a part.
func kept(want rules.Routing, hadRules bool) rules.Routing {
	if !hadRules {
		want.LoopbackAddrs = []netip.Addr{rules.PassthroughIPv6()}
	}
	return want
}

// used returns what the tables may use of routes that were added for others, in
// vain, and that they lacked. An applier of their rules may have found them
// complete meanwhile, since it takes no lock to look.
func used(tables []rules.Table, added rules.Routing) rules.Routing {
	var r rules.Routing
	for _, t := range tables {
		for _, c := range t.Chains {
			for _, rule := range c.Rules {
				if slices.ContainsFunc(rule.Actions, toProxy) {
					r.Policies = added.Policies
				}
				if slices.ContainsFunc(rule.Matches, ofIPv6) {
					r.LoopbackAddrs = added.LoopbackAddrs
				}
			}
		}
	}
	return r
}

// toProxy reports whether an action needs marked packets to be local.
func toProxy(a rules.Action) bool {
	switch a.(type) {
	case rules.TProxy, rules.TProxyDrop:
		return true
	}
	return false
}

func ofIPv6(m rules.Match) bool {
	addr, ok := m.(rules.MatchAddr)
	return ok && addr.Family() == rules.IPv6
}

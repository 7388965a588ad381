package route

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// Rollback removes the objects that [Ensure] added, after the change of rules has failed. It keeps
// the objects that the remaining tables may use. The caller must hold the lock of the namespace
// ([netns.NS.Lock]), because without the lock another process may rely on the removed objects.
func (c Change) Rollback(remaining []rules.Table) error {
	return c.Except(usedRouting(remaining, c.want)).Undo()
}

// Finish completes a successful change of rules that need the routing given to [Ensure]. It removes
// routing that no rules need any more. It returns the number of policy rules, routes and addresses
// that Ensure has added and Finish has removed, even with an error. hadRules reports whether the
// namespace had rules of Sluice before the change. exclusive reports whether the caller holds the
// lock of the namespace; otherwise Finish adds objects again that another process has removed in
// the meantime. After an error the rules are in place, and the next change completes the routing.
func (c Change) Finish(hadRules, exclusive bool) (changed int, err error) {
	changed = c.Len()
	if c.Stale() {
		// Stale objects are from earlier rules, or from a process that was killed before it added
		// rules.
		pruned, err := Prune(c.ns, withForeignAddrs(c.want, hadRules))
		changed += pruned
		if err != nil {
			return changed, fmt.Errorf(
				"the rules are in place, but not all old routes are removed: %w", err)
		}
	}
	if !exclusive {
		// A concurrent process may have removed routes of these rules as stale.
		if _, err := Ensure(c.ns, c.want); err != nil {
			return changed, fmt.Errorf("the rules are in place, but not all of their routes: %w",
				err)
		}
	}
	return changed, nil
}

// PruneAfter removes the routing of this package from the calling thread's namespace, after all
// rules of Sluice were removed. hadRules reports whether the namespace had rules of Sluice. If it
// is false, PruneAfter keeps ::6, which may belong to Istio.
func PruneAfter(hadRules bool) (removed int, err error) {
	return Prune(nil, withForeignAddrs(rules.Routing{}, hadRules))
}

// withForeignAddrs returns want, and adds ::6 if there were no rules of Sluice: the address may
// then belong to Istio, and must be kept.
func withForeignAddrs(want rules.Routing, hadRules bool) rules.Routing {
	if !hadRules {
		want.LoopbackAddrs = []netip.Addr{rules.PassthroughIPv6()}
	}
	return want
}

// usedRouting returns the part of want that rules of the tables may use. Another process may have
// applied these rules after it found the added routes: [InSync] takes no lock.
func usedRouting(tables []rules.Table, want rules.Routing) rules.Routing {
	var r rules.Routing
	for _, t := range tables {
		for _, c := range t.Chains {
			for _, rule := range c.Rules {
				if slices.ContainsFunc(rule.Actions, needsLocalRoute) {
					r.Policies = want.Policies
				}
				if slices.ContainsFunc(rule.Matches, matchesIPv6Addr) {
					r.LoopbackAddrs = want.LoopbackAddrs
				}
			}
		}
	}
	return r
}

// needsLocalRoute reports whether an action needs a policy route that delivers marked packets
// locally.
func needsLocalRoute(a rules.Action) bool {
	switch a.(type) {
	case rules.TProxy, rules.TProxyDrop:
		return true
	}
	return false
}

// matchesIPv6Addr reports whether a match compares an IPv6 address. Rules that capture IPv6 contain
// such a match, for example of ::6.
func matchesIPv6Addr(m rules.Match) bool {
	addr, ok := m.(rules.MatchAddr)
	return ok && addr.Family() == rules.IPv6
}

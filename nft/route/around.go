package route

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// Found is what a change of rules has found of rules of ours.
type Found struct {
	// Any tells that there were some before the change, in any engine.
	Any bool
	// Stay are the tables that are there after a change that has failed.
	Stay []rules.Table
}

// Around makes the routing of the calling thread's namespace what is wanted,
// around a change of the rules that need it: what lacks is added before, and what
// no rules need any more is removed after. It returns how many rules, routes
// and addresses it has added and removed.
//
// When the change fails, what was added is removed again, but for what the rules
// that stay may use. Exclusive tells that all others who would use Around wait
// for the end of it; if they do not, nothing that they may have found complete
// is removed. The error is the change's, unless it says what became of the routes:
// those that fail after a change that did not are left to the next Around, and
// the count is then of what was done before.
func Around(want rules.Routing, exclusive bool, change func() (Found, error)) (changed int, err error) {
	added, err := Ensure(nil, want)
	if err != nil {
		return 0, err
	}
	found, err := change()
	if err != nil {
		// Left over, they do no harm.
		if exclusive {
			err = errors.Join(err, added.Except(used(found.Stay, want)).Undo())
		}
		return 0, err
	}
	changed = added.Len()
	if added.Stale() {
		// Of earlier rules of ours, or of an applier that was killed before it had made any.
		pruned, err := Prune(nil, kept(want, found.Any))
		changed += pruned
		if err != nil {
			return changed, fmt.Errorf("the rules are in place, but not all old routes are gone: %w", err)
		}
	}
	if !exclusive {
		// Another, who did not wait, may have taken for stale what these rules need.
		if _, err := Ensure(nil, want); err != nil {
			return changed, fmt.Errorf("the rules are in place, but not their routes: %w", err)
		}
	}
	return changed, nil
}

// PruneAfter is [Prune] of everything in the calling thread's namespace, after all
// rules of ours were removed; hadRules tells whether there were any.
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

// toProxy tells whether an action needs marked packets to be local.
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

package route

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Prune removes the objects of this package that are not in keep, and returns the number of removed
// rules, routes and addresses. It keeps the local default route of a table if another policy rule
// of its family looks up the table. It removes ::6 unless keep has it, even if Istio added it:
// while Istio's rules remain, keep must have ::6.
//
// If a removal fails, Prune continues with the other objects, and returns all errors.
func Prune(ns *netns.NS, keep rules.Routing) (removed int, err error) {
	objects, err := prune(ns, newPruning(keep))
	return len(objects), err
}

// Find returns descriptions of the objects that Prune would remove.
func Find(ns *netns.NS, keep rules.Routing) ([]string, error) {
	r, err := openReader(ns)
	if err != nil {
		return nil, err
	}
	defer r.close()
	found, err := newPruning(keep).find(r)
	return descriptions(found), err
}

// newPruning returns the pruning that removes all objects of this package except keep.
func newPruning(keep rules.Routing) pruning {
	return pruning{keep: keep, selects: foundRule.isOwned}
}

// PruneIstio removes the routing that istio-iptables (--istio-inbound-tproxy-mark,
// --istio-inbound-tproxy-route-table), or istio-cni in ambient mode, adds for the mark, mask and
// table of policy:
//
//   - the policy rules "fwmark MARK/MASK lookup TABLE" of both families, with any priority, because
//     each run of istio-iptables adds a rule with another priority,
//   - the local default route of the table, unless other rules look up the table,
//   - the address ::6.
//
// PruneIstio keeps the objects of keep, which may equal objects of Istio. It returns descriptions
// of the removed objects. If a removal fails, it continues with the other objects, and returns all
// errors.
func PruneIstio(
	ns *netns.NS, policy rules.PolicyRoute, keep rules.Routing,
) (removed []string, err error) {
	objects, err := prune(ns, newIstioPruning(policy, keep))
	return descriptions(objects), err
}

// FindIstio returns descriptions of the objects that PruneIstio would remove after Prune. It omits
// the objects that Prune would remove already.
func FindIstio(ns *netns.NS, policy rules.PolicyRoute, keep rules.Routing) ([]string, error) {
	reader, err := openReader(ns)
	if err != nil {
		return nil, err
	}
	defer reader.close()
	sluiceObjects, err := newPruning(keep).find(reader)
	if err != nil {
		return nil, err
	}
	// Select Sluice's rules too: a rule that Prune removes first must not count as a user of
	// Istio's table.
	combined := newIstioPruning(policy, keep)
	isIstio := combined.selects
	combined.selects = func(r foundRule) bool { return r.isOwned() || isIstio(r) }
	found, err := combined.find(reader)
	isSluice := setOf(sluiceObjects)
	return descriptions(slices.DeleteFunc(found, func(o object) bool { return isSluice[o] })), err
}

// newIstioPruning returns the pruning that removes Istio's routing except keep.
func newIstioPruning(policy rules.PolicyRoute, keep rules.Routing) pruning {
	return pruning{
		keep: keep,
		selects: func(r foundRule) bool {
			return r.isPlain && r.policy.Mark == policy.Mark && r.policy.Mask == policy.Mask &&
				r.policy.Table == policy.Table
		},
		table: policy.Table,
	}
}

// descriptions returns descriptions of the objects.
func descriptions(objects []object) []string {
	var texts []string
	for _, o := range objects {
		texts = append(texts, o.String())
	}
	return texts
}

// pruning selects the objects to remove.
type pruning struct {
	keep rules.Routing
	// selects reports whether a rule is removed if it is not in keep.
	selects func(foundRule) bool
	// table, unless 0, is a table whose unused route is removed even if no removed rule looks up
	// the table.
	table uint32
}

// prune removes the selected objects, and returns the objects that it has removed.
func prune(ns *netns.NS, p pruning) (removed []object, err error) {
	r, err := openReader(ns)
	if err != nil {
		return nil, err
	}
	defer r.close()
	found, err := p.find(r)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	h, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return removeAll(ns, h, found)
}

// removeAll removes the objects, even after an error, and returns the objects that it has removed.
// If it cannot list the policy rules, it removes none of them.
func removeAll(ns *netns.NS, h *netlink.Handle, objects []object) (removed []object, err error) {
	removals, listErr := listRemovals(ns, objects)
	errs := []error{listErr}
	for _, o := range objects {
		if p, ok := o.(policyRule); ok {
			r := removals[p]
			switch {
			case listErr != nil:
				continue
			case r.plainCount > 0:
				removals[p] = removal{r.plainCount - 1, r.blocking}
			case r.blocking != "":
				errs = append(errs, fmt.Errorf(
					"remove %s: the kernel would remove %q, which precedes it; remove that rule first",
					p, r.blocking))
				continue
			}
		}
		switch err := o.remove(h); {
		case err == nil:
			removed = append(removed, o)
		case !isNotFound(err):
			errs = append(errs, fmt.Errorf("remove %s: %w", o, err))
		}
	}
	return removed, errors.Join(errs...)
}

// A removal contains the rules that the kernel would remove for a policy rule: it removes the first
// rule that has the selectors of the request, even if the rule has further ones (rule_find in
// net/core/fib_rules.c).
type removal struct {
	plainCount int    // the number of rules without further selectors that precede blocking
	blocking   string // the first rule with further selectors, or ""
}

// listRemovals returns the removals for the policy rules of objects. It lists the rules once for
// all objects, because a process of the pod can add thousands of rules that [Prune] removes. It
// keeps only one removal for each object, so that it needs no limit of listed rules: [Ensure] must
// be able to remove its rules after it has exceeded the limit of a reader. It uses a new socket,
// because answers to an earlier request may then remain in the receive buffer.
func listRemovals(ns *netns.NS, objects []object) (map[policyRule]removal, error) {
	isPolicyRule := func(o object) bool { _, ok := o.(policyRule); return ok }
	if !slices.ContainsFunc(objects, isPolicyRule) {
		return nil, nil
	}
	r, err := newReader(ns)
	if err != nil {
		return nil, err
	}
	defer r.close()
	isSelected := setOf(objects)
	return listAll("policy rules", func() (map[policyRule]removal, error) {
		removals := map[policyRule]removal{}
		err := r.exchange(queryRequest(), func(m nlmsg.Message) error {
			if m.Type != unix.RTM_NEWRULE {
				return nil
			}
			rule, err := decodeRule(m.Body)
			p := policyRule(rule.policy)
			switch found := removals[p]; {
			case err != nil:
				return err
			case !isSelected[p] || found.blocking != "":
			case rule.isPlain:
				removals[p] = removal{plainCount: found.plainCount + 1}
			default:
				removals[p] = removal{found.plainCount, rule.String()}
			}
			return nil
		})
		return removals, err
	})
}

// find returns the objects to remove, routes before rules.
func (p pruning) find(reader *reader) ([]object, error) {
	var objects []object
	var candidates []localRoute
	used := map[localRoute]bool{}
	for _, r := range reader.policyRules {
		if p.selects(r) && !slices.Contains(p.keep.Policies, r.policy) {
			objects = append(objects, policyRule(r.policy))
			candidates = append(candidates, r.route())
		} else {
			used[r.route()] = true
		}
	}
	if p.table != 0 {
		candidates = append(candidates,
			localRoute{rules.IPv4, p.table}, localRoute{rules.IPv6, p.table})
	}
	for _, k := range p.keep.Policies {
		used[localRoute{k.Family, k.Table}] = true
	}
	routes, err := reader.findUnused(candidates, used)
	if err != nil {
		return nil, err
	}
	objects = append(routes, objects...)
	if reader.hasPassthrough &&
		!slices.Contains(p.keep.LoopbackAddrs, rules.PassthroughIPv6()) {
		objects = append(objects, loopbackAddr(rules.PassthroughIPv6()))
	}
	return objects, nil
}

// findUnused returns the distinct candidates that exist and are not in used.
func (r *reader) findUnused(candidates []localRoute, used map[localRoute]bool) ([]object, error) {
	var routes []object
	for _, c := range candidates {
		if used[c] {
			continue
		}
		used[c] = true
		t, err := r.table(c)
		if err != nil {
			return nil, err
		}
		if t.hasRoute {
			routes = append(routes, c)
		}
	}
	return routes, nil
}

package route

import (
	"errors"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Prune removes what is ours and not in keep, and returns how many rules, routes
// and addresses that were. The local default route of a table stays while any
// other policy rule of its family looks that table up. ::6 goes unless keep has
// it, also when Istio added it: while Istio's rules remain, keep it.
//
// When something cannot be removed, the rest is removed nevertheless.
func Prune(ns *netns.NS, keep rules.Routing) (removed int, err error) {
	objects, err := prune(ns, ours(keep))
	return len(objects), err
}

// Find returns what Prune would remove, in words, and removes nothing.
func Find(ns *netns.NS, keep rules.Routing) ([]string, error) {
	h, err := open(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	found, err := ours(keep).find(h)
	return words(found), err
}

// ours is the removal of all that is ours but for what is kept.
func ours(keep rules.Routing) pruning { return pruning{keep: keep, rule: foundRule.ours} }

// PruneIstio removes what istio-iptables leaves in a namespace, given its mark
// (--istio-inbound-tproxy-mark) and table (--istio-inbound-tproxy-route-table):
// the policy rules "fwmark mark lookup table" of all priorities, of which each of
// its runs adds one more, the table's local default route unless other rules
// look the table up, and ::6. What keep has stays, since ours may be the same.
// It returns what it removed, in words.
//
// When something cannot be removed, the rest is removed nevertheless.
func PruneIstio(ns *netns.NS, mark, table uint32, keep rules.Routing) (removed []string, err error) {
	objects, err := prune(ns, istios(mark, table, keep))
	return words(objects), err
}

// FindIstio returns what PruneIstio would remove after Prune, in words, and
// removes nothing. So what is ours and not in keep is not among it, although
// PruneIstio would take some of that too.
func FindIstio(ns *netns.NS, mark, table uint32, keep rules.Routing) ([]string, error) {
	h, err := open(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	mine, err := ours(keep).find(h)
	if err != nil {
		return nil, err
	}
	// A route that rules of both kinds look up stays until all of them go.
	both := istios(mark, table, keep)
	istio := both.rule
	both.rule = func(r foundRule) bool { return r.ours() || istio(r) }
	found, err := both.find(h)
	return words(slices.DeleteFunc(found, func(o object) bool { return slices.Contains(mine, o) })), err
}

// istios is the removal of what istio-iptables leaves, but for what is kept.
func istios(mark, table uint32, keep rules.Routing) pruning {
	return pruning{
		keep:  keep,
		rule:  func(r foundRule) bool { return r.plain && r.policy.Mark == mark && r.policy.Table == table },
		table: table,
	}
}

// words names the objects.
func words(objects []object) []string {
	var names []string
	for _, o := range objects {
		names = append(names, o.String())
	}
	return names
}

// pruning says what to remove.
type pruning struct {
	keep rules.Routing
	// rule reports whether a rule is to be removed when it is not kept.
	rule func(foundRule) bool
	// table, unless 0, is one whose route goes even if no removed rule has it.
	table uint32
}

func prune(ns *netns.NS, p pruning) (removed []object, err error) {
	h, err := open(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	doomed, err := p.find(h)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, o := range doomed {
		done, err := remove(h, o)
		errs = append(errs, err)
		if done {
			removed = append(removed, o)
		}
	}
	return removed, errors.Join(errs...)
}

// find lists what to remove, routes before rules.
func (p pruning) find(h *netlink.Handle) ([]object, error) {
	list, err := readRules(h)
	if err != nil {
		return nil, err
	}
	var doomed []object
	// The tables whose routes may be removed, and the tables whose routes must stay.
	var left, used []localRoute
	for _, r := range list {
		if p.rule(r) && !slices.Contains(p.keep.Policies, r.policy) {
			doomed = append(doomed, policyRule(r.policy))
			left = append(left, r.route())
		} else {
			used = append(used, r.route())
		}
	}
	if p.table != 0 {
		left = append(left, localRoute{rules.IPv4, p.table}, localRoute{rules.IPv6, p.table})
	}
	for _, k := range p.keep.Policies {
		used = append(used, localRoute{k.Family, k.Table})
	}
	routes, err := unused(h, left, used)
	if err != nil {
		return nil, err
	}
	doomed = append(routes, doomed...)
	address := loopbackAddr(rules.PassthroughIPv6())
	if slices.Contains(p.keep.LoopbackAddrs, rules.PassthroughIPv6()) {
		return doomed, nil
	}
	exists, err := address.exists(h)
	if exists {
		doomed = append(doomed, address)
	}
	return doomed, err
}

// unused returns, once each, the routes of left that exist and are not in used.
func unused(h *netlink.Handle, left, used []localRoute) ([]object, error) {
	var routes []object
	for _, r := range left {
		if slices.Contains(used, r) {
			continue
		}
		used = append(used, r)
		exists, err := r.exists(h)
		if err != nil {
			return nil, err
		}
		if exists {
			routes = append(routes, r)
		}
	}
	return routes, nil
}

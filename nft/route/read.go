package route

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Read returns the routing of this package in the namespace, IPv4 before IPv6. Policies contains
// every policy route whose rule and route both exist, with any mark and table, so that
// [rules.Compare] reports an incomplete policy route as missing and an unwanted one as extra.
// Unrouted contains the rules without their route. LoopbackAddrs contains [rules.PassthroughIPv6]
// if lo has this address.
//
// Others contains foreign objects that may affect redirected packets: rules with
// [rules.PolicyPriority], and routes in the tables that rules of this package look up.
//
// A kernel without IPv6 is not an error. A namespace with more than 10,000 policy rules, or more
// than 10,000 routes in the tables that rules of this package look up, is an error.
func Read(ns *netns.NS) (found rules.Routing, err error) {
	err = withReader(ns, func(r *reader) (err error) {
		if found, err = r.routing(foundRule.isOwned); err != nil {
			return err
		}
		return r.addUnroutedAndForeign(&found)
	})
	return found, err
}

// ReadAll returns the policy routes of any priority, including Istio's, and ::6. Of several policy
// routes that differ only in their priority, it returns the first, because the others have no
// effect.
func ReadAll(ns *netns.NS) (found rules.Routing, err error) {
	err = withReader(ns, func(r *reader) (err error) {
		seen := map[rules.PolicyRoute]bool{}
		found, err = r.routing(func(r foundRule) bool {
			key := r.policy
			key.Priority = 0
			isFirst := r.isPlain && !seen[key]
			seen[key] = seen[key] || r.isPlain
			return isFirst
		})
		return err
	})
	return found, err
}

// Unmodeled returns descriptions of the policy rules that the routing from [ReadAll] does not
// represent, and that may therefore route packets differently. It omits the rules that every new
// namespace has (fib_default_rules_init in net/ipv4/fib_rules.c, fib6_rules_net_init in
// net/ipv6/fib6_rules.c).
func Unmodeled(ns *netns.NS) (others []string, err error) {
	err = withReader(ns, func(reader *reader) error {
		found, err := reader.routing(func(r foundRule) bool { return r.isPlain })
		if err != nil {
			return err
		}
		policies := setOf(found.Policies)
		for _, r := range reader.policyRules {
			if !policies[r.policy] && !r.isDefault() {
				others = append(others, r.String())
			}
		}
		return nil
	})
	return others, err
}

// setOf returns a set of the values.
func setOf[T comparable](values []T) map[T]bool {
	set := make(map[T]bool, len(values))
	for _, v := range values {
		set[v] = true
	}
	return set
}

// withReader calls f with a reader of the namespace.
func withReader(ns *netns.NS, f func(*reader) error) error {
	r, err := openReader(ns)
	if err != nil {
		return err
	}
	defer r.close()
	return f(r)
}

// routing returns the policy routes of the selected rules, and ::6, if they exist.
func (r *reader) routing(isSelected func(foundRule) bool) (rules.Routing, error) {
	var found rules.Routing
	for _, rule := range r.policyRules {
		if !isSelected(rule) {
			continue
		}
		t, err := r.table(rule.route())
		if err != nil {
			return rules.Routing{}, err
		}
		if t.hasRoute {
			found.Policies = append(found.Policies, rule.policy)
		}
	}
	if r.hasPassthrough {
		found.LoopbackAddrs = []netip.Addr{rules.PassthroughIPv6()}
	}
	return found, nil
}

// addUnroutedAndForeign sets Unrouted and Others of found. Unrouted are the rules of this package
// without their route. Others are the foreign rules with [rules.PolicyPriority] and the foreign
// routes in the tables of this package's rules.
func (r *reader) addUnroutedAndForeign(found *rules.Routing) error {
	reported := setOf(found.Policies)
	listed := map[localRoute]bool{} // routes whose table was already listed
	for _, rule := range r.policyRules {
		switch {
		case rule.policy.Priority != rules.PolicyPriority:
			continue
		case !rule.isOwned():
			found.Others = append(found.Others, rule.String())
			continue
		case !reported[rule.policy]:
			reported[rule.policy] = true
			found.Unrouted = append(found.Unrouted, rule.policy)
		}
		if listed[rule.route()] {
			continue
		}
		listed[rule.route()] = true
		t, err := r.table(rule.route())
		if err != nil {
			return err
		}
		for _, other := range t.others {
			found.Others = append(found.Others, other.String())
		}
	}
	return nil
}

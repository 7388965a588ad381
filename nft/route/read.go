package route

import (
	"net/netip"
	"reflect"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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
// than 10,000 routes in a table that rules of this package look up, is an error.
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
				others = append(others, FormatRule(r.kernel))
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
	defer r.Close()
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

// foundRule is a policy rule of the namespace.
type foundRule struct {
	// policy holds the fields that the rule shares with a policy route.
	policy rules.PolicyRoute
	// isPlain reports whether policy describes the rule completely: the rule has no other selector,
	// and its action is the lookup of a table.
	isPlain bool
	kernel  netlink.Rule
}

// isOwned reports whether this package owns the rule.
func (r foundRule) isOwned() bool { return r.isPlain && r.policy.Priority == rules.PolicyPriority }

// isDefault reports whether a new namespace has the rule.
func (r foundRule) isDefault() bool {
	for priority, table := range map[int]int{
		0: unix.RT_TABLE_LOCAL, 32766: unix.RT_TABLE_MAIN, 32767: unix.RT_TABLE_DEFAULT,
	} {
		if r.kernel.Priority == priority && r.looksUp(table) {
			return true
		}
	}
	return false
}

// looksUp reports whether the rule looks up the table for all packets.
func (r foundRule) looksUp(table int) bool {
	plain := netlink.NewRule()
	plain.Family, plain.Priority, plain.Table = r.kernel.Family, r.kernel.Priority, table
	plain.Protocol = r.kernel.Protocol
	return reflect.DeepEqual(r.kernel, *plain)
}

// route returns the local route in the table of the rule, which need not exist.
func (r foundRule) route() localRoute { return localRoute{r.policy.Family, r.policy.Table} }

// readRules lists the policy rules, IPv4 before IPv6.
func readRules(h *netlink.Handle) ([]foundRule, error) {
	// FAMILY_ALL also works on kernels without IPv6.
	found, err := listAll("policy rules", func() ([]netlink.Rule, error) {
		return h.RuleList(netlink.FAMILY_ALL)
	})
	var v4, v6 []foundRule
	for _, r := range found {
		switch r.Family {
		case unix.AF_INET:
			v4 = append(v4, newFoundRule(rules.IPv4, r))
		case unix.AF_INET6:
			v6 = append(v6, newFoundRule(rules.IPv6, r))
		}
	}
	return append(v4, v6...), err
}

// newFoundRule returns the rule with its policy route, and determines whether the rule is plain.
func newFoundRule(f rules.Family, r netlink.Rule) foundRule {
	p := rules.PolicyRoute{Family: f, Mark: r.Mark, Table: uint32(r.Table), Priority: r.Priority}
	// A policy route has a table and a mark.
	if r.Table == unix.RT_TABLE_UNSPEC || r.Mark == 0 {
		return foundRule{policy: p, kernel: r}
	}
	if r.Mask != nil && *r.Mask != ^uint32(0) {
		p.Mask = *r.Mask
	}
	plain := policyRule(p).kernel()
	plain.Protocol = r.Protocol // the origin of the rule does not matter
	return foundRule{policy: p, isPlain: reflect.DeepEqual(r, *plain), kernel: r}
}

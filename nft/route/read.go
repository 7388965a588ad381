package route

import (
	"net/netip"
	"reflect"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Read returns what the namespace has of our routing, IPv4 before IPv6. A
// policy route counts when both its rule and its route are there, whatever its
// mark and table are, so that [rules.Compare] reports one that is half there as
// missing, and one that is not wanted as extra. Of lo's addresses it returns
// [rules.PassthroughIPv6] only.
//
// Beside that it returns what somebody else has put into our places, where it may
// decide about our packets: rules of our priority, and routes in the tables that
// our rules look up.
//
// A kernel without IPv6 is one without IPv6 routing, not an error.
func Read(ns *netns.NS) (rules.Routing, error) {
	h, err := open(ns)
	if err != nil {
		return rules.Routing{}, err
	}
	defer h.Close()
	list, err := readRules(h)
	if err != nil {
		return rules.Routing{}, err
	}
	found, err := routing(h, list, foundRule.ours)
	if err != nil {
		return rules.Routing{}, err
	}
	return found, others(h, list, &found)
}

// ReadAll is Read for the policy routes of everybody, as Istio makes them too:
// at any priority. Of several with the same mark and table, which do what one
// does, it returns the first.
func ReadAll(ns *netns.NS) (rules.Routing, error) {
	h, err := open(ns)
	if err != nil {
		return rules.Routing{}, err
	}
	defer h.Close()
	list, err := readRules(h)
	if err != nil {
		return rules.Routing{}, err
	}
	seen := map[rules.PolicyRoute]bool{}
	return routing(h, list, func(r foundRule) bool {
		same := r.policy
		same.Priority = 0
		first := r.plain && !seen[same]
		seen[same] = seen[same] || r.plain
		return first
	})
}

// routing returns the policy routes with such a rule, and ::6.
func routing(h *netlink.Handle, list []foundRule, counts func(foundRule) bool) (rules.Routing, error) {
	var found rules.Routing
	for _, r := range list {
		if !counts(r) {
			continue
		}
		exists, err := r.route().exists(h)
		if err != nil {
			return rules.Routing{}, err
		}
		if exists {
			found.Policies = append(found.Policies, r.policy)
		}
	}
	exists, err := loopbackAddr(rules.PassthroughIPv6()).exists(h)
	if err != nil {
		return rules.Routing{}, err
	}
	if exists {
		found.LoopbackAddrs = []netip.Addr{rules.PassthroughIPv6()}
	}
	return found, nil
}

// foundRule is a policy rule of IPv4 or IPv6 that was found.
type foundRule struct {
	// policy is what a policy route has of it.
	policy rules.PolicyRoute
	// plain says that there is nothing more to it: no other selector, all bits
	// of the mark, and a lookup for its action.
	plain  bool
	kernel netlink.Rule
}

// ours reports whether the rule is one that only this package adds.
func (r foundRule) ours() bool { return r.plain && r.policy.Priority == rules.PolicyPriority }

func (r foundRule) route() localRoute { return localRoute{r.policy.Family, r.policy.Table} }

// readRules lists the policy rules, those of IPv4 first.
func readRules(h *netlink.Handle) ([]foundRule, error) {
	// All families at once: that needs no IPv6 in the kernel.
	list, err := dump("policy rules", func() ([]netlink.Rule, error) { return h.RuleList(netlink.FAMILY_ALL) })
	var v4, v6 []foundRule
	for _, r := range list {
		switch r.Family {
		case unix.AF_INET:
			v4 = append(v4, newFoundRule(rules.IPv4, r))
		case unix.AF_INET6:
			v6 = append(v6, newFoundRule(rules.IPv6, r))
		}
	}
	return append(v4, v6...), err
}

func newFoundRule(f rules.Family, r netlink.Rule) foundRule {
	p := rules.PolicyRoute{Family: f, Mark: r.Mark, Table: uint32(r.Table), Priority: r.Priority}
	// Rules with another action have no table, and most rules have no mark.
	if r.Table == unix.RT_TABLE_UNSPEC || r.Mark == 0 {
		return foundRule{policy: p, kernel: r}
	}
	plain := policyRule(p).kernel()
	plain.Protocol = r.Protocol // who added it
	return foundRule{policy: p, plain: reflect.DeepEqual(r, *plain), kernel: r}
}

package route

import (
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/rules"
)

// addUnroutedAndForeign sets Unrouted and Others of found. Unrouted are the rules of this package
// without their route. Others are the foreign rules with [rules.PolicyPriority] and the foreign
// routes in the tables of this package's rules.
func addUnroutedAndForeign(h *netlink.Handle, policyRules []foundRule, found *rules.Routing) error {
	var listed []localRoute // routes whose table was already listed
	for _, r := range policyRules {
		switch {
		case r.policy.Priority != rules.PolicyPriority:
			continue
		case !r.isOwned():
			found.Others = append(found.Others, FormatRule(r.kernel))
			continue
		case !slices.Contains(found.Policies, r.policy) &&
			!slices.Contains(found.Unrouted, r.policy):
			found.Unrouted = append(found.Unrouted, r.policy)
		}
		if slices.Contains(listed, r.route()) {
			continue
		}
		listed = append(listed, r.route())
		routes, err := r.route().list(h)
		if err != nil {
			return err
		}
		for _, other := range routes {
			if !r.route().equals(other) {
				found.Others = append(found.Others, FormatRoute(other, deviceName))
			}
		}
	}
	return nil
}

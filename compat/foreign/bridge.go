package foreign

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/bridge"
	"github.com/sluice-mesh/sluice/rules"
)

// unknownBridges returns a sentence if packets that arrive at ports of bridges traverse the hooks
// of IP inside the bridge, and are assigned to a transparent listener there. The listener does not
// receive these packets if the bridge passes them to its own interface. Otherwise unknownBridges
// returns "". [diff.Bypass] does not evaluate bridges.
func unknownBridges(live *compat.Live, desired *rules.Ruleset) string {
	if !usesTProxy(desired) {
		return ""
	}
	var ports []string
	for _, p := range live.BridgePorts {
		// TPROXY has a policy route for each captured family.
		if slices.ContainsFunc(desired.Routing.Policies, func(r rules.PolicyRoute) bool {
			return p.Filters(r.Family)
		}) {
			ports = append(ports, p.String())
		}
	}
	if len(ports) == 0 {
		return ""
	}
	return fmt.Sprintf("packets of other hosts may reach the application without the proxy: inside "+
		"a bridge they are assigned to a transparent listener, and the kernel removes the assignment if the "+
		"bridge passes them to its own interface (%s or %s is set, or the equivalent option of the bridge): %s",
		bridge.SysctlIPv4, bridge.SysctlIPv6, listed(ports))
}

// usesTProxy reports whether the ruleset assigns packets to transparent listeners.
func usesTProxy(rs *rules.Ruleset) bool {
	return hasAction(rs, func(a rules.Action) bool {
		switch a.(type) {
		case rules.TProxy, rules.TProxyDrop:
			return true
		}
		return false
	})
}

// hasAction reports whether a rule has an action for which the condition is true.
func hasAction(rs *rules.Ruleset, condition func(rules.Action) bool) bool {
	for _, r := range rs.AllRules() {
		if slices.ContainsFunc(r.Actions, condition) {
			return true
		}
	}
	return false
}

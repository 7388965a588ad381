package foreign

import (
	"fmt"
	"iter"
	"slices"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/bridge"
	"github.com/sluice-mesh/sluice/rules"
)

// unknownBridges returns a sentence if packets that arrive at ports of bridges traverse the hooks
// of IP inside the bridge, and are assigned to a transparent listener there. The listener does not
// receive these packets if the bridge delivers them to the interface of the bridge itself.
// Otherwise unknownBridges returns "". [diff.Bypass] does not evaluate bridges.
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

// unknownSynCookies returns a sentence if the namespace answers each SYN with a cookie, and packets
// are assigned to a transparent listener. With a cookie the listener has no socket for the
// connection until the client's answer, which the rules do not assign to the listener, because
// conntrack calls the connection established. The kernel looks for a listener of the destination:
// it passes the connection to the application, if the application has received connections of its
// own, or else resets it. Otherwise unknownSynCookies returns "". [diff.Bypass] does not evaluate
// sockets.
func unknownSynCookies(live *compat.Live, desired *rules.Ruleset) string {
	if !usesTProxy(desired) || !live.AlwaysSendsCookies {
		return ""
	}
	return fmt.Sprintf("inbound connections may reach the application without the proxy: %s is 2, so that "+
		"each connection begins with a SYN cookie, and the kernel passes the client's answer to a listener "+
		"of its destination instead of to the transparent listener", compat.SynCookiesSysctl)
}

// usesTProxy reports whether the ruleset assigns packets to transparent listeners.
func usesTProxy(rs *rules.Ruleset) bool {
	return rs.HasAction(func(a rules.Action) bool {
		switch a.(type) {
		case rules.TProxy, rules.TProxyDrop:
			return true
		}
		return false
	})
}

// unknownAtInput returns a sentence for each rule at the hook input that may change packets in a
// way that the model does not represent, such as a rule that writes a port or queues packets to a
// program. It returns at most maxClasses sentences. [diff.Bypass] does not evaluate input: it
// assumes that no rule changes the destination of a packet there. Rules that drop, accept or mark
// packets do not change the destination.
func unknownAtInput(live *compat.Live) []string {
	var reasons []string
	for i := range live.Ruleset.Tables {
		t := &live.Ruleset.Tables[i]
		for _, step := range unknownStepsAtInput(t) {
			if len(reasons) < maxClasses {
				reasons = append(reasons,
					fmt.Sprintf("the effect of this rule at input on packets is unknown: %s: %s",
						OwnerOf(&live.Ruleset, &step), step))
			}
		}
	}
	return reasons
}

// unknownStepsAtInput returns the rules of a table that have an action with the effect AnyEffect
// and that packets at input may reach.
func unknownStepsAtInput(t *rules.Table) []rules.Step {
	var from []*rules.Chain
	for i := range t.Chains {
		if c := &t.Chains[i]; c.Base != nil && c.Base.Hook == rules.Input {
			from = append(from, c)
		}
	}
	var steps []rules.Step
	for _, c := range t.ReachableFrom(from...) {
		steps = slices.AppendSeq(steps, stepsWith(t, c, hasAnyEffect))
	}
	return steps
}

// stepsWith returns the rules of a chain that have an action for which the condition is true.
func stepsWith(
	t *rules.Table, c *rules.Chain, condition func(rules.Action) bool,
) iter.Seq[rules.Step] {
	return func(yield func(rules.Step) bool) {
		for i := range c.Rules {
			if slices.ContainsFunc(c.Rules[i].Actions, condition) &&
				!yield(rules.Step{ChainRef: rules.ChainRef{Table: t, Chain: c}, Index: i}) {
				return
			}
		}
	}
}

// hasAnyEffect reports whether the effect of the action is unknown.
func hasAnyEffect(a rules.Action) bool {
	u, ok := a.(rules.Unknown)
	return ok && u.Effect == rules.AnyEffect
}

// unknownExpectations returns a sentence for each foreign rule that may make conntrack expect TCP
// connections: a rule that assigns a conntrack helper or, in TPROXY mode, a rule that refers to an
// object of unknown effect, such as an expectation. It returns at most maxClasses sentences. NAT
// translates an expected connection like its master connection, and the rules of TPROXY mode do not
// assign it to the proxy. [diff.Bypass] does not evaluate expected connections, because the desired
// ruleset has none.
func unknownExpectations(live *compat.Live, desired *rules.Ruleset) []string {
	isTProxy := usesTProxy(desired)
	expects := func(a rules.Action) bool { return mayExpect(a, isTProxy) }
	var reasons []string
	for t, c := range live.Ruleset.AllChains() {
		for step := range stepsWith(t, c, expects) {
			owner := OwnerOf(&live.Ruleset, &step)
			if owner != OwnerSluice && len(reasons) < maxClasses {
				reasons = append(reasons, fmt.Sprintf("connections that conntrack expects because "+
					"of this rule may not be redirected: %s: %s", owner, step))
			}
		}
	}
	return reasons
}

// mayExpect reports whether the action may make conntrack expect TCP connections that the desired
// ruleset does not redirect. The listed helpers expect only UDP packets
// (nf_conntrack_netbios_ns.c, nf_conntrack_snmp.c and nf_conntrack_tftp.c in net/netfilter).
func mayExpect(a rules.Action, isTProxy bool) bool {
	switch a := a.(type) {
	case rules.SetZone:
		return a.Helper != "" && !slices.Contains([]string{"netbios-ns", "snmp", "tftp"}, a.Helper)
	case rules.Unknown:
		return isTProxy && a.Effect == rules.AnyEffect && a.Text == "objref"
	}
	return false
}

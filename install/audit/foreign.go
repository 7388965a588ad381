package audit

import (
	"strings"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// foreignEffect is the effect of foreign rules on captured traffic of a pod.
type foreignEffect struct {
	snapshot foreign.Snapshot
	// The snapshot is valid only for this network namespace, redirection and generation of
	// nftables. The generation is 0 if it is unknown.
	netns       netns.ID
	redirection redirection
	generation  uint32
	// exhausted is set if the last decision exceeded its budget, or could not read the rules.
	exhausted bool
}

// retryFactor multiplies the time budget of a decision if the last decision exceeded its budget.
// [visitPause] limits the cost of pods whose rules cause this repeatedly.
const retryFactor = 10

// inspectForeign determines the effect of foreign rules on captured traffic of a pod whose Sluice
// rules are as desired. The agent does not change foreign rules.
func (v *reconciliation) inspectForeign(ns Namespace) {
	v.inspect(ns, v.rulesets.mustRuleset(v.desired.redirection),
		"Sluice's rules in the pod are correct", "foreign rules")
}

// inspectIstio determines whether Istio's rules in a pod without Sluice's rules capture the traffic
// that Sluice's rules would capture. Deviations from Istio are disabled for this comparison.
func (v *reconciliation) inspectIstio(ns Namespace) {
	strict := *v.desired.redirect
	strict.StrictIstio()
	v.inspect(ns, v.rulesets.mustRuleset(redirection{redirect: &strict}),
		"the pod has Istio's rules, which the agent does not change", "its rules")
}

// inspect determines whether traffic that a ruleset captures bypasses the proxy because of the
// rules in the network namespace, and sets the state of the pod. The decision is repeated when
// rules have changed. situation and culprit are the beginning and the subject of messages.
func (v *reconciliation) inspect(ns Namespace, rs rules.Ruleset, situation, culprit string) {
	v.state = Redirected
	generation := v.lastEqual.found.Snapshot.Generation
	var last *foreign.Snapshot
	sameInputs := v.foreignEffect.netns == v.sandbox.ID &&
		v.foreignEffect.redirection == v.desired.redirection &&
		v.foreignEffect.generation == generation
	if sameInputs && !v.pending.rules && (v.subscribed || generation != 0) {
		last = &v.foreignEffect.snapshot
	}
	exhausted, budget := v.foreignEffect.exhausted, diff.AgentBudget
	if exhausted {
		budget.Time *= retryFactor
	}
	v.foreignEffect = foreignEffect{
		snapshot: ns.Foreign(rs, last, budget),
		netns:    v.sandbox.ID, redirection: v.desired.redirection, generation: generation,
	}
	found := &v.foreignEffect.snapshot
	switch v.effect = found.Verdict(); v.effect {
	case foreign.None:
		v.inspectAddresses(ns, situation)
	case foreign.Bypassed:
		v.state = Drifted
		v.recordEvent(bypassed, situation+", but "+culprit+" let traffic bypass the proxy: "+
			strings.Join(found.Messages(), "; "))
	case foreign.Unknown:
		v.state = Unknown
		// The node may have been busy, or the rules may have changed while they were read: report
		// Exhausted only if it happens again.
		v.foreignEffect.exhausted = found.Exhausted
		if found.Exhausted && !exhausted {
			v.revisitAt = earliest(v.revisitAt, v.now.Add(initialBackoff))
			return
		}
		v.recordEvent(effectUnknown, situation+", but whether "+culprit+
			" let traffic bypass the proxy cannot be decided: "+strings.Join(found.Messages(), "; "))
	}
}

// inspectAddresses determines whether the network namespace still has addresses. If the pod has
// moved its interface to another namespace, its traffic does not meet the rules. The first time
// nothing is reported, because the sandbox may be removed at the moment.
func (v *reconciliation) inspectAddresses(ns Namespace, situation string) {
	addresses, err := ns.Addresses()
	if err != nil {
		v.onUnreadable(err)
		return
	}
	if len(decide.GlobalAddresses(addresses)) > 0 {
		v.withoutAddress = false
		return
	}
	v.state, v.revisitAt = Unknown, earliest(v.revisitAt, v.now.Add(errorBackoff))
	if v.withoutAddress {
		v.recordEvent(effectUnknown, situation+", but its network namespace has no address: "+
			"if its interface was moved to another namespace, its traffic bypasses the proxy")
	}
	v.withoutAddress = true
}

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
// [auditPause] limits the cost of pods whose rules cause this repeatedly.
const retryFactor = 10

// inspectForeign determines the effect of foreign rules on captured traffic of a pod whose Sluice
// rules are as desired. The agent does not change foreign rules.
func (r *auditRun) inspectForeign(ns Namespace) {
	r.inspect(ns, r.rulesets.mustRuleset(r.desired.redirection),
		"Sluice's rules in the pod are correct", "foreign rules")
}

// inspectIstio determines whether Istio's rules in a pod without Sluice's rules capture the traffic
// that Sluice's rules would capture. Deviations from Istio are disabled for this comparison.
func (r *auditRun) inspectIstio(ns Namespace) {
	strict := *r.desired.redirect
	strict.StrictIstio()
	r.inspect(ns, r.rulesets.mustRuleset(redirection{redirect: &strict}),
		"the pod has Istio's rules, which the agent does not change", "its rules")
}

// inspect determines whether traffic that a ruleset captures bypasses the proxy because of the
// rules in the network namespace, and sets the state of the pod. The decision is repeated when
// rules have changed. situation and culprit are the beginning and the subject of messages.
func (r *auditRun) inspect(ns Namespace, rs rules.Ruleset, situation, culprit string) {
	r.state = Redirected
	generation := r.lastEqual.found.Snapshot.Generation
	var last *foreign.Snapshot
	sameInputs := r.foreignEffect.netns == r.sandbox.ID &&
		r.foreignEffect.redirection == r.desired.redirection &&
		r.foreignEffect.generation == generation
	// Without a subscription to events, only a known generation shows that nftables rules are
	// unchanged.
	if sameInputs && !r.pending.rules && (r.subscribed || generation != 0) {
		last = &r.foreignEffect.snapshot
	}
	exhausted, budget := r.foreignEffect.exhausted, diff.AgentBudget
	if exhausted {
		budget.Time *= retryFactor
	}
	r.foreignEffect = foreignEffect{
		snapshot: ns.Foreign(rs, last, budget),
		netns:    r.sandbox.ID, redirection: r.desired.redirection, generation: generation,
	}
	found := &r.foreignEffect.snapshot
	switch r.effect = found.Verdict(); r.effect {
	case foreign.None:
		r.inspectAddresses(ns, situation)
	case foreign.Bypassed:
		r.state = Drifted
		r.recordEvent(bypassed, situation+", but "+culprit+" let traffic bypass the proxy: "+
			strings.Join(found.Messages(), "; "))
	case foreign.Unknown:
		r.state = Unknown
		// The node may have been busy, or the rules may have changed while they were read: report
		// an exhausted budget only if it is exhausted again.
		r.foreignEffect.exhausted = found.Exhausted
		if found.Exhausted && !exhausted {
			r.nextAuditAt = earliest(r.nextAuditAt, r.now.Add(initialBackoff))
			return
		}
		r.recordEvent(effectUnknown, situation+", but whether "+culprit+
			" let traffic bypass the proxy cannot be decided: "+strings.Join(found.Messages(), "; "))
	}
}

// inspectAddresses determines whether the network namespace still has addresses. If the pod has
// moved its interface to another namespace, its traffic does not meet the rules. A missing address
// is reported only by the second audit that finds none, because the runtime may be removing the
// sandbox.
func (r *auditRun) inspectAddresses(ns Namespace, situation string) {
	addresses, err := ns.Addresses()
	if err != nil {
		r.onUnreadable(err)
		return
	}
	if len(decide.GlobalAddresses(addresses)) > 0 {
		r.withoutAddress = false
		return
	}
	r.state, r.nextAuditAt = Unknown, earliest(r.nextAuditAt, r.now.Add(errorBackoff))
	if r.withoutAddress {
		r.recordEvent(effectUnknown, situation+", but its network namespace has no address: "+
			"if its interface was moved to another namespace, its traffic bypasses the proxy")
	}
	r.withoutAddress = true
}

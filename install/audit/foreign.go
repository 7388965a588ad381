package audit

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// foreignEffect is the effect of foreign rules on captured traffic of a pod.
type foreignEffect struct {
	snapshot foreign.Snapshot
	inputs   foreignInputs // for which the snapshot is valid
	// isCurrent is set until an event reports a possible change of rules or policy routes, or until
	// events may have been lost. It is needed besides the generation, which does not cover policy
	// routes.
	isCurrent bool
	// retryable is set if the last decision exceeded its budget, or could not read the rules.
	retryable bool
}

// foreignInputs are the inputs of a decision about foreign rules.
type foreignInputs struct {
	netns       netns.ID
	redirection redirection
	// hasSluiceRules is true if the namespace contains exactly the desired Sluice rules, and false
	// if Istio's rules are inspected.
	hasSluiceRules bool
	generation     uint32 // of nftables; 0 if it is unknown
}

// inspectForeign determines the effect of foreign rules on captured traffic of a pod whose Sluice
// rules are as desired. The agent does not change foreign rules.
func (r *auditRun) inspectForeign(ctx context.Context, ns Namespace) {
	r.inspect(ctx, ns, r.rulesets.mustRuleset(r.desired.redirection), true,
		"Sluice's rules in the pod are correct", "foreign rules")
}

// inspectIstio determines whether Istio's rules in a pod without Sluice's rules capture the traffic
// that Sluice's rules would capture. Deviations from Istio are disabled for this comparison.
func (r *auditRun) inspectIstio(ctx context.Context, ns Namespace) {
	strict := *r.desired.redirect
	strict.StrictIstio()
	r.inspect(ctx, ns, r.rulesets.mustRuleset(redirection{redirect: &strict}), false,
		"the pod has Istio's rules, which the agent does not change", "these rules")
}

// inspect determines whether traffic that a ruleset captures bypasses the proxy because of the
// rules in the network namespace, and sets the state of the pod. It reuses the last decision unless
// rules may have changed since. hasSluiceRules is true if the namespace contains exactly the Sluice
// rules of the ruleset. The message of an event consists of situation and a clause about subject,
// the rules that affect the traffic.
func (r *auditRun) inspect(
	ctx context.Context, ns Namespace, rs rules.Ruleset, hasSluiceRules bool,
	situation, subject string,
) {
	r.state = Redirected
	inputs := foreignInputs{
		r.sandbox.ID, r.desired.redirection, hasSluiceRules, r.lastEqual.found.Snapshot.Generation,
	}
	var last *foreign.Snapshot
	if r.foreignEffect.inputs == inputs && r.foreignEffect.isCurrent {
		last = &r.foreignEffect.snapshot
	}
	isRetry, budget := r.foreignEffect.retryable, diff.AgentBudget
	if isRetry {
		// Retry with a larger budget. Pods that need it repeatedly are audited less often: see
		// pod.pausedUntil.
		budget = diff.AgentRetryBudget
	}
	r.foreignEffect = foreignEffect{
		snapshot: ns.Foreign(rs, hasSluiceRules, last, budget), inputs: inputs, isCurrent: r.subscribed,
	}
	found := &r.foreignEffect.snapshot
	switch r.effect = found.Verdict(); r.effect {
	case foreign.None:
		r.inspectAddresses(ctx, ns, situation)
	case foreign.Bypassed:
		r.state, r.undecidedSince = Drifted, time.Time{}
		if hasSluiceRules && r.haveRulesChanged(ns, rs) {
			// Without Sluice's rules, traffic bypasses the proxy whatever the foreign rules are.
			r.lastEqual, r.foreignEffect, r.effect = lastEqual{}, foreignEffect{}, ""
			r.nextAuditAt = r.now
			return
		}
		r.recordEvent(reasonBypassed, situation+", but "+subject+" let traffic bypass the proxy: "+
			strings.Join(found.Messages(), "; "))
	case foreign.Unknown:
		r.state = Unknown
		undecided := r.timeSince(&r.undecidedSince)
		// The node may have been busy, or the rules may have changed while they were read: report
		// this only if it happens again.
		r.foreignEffect.retryable = found.Exhausted
		if found.Exhausted && !isRetry {
			r.nextAuditAt = earliest(r.nextAuditAt, r.now.Add(initialBackoff))
			return
		}
		if found.LoopbackMissing && undecided < errorBackoff {
			r.nextAuditAt = earliest(r.nextAuditAt, r.now.Add(errorBackoff))
			return // the runtime disables the loopback interface before it removes the record
		}
		// The runtime may be removing the interfaces while the rules and routes are read.
		if r.isSandboxEnding(undecided) {
			return
		}
		r.recordEvent(reasonUnknown, situation+", but whether "+subject+
			" let traffic bypass the proxy cannot be decided: "+strings.Join(found.Messages(), "; "))
	}
}

// haveRulesChanged reports whether Sluice's rules differ from the ruleset now. They were equal when
// the audit compared them, but a decision about foreign rules reads all rules again, later.
func (r *auditRun) haveRulesChanged(ns Namespace, rs rules.Ruleset) bool {
	r.lockRules()
	defer r.unlockRules()
	found, err := ns.Check(r.desired.backend, rs, r.lastEqual.found.Snapshot)
	return err == nil && len(found.Differences) > 0
}

// inspectAddresses determines whether the rules apply to the addresses that the network namespace
// has now. If the pod has moved its interface to another namespace, its traffic does not pass
// through the rules. The absence of addresses is reported only after it has lasted errorBackoff,
// regardless of the number of audits, because the runtime may be removing the sandbox.
func (r *auditRun) inspectAddresses(ctx context.Context, ns Namespace, situation string) {
	addresses, err := ns.Addresses()
	if err != nil {
		r.onUnreadable(err)
		return
	}
	if addresses = decide.GlobalAddresses(addresses); len(addresses) > 0 {
		r.undecidedSince = time.Time{}
		r.inspectIPv6(ctx, addresses, situation)
		return
	}
	r.state, r.nextAuditAt = Unknown, earliest(r.nextAuditAt, r.now.Add(errorBackoff))
	undecided := r.timeSince(&r.undecidedSince)
	if undecided >= errorBackoff && !r.isSandboxEnding(undecided) {
		r.recordEvent(reasonUnknown, situation+", but its network namespace has no address: "+
			"if its interface was moved to another namespace, its traffic bypasses the proxy")
	}
}

// teardownTime is the maximum time that the runtime is expected to need after DEL to remove the
// sandbox. If the sandbox exists for longer, its record was lost.
const teardownTime = time.Minute

// isSandboxEnding reports whether the runtime is removing the sandbox. DEL removes the record of
// ADD before the runtime removes anything else. The records are read again, because DEL may have
// run during the audit. If a deleted pod never had a record, nothing shows that its sandbox is
// being removed: isSandboxEnding then assumes it until the pod's state has been unknown for
// teardownTime. undecided is the time for which the state has been unknown.
func (r *auditRun) isSandboxEnding(undecided time.Duration) bool {
	r.warn("the records of ADD cannot be read", r.Auditor.records.Refresh())
	switch {
	case len(r.Auditor.records.Of(cmp.Or(r.desired.sandboxPod.UID, r.uid))) > 0:
		return false
	case r.desired.origin == fromADD:
		return r.recordRemovedAt.IsZero() || r.now.Sub(r.recordRemovedAt) < teardownTime
	}
	return r.item.PodStatus.Deleted && undecided < teardownTime
}

// inspectIPv6 reports IPv6 traffic that bypasses the proxy because ADD or a repair decided, from
// earlier addresses, not to capture IPv6, and the addresses have changed since. It reports nothing
// if ADD would not capture IPv6 with the present addresses either (Istio would not).
func (r *auditRun) inspectIPv6(ctx context.Context, addresses []netip.Addr, situation string) {
	address, ok := r.desired.uncapturedIPv6(addresses)
	if !ok {
		return
	}
	if r.ipv6.resourceVersion != r.version || !slices.Equal(r.ipv6.addresses, addresses) {
		if r.orphaned {
			r.state = Unknown
			r.recordEvent(reasonUnknown, situation+", but they do not capture IPv6, and "+
				orphanIPv6Text(address))
			return
		}
		object, err := r.fetchPod(ctx, r.item)
		if err != nil {
			r.onUnreadable(err)
			return
		}
		captured := r.capturesIPv6(object, addresses)
		r.ipv6 = ipv6Decision{
			resourceVersion: r.version, addresses: addresses, captured: captured,
		}
	}
	if r.ipv6.captured {
		r.state = Drifted
		r.recordEvent(reasonBypassed, fmt.Sprintf("%s, but they do not capture IPv6: %s; %s", situation,
			r.desired.ipv6BypassText(address), r.recreationInstruction()))
	}
}

// uncapturedIPv6 returns the first IPv6 address among the global addresses of a pod. It returns
// false if there is none, if the pod's rules capture IPv6, or if the pod has no redirection.
func (d desiredState) uncapturedIPv6(addresses []netip.Addr) (address netip.Addr, ok bool) {
	i := slices.IndexFunc(addresses, netip.Addr.Is6)
	if i < 0 || d.redirect == nil || d.redirect.IPv6 {
		return netip.Addr{}, false
	}
	return addresses[i], true
}

// capturesIPv6 reports whether ADD would capture IPv6 of a pod with the given addresses.
func (a *Auditor) capturesIPv6(pod *decide.Pod, addresses []netip.Addr) bool {
	// Ignore the error: the pod's annotations have become invalid, and ADD would capture nothing.
	parameters, _, _ := decide.Parameters(pod, addresses, a.Decide)
	return parameters.IPv6
}

// ipv6BypassText describes IPv6 traffic that ADD would capture with the pod's present addresses.
func (d desiredState) ipv6BypassText(address netip.Addr) string {
	origin := "in the CNI result"
	if d.origin == fromRepair {
		origin = "that the pod had when it was repaired"
	}
	return fmt.Sprintf("the addresses %s did not require it, but the present ones do, and IPv6 traffic "+
		"of %s bypasses the proxy", origin, address)
}

// ipv6Bypass returns the text for a pod whose IPv6 traffic bypasses the proxy as inspectIPv6
// reports it. If this cannot be decided, it returns the reason instead. pod is nil if the API
// server no longer has the pod. Both texts are empty for other pods.
func (a *Auditor) ipv6Bypass(
	pod *decide.Pod, d desiredState, sb sandbox.Sandbox,
) (bypass, unknown string) {
	if d.redirect == nil || d.redirect.IPv6 {
		return "", ""
	}
	addresses, err := a.addressesIn(sb)
	if err != nil {
		return "", "the pod's addresses cannot be read: " + err.Error()
	}
	address, ok := d.uncapturedIPv6(decide.GlobalAddresses(addresses))
	switch {
	case !ok:
		return "", ""
	case pod == nil:
		return "", orphanIPv6Text(address)
	case a.capturesIPv6(pod, decide.GlobalAddresses(addresses)):
		return d.ipv6BypassText(address), ""
	}
	return "", ""
}

// addressesIn returns the addresses in the network namespace of a sandbox.
func (a *Auditor) addressesIn(sb sandbox.Sandbox) ([]netip.Addr, error) {
	ns, err := a.Open(sb)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	return ns.Addresses()
}

// orphanIPv6Text says why it is unknown whether IPv6 traffic of an orphaned pod bypasses the proxy.
func orphanIPv6Text(address netip.Addr) string {
	return fmt.Sprintf("whether the rules should capture IPv6 traffic of %s is unknown, because the "+
		"API server no longer has the pod", address)
}

// An ipv6Decision records whether ADD would capture the IPv6 traffic of a pod with these addresses.
type ipv6Decision struct {
	resourceVersion string // of the pod
	addresses       []netip.Addr
	captured        bool
}

package audit

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

// An AmbientPod is a pod that the agent has enrolled in ambient mode, or is enrolling. Its rules
// are installed, and the agent does not change them until Release is called.
type AmbientPod struct {
	// Namespace is the pod's network namespace. Release closes it.
	Namespace Namespace
	// NetNS is the identity of the network namespace.
	NetNS netns.ID
	// Parameters contains the parameters of the rules.
	Parameters rules.Ambient
	// Backend is the backend in which the rules are installed.
	Backend compat.BackendName
	// TakeRepaired returns the differences that the agent found and repaired when it enrolled a pod
	// that should have had the rules already; nil if there are none. It returns each difference
	// only once, so that only an audit that reports the differences may call it.
	TakeRepaired func() *compat.Comparison
	// Release permits the agent to change the rules again. The caller must call it.
	Release func()
}

// RulesChanged plans an audit of a pod in ambient mode, because the agent has installed or removed
// its rules. It does not block.
func (a *Auditor) RulesChanged(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queue != nil && a.pods[uid] != nil {
		a.scheduleAudit(uid, time.Now())
	}
}

// ambientPod returns the pod if the agent has installed rules of ambient mode in it, or nil.
func (a *Auditor) ambientPod(ctx context.Context, uid string) (*AmbientPod, error) {
	if a.Ambient == nil {
		return nil, nil
	}
	p, err := a.Ambient(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("the installed rules of ambient mode cannot be read: %w", err)
	}
	return p, nil
}

// auditAmbient audits a pod in ambient mode. The desired state of the pod is the rules that the
// agent has installed, not the record of its ADD, because the pod's annotations may have changed
// since ADD.
func (r *auditRun) auditAmbient(ctx context.Context, p *AmbientPod) {
	last := r.desired.redirection
	r.desired = desiredState{
		decision: decide.Decision{
			Outcome: decide.Ambient, Message: "the agent has enrolled the pod in ambient mode",
		},
		origin: fromAmbient, redirection: redirection{ambient: &p.Parameters}, backend: p.Backend,
	}
	if reflect.DeepEqual(last, r.desired.redirection) {
		r.desired.redirection = last // with the pointers that the last audit used: see redirection
	}
	// When the pod leaves ambient mode, its desired state is determined again.
	r.version, r.pod.records, r.recordRemovedAt = "", nil, time.Time{}
	r.sandbox = &sandbox.Sandbox{ID: p.NetNS}
	if r.Compare {
		r.watchNamespace(p.Namespace)
	}
	ns := meteredNamespace{p.Namespace, r}
	// A repair is reported even if comparisons are disabled, like the repair of a pod that started
	// without the plugin.
	if repaired := p.TakeRepaired(); repaired != nil {
		r.reportRepaired(ns, repaired)
	}
	if r.Compare {
		r.auditNamespace(ctx, ns)
	}
}

// reportRepaired reports differences that the agent repaired when it enrolled the pod. If the
// pod had Istio's rules and none of Sluice's, istio-cni had enrolled it, and there is nothing to
// report. It also reports nothing if it cannot read whether the pod has Istio's rules.
func (r *auditRun) reportRepaired(ns Namespace, found *compat.Comparison) {
	if !found.HasRules {
		if istioRules, err := ns.Istio(); err != nil || len(istioRules) > 0 {
			return
		}
	}
	r.count(found.Differences, !found.HasRules)
	r.Metrics.Count(metrics.Repairs(metrics.CauseDrift, metrics.ActionRepair, metrics.Success), 1)
	description := r.describe(found.Differences, !found.HasRules)
	r.Log.Info("pod repaired", zap.Stringer("pod", r.item.Ref), zap.String("reason", description),
		r.modeField())
	r.recordEvent(reasonRepaired,
		description+"; the redirection is restored"+r.endConnections(ns))
}

// modeField returns the log field with the mode of the pod.
func (r *auditRun) modeField() zap.Field {
	if r.desired.ambient != nil {
		return zap.String("mode", "ambient")
	}
	return zap.String("mode", "sidecar")
}

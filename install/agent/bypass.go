package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/bypass"
	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/plugin/agent"
)

// newBypass returns the detector for pods that the runtime starts without the plugin. Its file is
// on a tmpfs, because a reboot ends all bypasses: the sandboxes are new, and the runtime has read
// its configuration again.
func (a *Agent) newBypass() *bypass.Detector {
	d, err := bypass.New(bypass.Options{
		Optional: !a.options.Settings.Bool("CHAINED_CNI_PLUGIN"),
		File:     filepath.Join(a.config.RunDir, "bypass.json"),
		Check:    func() { a.node.Reconcile(context.Background()) },
		Changed:  a.bypassChanged,
	})
	if err != nil {
		a.options.Log.Warn("the stored state of bypasses cannot be read; the agent starts without it",
			zap.Error(err))
	}
	return d
}

// bypassChanged logs the start, the repetition or the end of a bypass, and updates the node's
// events.
func (a *Agent) bypassChanged() {
	if b, bypassed := a.bypass.Current(); bypassed {
		a.options.Log.Error(bypassReason+": "+b.String(), zap.String("pod", b.Pod))
	} else {
		a.options.Log.Info("resolved: " + bypassReason + ": the runtime called the plugin for a " +
			"pod")
	}
	a.updateEvents()
}

// noteAdd handles the plugin's report of an ADD. The report of a successful ADD shows that the
// runtime called the plugin, even if the record of the ADD could not be stored.
func (a *Agent) noteAdd(add agent.Add) {
	a.reporter.countAdd(add)
	if add.Result == agent.AddSucceeded && add.UID != "" {
		a.bypass.NoteSandboxAdd(add.UID, time.Now())
	}
}

// chainCheck returns the result of a reconciliation as a check of the chain.
func chainCheck(s node.Status, paths *strings.Replacer) bypass.ChainCheck {
	var reasons []string
	for _, p := range s.Problems {
		if p.Blocking {
			reasons = append(reasons, paths.Replace(p.String()))
		}
	}
	return bypass.ChainCheck{
		At: s.At, Done: s.Done, Complete: s.Installed(), Repaired: len(s.Changes) > 0,
		Unread: s.Unread, Reason: strings.Join(reasons, "; "),
	}
}

// runtimePart reports whether the runtime called the plugin for the pods that it started last. This
// is unknown if audits and repairs in place are disabled, or if some pods have not been audited yet
// or cannot be audited.
func (a *Agent) runtimePart() observe.Part {
	b, bypassed := a.bypass.Current()
	v := a.options.Settings
	switch {
	case bypassed:
		return observe.Part{Name: observe.Runtime, Reasons: []string{b.String()}}
	case !v.Bool("SLUICE_AUDIT") && (!v.Bool("REPAIR_ENABLED") || !v.Bool("REPAIR_REPAIR_PODS")):
		return observe.Part{Name: observe.Runtime, Ready: true, Unknown: true, Reasons: []string{
			"cannot determine whether the runtime calls the plugin for all pods, because " +
				"audit.enabled and repair.repairPods are false",
		}}
	}
	part := observe.Part{Name: observe.Runtime, Ready: true}
	switch pods, listed := a.auditor.PodsWithUnknownStart(); {
	case !listed:
		part.Unknown, part.Reasons = true, []string{
			"cannot determine whether the runtime calls the plugin: the node's pods have not been " +
				"listed yet",
		}
	case pods > 0:
		part.Unknown, part.Reasons = true, []string{fmt.Sprintf("cannot determine for some "+
			"pods whether the runtime called the plugin (number of pods: %d): they have not been "+
			"audited yet, or their network namespaces cannot be found or read; the agent's log "+
			"names them", pods)}
	}
	return part
}

// isBypassed reports whether, according to the last reconciliation, the runtime uses a
// configuration without the plugin, or another configuration directory than the agent.
func (r *reporter) isBypassed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastReported.bypassed
}

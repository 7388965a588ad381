package agent

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/node"
)

// Readiness reports whether an ADD on this node would succeed now. It uses the state that the agent
// has in memory, checks that the kubeconfig exists, and sends no request.
func (a *Agent) Readiness() observe.Readiness {
	status := a.node.Status()
	parts := []observe.Part{
		a.kernel.result(), a.binaryPart(status), a.configurationPart(status), a.permissionsPart(),
		a.runtimePart(),
		kubeconfigPart(a.config.Kubeconfig, a.publisher.Status(), time.Now()),
	}
	if a.server != nil {
		parts = append(parts, a.socketPart())
	}
	if a.ambient != nil {
		parts = append(parts, a.ambientPart())
	}
	return observe.Combine(parts...)
}

// binaryPart returns a part that is ready if, at the last reconciliation, the plugin's executable
// on the node was identical to the one in the agent's image or was installed by an agent. A change
// of the file triggers another reconciliation.
func (a *Agent) binaryPart(s node.Status) observe.Part {
	part := observe.Part{
		Name: observe.Binary, Ready: s.Executable == node.Verified || s.Executable == node.Outdated,
	}
	state := map[node.ExecutableState]string{
		node.Verified: " is identical to the one in the agent's image",
		node.Outdated: " was installed by the agent, in this or another version, but the one in " +
			"the agent's image differs or cannot be read",
		node.OtherProgram: " is another program",
		node.Absent:       " is not an executable file",
	}[s.Executable]
	path := filepath.Join(a.options.Settings.Text("SLUICE_HOST_BIN_DIR"), pluginType)
	part.Reasons = []string{path + cmp.Or(state, " has not been verified")}
	if len(s.PluginsElsewhere) > 0 {
		part.Unknown = true
		part.Reasons = append(part.Reasons, fmt.Sprintf("cannot determine whether the runtime uses plugins "+
			"from this directory, which contains none of the other plugins in %s (%s): if the runtime "+
			"reports that it cannot find %s, no pod starts; set cniBinDir to the runtime's plugin directory",
			s.Primary, strings.Join(s.PluginsElsewhere, ", "), pluginType))
	}
	if s.Directories.Binary == node.Unknown {
		part.Unknown = true
		part.Reasons = append(part.Reasons,
			"cannot determine whether the runtime uses plugins from this directory: "+
				s.Directories.Why)
	}
	return part
}

// configurationPart returns a part that is ready if the last reconciliation was recent and found no
// blocking problem, which means that the plugin was in the configuration that the runtime uses.
func (a *Agent) configurationPart(s node.Status) observe.Part {
	part := observe.Part{Name: observe.Configuration, Ready: s.Installed()}
	if s.At.IsZero() {
		part.Reasons = []string{"the node has not been checked yet"}
		return part
	}
	if age := time.Since(s.At); age > a.maxReconcileInterval() {
		part.Fail(fmt.Sprintf("the node has not been checked for %s", age.Round(time.Second)))
	}
	if s.Primary != "" {
		inUse := "the runtime uses " + s.Primary
		if len(s.Plugins) > 0 { // empty if the file cannot be read
			inUse += ", which had these plugins: " + strings.Join(s.Plugins, ", ")
		}
		part.Reasons = append(part.Reasons, inUse)
	}
	if s.Directories.Configuration == node.Unknown {
		part.Unknown = true
		part.Reasons = append(part.Reasons,
			"cannot determine whether the runtime reads this directory: "+s.Directories.Why)
	}
	for _, p := range s.Problems {
		part.Reasons = append(part.Reasons, a.reporter.hostPaths.Replace(p.String()))
	}
	return part
}

// updateMetrics sets the metrics that describe the current state.
func (a *Agent) updateMetrics() {
	now := time.Now()
	r := a.Readiness()
	a.metrics.SetBool(metrics.InstallReady(), r.Ready)
	a.metrics.SetBool(metrics.IstioInstallReady(), r.Ready)
	for _, p := range r.Parts {
		a.metrics.SetBool(metrics.InstallPartReady(p.Name), p.Ready)
	}
	_, bypassed := a.bypass.Current()
	a.metrics.SetBool(metrics.ChainBypassed(), bypassed || a.reporter.isBypassed())
	if a.auditor != nil {
		a.auditor.Measure()
	}
	if a.ambient != nil {
		a.measureAmbient()
	}
	if s := a.publisher.Status(); s.Origin != "" {
		a.metrics.Set(metrics.TokenAge(), s.Age(now).Seconds())
		if !s.Expiry.IsZero() {
			a.metrics.Set(metrics.TokenExpiry(), float64(s.Expiry.Unix()))
		}
	}
}

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/node"
)

// Readiness tells whether an ADD on this node would succeed now. It is computed from what is there; nobody is asked for it.
func (a *Agent) Readiness() observe.Readiness {
	parts := []observe.Part{
		a.kernel.get(), a.binaryPart(), a.configurationPart(a.node.Status()), a.rightsPart(),
		kubeconfigPart(a.config.Kubeconfig, a.publisher.Status(), time.Now()),
	}
	if a.server != nil {
		parts = append(parts, a.socketPart())
	}
	return observe.Judge(parts...)
}

func (a *Agent) binaryPart() observe.Part {
	part := observe.Part{Name: observe.Binary}
	path := filepath.Join(a.options.Settings.Text("SLUICE_MOUNTED_BIN_DIR"), pluginType)
	shown := filepath.Join(a.options.Settings.Text("SLUICE_HOST_BIN_DIR"), pluginType)
	switch info, err := os.Stat(path); {
	case err != nil:
		part.Reasons = []string{a.reporter.onNode.Replace(err.Error())}
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 || info.Size() == 0:
		part.Reasons = []string{fmt.Sprintf("%s is no executable file", shown)}
	default:
		part.Ready = true
		part.Reasons = []string{shown}
	}
	return part
}

func (a *Agent) configurationPart(s node.Status) observe.Part {
	part := observe.Part{Name: observe.Configuration, Ready: s.Installed()}
	if s.At.IsZero() {
		part.Reasons = []string{"the node has not been looked at yet"}
		return part
	}
	if age := time.Since(s.At); age > a.longestPass() {
		part.Ready = false
		part.Reasons = append(part.Reasons, fmt.Sprintf("the node has not been looked at for %s", age.Round(time.Second)))
	}
	if s.Primary != "" {
		takes := "the runtime takes " + s.Primary
		if len(s.Plugins) > 0 { // what cannot be read has none
			takes += ", which had these plugins: " + strings.Join(s.Plugins, ", ")
		}
		part.Reasons = append(part.Reasons, takes)
	}
	for _, p := range s.Problems {
		part.Reasons = append(part.Reasons, a.reporter.onNode.Replace(p.String()))
	}
	return part
}

// refresh sets the metrics that change with time.
func (a *Agent) refresh() {
	now := time.Now()
	r := a.Readiness()
	a.metrics.SetBool("sluice_install_ready", r.Ready)
	a.metrics.SetBool("istio_cni_install_ready", r.Ready)
	for _, p := range r.Parts {
		a.metrics.SetBool("sluice_install_part_ready", p.Ready, p.Name)
	}
	if a.auditor != nil {
		a.auditor.Measure()
	}
	if s := a.publisher.Status(); s.Origin != "" {
		a.metrics.Set("sluice_token_age_seconds", s.Age(now).Seconds())
		if !s.Expiry.IsZero() {
			a.metrics.Set("sluice_token_expiry_timestamp_seconds", float64(s.Expiry.Unix()))
		}
	}
}

package injection

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// systemNamespace is the namespace of Istio's control plane.
const systemNamespace = "istio-system"

// kubernetesVersion is the version of the fake cluster.
const kubernetesVersion = "v1.36.3"

// Tools contains the paths of the programs and files that "make e2e-istio" builds.
type Tools struct {
	// Discovery and Agent are the paths of pilot-discovery and pilot-agent.
	Discovery, Agent string
	// Helm is the path of the command helm. Charts is the directory of Istio's charts.
	Helm, Charts string
}

// FindTools returns the tools in the directory bin of the checkout. The error names a missing tool.
func FindTools(bin string) (Tools, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return Tools{}, err
	}
	dir := filepath.Join(bin, "e2e", "istio")
	t := Tools{
		Discovery: filepath.Join(dir, "pilot-discovery"), Agent: filepath.Join(dir, "pilot-agent"),
		Helm: filepath.Join(bin, "e2e", "helm"), Charts: filepath.Join(dir, "charts"),
	}
	for _, file := range []string{t.Discovery, t.Agent, t.Helm, t.Charts} {
		if _, err := os.Stat(file); err != nil {
			return Tools{}, fmt.Errorf("%w: run \"make e2e-istio\"", err)
		}
	}
	return t, nil
}

// Chart returns the directory of istiod's chart.
func (t Tools) Chart() string { return filepath.Join(t.Charts, "istio-control", "istio-discovery") }

// An Installation is the configuration of Istio's control plane, as installed with Helm. The zero
// value is the default installation.
type Installation struct {
	// Revision is the revision of the control plane; empty for the default revision.
	Revision string
	// CNI selects redirection by a CNI plugin instead of istio-init.
	CNI bool
	// Values contains further values of the chart. The values revision and pilot are ignored.
	Values map[string]any
}

// chartValues returns the values for the chart.
func (in Installation) chartValues() map[string]any {
	values := map[string]any{}
	maps.Copy(values, in.Values)
	values["revision"] = in.Revision
	values["pilot"] = map[string]any{"cni": map[string]any{"enabled": in.CNI}}
	return values
}

// suffix returns the end of the names of the control plane's objects: a dash and the revision, or
// nothing for the default revision.
func (in Installation) suffix() string {
	if in.Revision == "" {
		return ""
	}
	return "-" + in.Revision
}

// render renders the chart with Helm and returns its objects as JSON.
func (t Tools) render(in Installation) ([]json.RawMessage, error) {
	values, err := yaml.Marshal(in.chartValues())
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(t.Helm, "template", "istiod"+in.suffix(), t.Chart(), "--namespace",
		systemNamespace, "--kube-version", kubernetesVersion, "--values", "-")
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(values), &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("helm template %s: %w: %s", t.Chart(), err, &stderr)
	}
	var objects []json.RawMessage
	for _, text := range bytes.Split(out, []byte("\n---\n")) {
		object, err := yaml.YAMLToJSON(text)
		if err != nil {
			return nil, fmt.Errorf("helm template %s: %w", t.Chart(), err)
		}
		if string(object) != "null" {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// A controlPlane contains the parts of the rendered chart that istiod uses.
type controlPlane struct {
	configs   map[string]json.RawMessage // ConfigMaps by name
	discovery corev1.Container
}

// newControlPlane finds the ConfigMaps and istiod's container in the chart's objects.
func newControlPlane(objects []json.RawMessage) (controlPlane, error) {
	p := controlPlane{configs: map[string]json.RawMessage{}}
	for _, object := range objects {
		var named struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := json.Unmarshal(object, &named); err != nil {
			return p, err
		}
		switch named.Kind {
		case "ConfigMap":
			p.configs[named.Metadata.Name] = object
		case "Deployment":
			var d appsv1.Deployment
			if err := json.Unmarshal(object, &d); err != nil {
				return p, fmt.Errorf("deployment %s: %w", named.Metadata.Name, err)
			}
			p.discovery = d.Spec.Template.Spec.Containers[0]
		}
	}
	if p.discovery.Name == "" {
		return p, fmt.Errorf("no Deployment among the chart's %d objects", len(objects))
	}
	return p, nil
}

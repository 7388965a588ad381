package injection

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// SystemNamespace is where Istio is installed.
const SystemNamespace = "istio-system"

// kubernetesVersion is that of the cluster.
const kubernetesVersion = "v1.36.3"

// Tools are programs and files that "make e2e-istio" prepares.
type Tools struct {
	// Discovery is pilot-discovery, and Agent pilot-agent.
	Discovery, Agent string
	// Helm is Helm's command, and Charts the folder of Istio's charts.
	Helm, Charts string
}

// ToolsOf are those in the folder bin of the checkout. The error names what is not there.
func ToolsOf(bin string) (Tools, error) {
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
			return Tools{}, fmt.Errorf("%w: \"make e2e-istio\" makes it", err)
		}
	}
	return t, nil
}

// Chart is the folder of the chart of istiod.
func (t Tools) Chart() string { return filepath.Join(t.Charts, "istio-control", "istio-discovery") }

// An Installation is Istio's control plane as a user installs it by Helm. The zero value is the
// default one.
type Installation struct {
	// Revision is the control plane's; empty for the default one.
	Revision string
	// CNI reports that a CNI plugin redirects, and not istio-init.
	CNI bool
	// Values are more of the chart's values.
	Values map[string]any
}

// all are the chart's values.
func (in Installation) all() map[string]any {
	values := map[string]any{}
	for k, v := range in.Values {
		values[k] = v
	}
	values["revision"] = in.Revision
	values["pilot"] = map[string]any{"cni": map[string]any{"enabled": in.CNI}}
	return values
}

// suffix is that of the names of the control plane's objects.
func (in Installation) suffix() string {
	if in.Revision == "" {
		return ""
	}
	return "-" + in.Revision
}

// render lets Helm make the objects of the chart, each in JSON.
func (t Tools) render(in Installation) ([]json.RawMessage, error) {
	values, err := yaml.Marshal(in.all())
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(t.Helm, "template", "istiod"+in.suffix(), t.Chart(), "--namespace", SystemNamespace,
		"--kube-version", kubernetesVersion, "--values", "-")
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

// A plane is what the chart makes, as far as istiod looks at it.
type plane struct {
	configs   map[string]json.RawMessage // ConfigMaps by name
	discovery corev1.Container
}

// planeOf finds it among the objects.
func planeOf(objects []json.RawMessage) (plane, error) {
	p := plane{configs: map[string]json.RawMessage{}}
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
		return p, fmt.Errorf("the chart makes no deployment, of %d objects", len(objects))
	}
	return p, nil
}

// Package deploy tests what puts Sluice on a cluster: the chart, the manifests rendered from it,
// the alert rules and the dashboard, and the image. It is a module of its own because of what it
// tests with: Helm, Prometheus and a registry, all as libraries.
package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	charter "helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1/util"
)

// ChartDir is the chart's directory, as seen from this package.
const ChartDir = "../../install/chart"

// Namespace is that of all renderings.
const Namespace = "istio-system"

// Options say for whom a chart is rendered. The zero value is helm install.
type Options struct {
	// Kubernetes is the cluster's version; a current one if empty.
	Kubernetes string
	// Service is who manages the objects; Helm if empty.
	Service string
	// Upgraded is the release that helm upgrade finds. If empty, sluice is installed.
	Upgraded string
	// Cluster answers what the chart looks up. If nil, nothing is found, as by helm template.
	Cluster engine.ClientProvider
}

// A Rendering is a chart with values, as Helm sends it.
type Rendering struct {
	// Objects are in the order in which they are installed, each in YAML.
	Objects []string
	// Hooks are apart, as in Helm.
	Hooks []string
	// Notes are what a user reads.
	Notes string
}

// Render renders the chart with a user's values. The error is what a user of Helm would read.
func Render(values map[string]any, o Options) (Rendering, error) {
	chart, err := loader.LoadDir(ChartDir)
	if err != nil {
		return Rendering{}, fmt.Errorf("load the chart: %w", err)
	}
	capabilities := common.DefaultCapabilities.Copy()
	if o.Kubernetes != "" {
		version, err := common.ParseKubeVersion(o.Kubernetes)
		if err != nil {
			return Rendering{}, fmt.Errorf("version %q of Kubernetes: %w", o.Kubernetes, err)
		}
		capabilities.KubeVersion = *version
	}
	top, err := util.ToRenderValues(chart, values, common.ReleaseOptions{
		Name: cmp.Or(o.Upgraded, "sluice"), Namespace: Namespace, IsInstall: o.Upgraded == "",
		IsUpgrade: o.Upgraded != "",
	}, capabilities)
	if err != nil {
		return Rendering{}, fmt.Errorf("take the values: %w", err)
	}
	if o.Service != "" {
		top["Release"].(map[string]any)["Service"] = o.Service
	}
	render := engine.Render
	if o.Cluster != nil {
		render = func(c charter.Charter, v common.Values) (map[string]string, error) {
			return engine.RenderWithClientProvider(c, v, o.Cluster)
		}
	}
	files, err := render(chart, top)
	if err != nil {
		return Rendering{}, fmt.Errorf("render the chart: %w", err)
	}
	return sorted(files)
}

func sorted(files map[string]string) (Rendering, error) {
	var r Rendering
	for _, name := range slices.Collect(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			r.Notes = files[name]
			delete(files, name)
		}
	}
	hooks, manifests, err := release.SortManifests(files, nil, release.InstallOrder)
	if err != nil {
		return Rendering{}, fmt.Errorf("sort the objects: %w", err)
	}
	for _, m := range manifests {
		r.Objects = append(r.Objects, m.Content)
	}
	for _, h := range hooks {
		r.Hooks = append(r.Hooks, h.Manifest)
	}
	return r, nil
}

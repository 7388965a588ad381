// Package deploy tests the Helm chart, the manifests rendered from it, the alert rules and the
// dashboard. It is a separate module because it uses the libraries of Helm and Prometheus.
package deploy

import (
	"cmp"
	"fmt"
	"strings"

	charter "helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1/util"
)

// ChartDir is the directory of the chart, relative to this package.
const ChartDir = "../../install/chart"

// Namespace is the namespace of the release in all renderings.
const Namespace = "istio-system"

// Options describes the cluster and the action of Helm. With the zero value, Render renders like
// helm template sluice -n istio-system.
type Options struct {
	// Kubernetes is the version of the cluster. The default is the version in the default
	// capabilities of Helm's libraries. Render does not compare it with the chart's
	// kubeVersion.
	Kubernetes string
	// Service is the value of .Release.Service. The default is Helm.
	Service string
	// UpgradedRelease is the name of the release to upgrade. If it is empty, the release sluice is
	// installed.
	UpgradedRelease string
	// Cluster contains the objects that the template function lookup finds. If it is nil, lookup
	// finds nothing.
	Cluster engine.ClientProvider
}

// A Rendering is a rendered chart.
type Rendering struct {
	// Objects contains the objects as YAML, in installation order.
	Objects []string
	// Hooks contains the hooks as YAML.
	Hooks []string
	// Notes is the rendered file NOTES.txt.
	Notes string
}

// Render renders the chart with the values. Its error wraps the error of Helm's libraries.
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
	renderValues, err := util.ToRenderValues(chart, values, common.ReleaseOptions{
		Name: cmp.Or(o.UpgradedRelease, "sluice"), Namespace: Namespace, IsInstall: o.UpgradedRelease == "",
		IsUpgrade: o.UpgradedRelease != "",
	}, capabilities)
	if err != nil {
		return Rendering{}, fmt.Errorf("merge and validate the values: %w", err)
	}
	if o.Service != "" {
		renderValues["Release"].(map[string]any)["Service"] = o.Service
	}
	render := engine.Render
	if o.Cluster != nil {
		render = func(c charter.Charter, v common.Values) (map[string]string, error) {
			return engine.RenderWithClientProvider(c, v, o.Cluster)
		}
	}
	files, err := render(chart, renderValues)
	if err != nil {
		return Rendering{}, fmt.Errorf("render the chart: %w", err)
	}
	return newRendering(files)
}

// newRendering separates the objects, hooks and notes of rendered files, and sorts the objects.
func newRendering(files map[string]string) (Rendering, error) {
	var r Rendering
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			r.Notes = text
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

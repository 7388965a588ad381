package deploy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/sluice-mesh/sluice/e2e/deploy"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/plugin/decide"
)

// As in istio-cni's chart, the profile sets a default that the value under cni overrides.
func TestProfileEnablesAmbientMode(t *testing.T) {
	for values, want := range map[string]string{
		"{}":                              "false",
		"profile: default":                "false",
		"profile: ambient":                "true",
		"global: {profile: ambient}":      "true",
		"cni: {profile: ambient}":         "true",
		"ambient: {enabled: true}":        "true",
		"cni: {ambient: {enabled: true}}": "true",
		"{profile: ambient, platform: k3s, ambient: {}}":       "true",
		"{profile: ambient, ambient: {enabled: null}}":         "true",
		"{profile: ambient, cni: {ambient: {enabled: false}}}": "false",
		"{ambient: null, cni: {ambient: {enabled: true}}}":     "true",
	} {
		deployed, _ := render(t, values, deploy.Options{})
		if got := deployed.environment(t)["AMBIENT_ENABLED"]; got != want {
			t.Errorf("%s: AMBIENT_ENABLED is %q, want %q", values, got, want)
		}
	}
}

// The selectors in istio-cni's chart are the agent's default.
func TestSelectorsOfAmbientMode(t *testing.T) {
	const istio = `[{podSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}},
		{podSelector: {matchExpressions: [{key: istio.io/dataplane-mode, operator: NotIn, values: [none]}]},
		namespaceSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}}]`
	deployed, _ := render(t, "{profile: ambient, ambient: {enablementSelectors: "+istio+"}}",
		deploy.Options{})
	var got []decide.Selector
	text := deployed.environment(t)["AMBIENT_ENABLEMENT_SELECTOR"]
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if diff := cmp.Diff(decide.DefaultAmbientSettings().Selectors, got); diff != "" {
		t.Errorf("default selectors and Istio's selectors (-default +istio)\n%s", diff)
	}
	for values, want := range map[string]string{
		"profile: ambient": "",
		"{profile: ambient, ambient: {enablementSelectors: null}}": "",
		"{profile: ambient, ambient: {enablementSelectors: []}}":   "[]",
		"ambient: {enabled: false, enablementSelectors: []}":       "",
	} {
		deployed, _ := render(t, values, deploy.Options{})
		if got := deployed.environment(t)["AMBIENT_ENABLEMENT_SELECTOR"]; got != want {
			t.Errorf("%s: selectors %q, want %q", values, got, want)
		}
	}
}

// The chart accepts values that ask for what Sluice does anyway, and values without effect.
func TestValuesOfAmbientModeAreAccepted(t *testing.T) {
	for _, values := range []string{
		`{profile: ambient, ambient: {configDir: "", reconcileIptablesOnStartup: true,
			shareHostNetworkNamespace: false, enableAmbientDetectionRetry: false}}`,
		"{profile: ambient, ambient: {enableAmbientDetectionRetry: true}}",
		// Without ambient mode, these have no effect, as in Istio.
		"{unreadablePods: skip, ambient: {enableAmbientDetectionRetry: true, shareHostNetworkNamespace: true}}",
		"{profile: ambient, backend: legacy}",
		"{profile: ambient, global: {nativeNftables: true, variant: distroless}}",
		"{profile: ambient, mountNetns: false}",
		"{profile: ambient, istioOwnedCNIConfig: true}",
	} {
		if _, err := deploy.Render(parse(t, values), deploy.Options{}); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// ztunnel mounts the socket's directory at the same path. The agent replaces the socket in it.
func TestAgentMountsTheSocketDirectoryOfZtunnel(t *testing.T) {
	deployed, _ := render(t, "profile: ambient", deploy.Options{})
	pod := deployed.agent(t).Spec.Template.Spec
	dir, _, _ := strings.Cut(settings.ZtunnelSocket, "/ztunnel.sock")
	if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool {
		return v.Name == "ztunnel" && v.HostPath.Path == dir
	}) {
		t.Errorf("no volume ztunnel with the node's directory %s: %+v", dir, pod.Volumes)
	}
	found := false
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.Name == "ztunnel" {
			found = m.MountPath == dir && !m.ReadOnly
		}
	}
	if !found {
		t.Errorf("the agent does not mount %s: %+v", dir, pod.Containers[0].VolumeMounts)
	}
}

// HOST_PROBE_SNAT_IP is set as in istio-cni's chart.
func TestAddressesOfProbesAreConfigurable(t *testing.T) {
	deployed, _ := render(t,
		"{profile: ambient, env: {HOST_PROBE_SNAT_IP: 169.254.9.9, HOST_PROBE_SNAT_IPV6: 'fd99::9'}}",
		deploy.Options{})
	environment := deployed.environment(t)
	if environment["HOST_PROBE_SNAT_IP"] != "169.254.9.9" ||
		environment["HOST_PROBE_SNAT_IPV6"] != "fd99::9" {
		t.Errorf("environment %v, want the probe addresses 169.254.9.9 and fd99::9", environment)
	}
}

func TestNotesOfAmbientMode(t *testing.T) {
	const text = "Ambient mode is enabled."
	for values, want := range map[string]bool{"{}": false, "profile: ambient": true} {
		r, err := deploy.Render(parse(t, values), deploy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(r.Notes, text) != want {
			t.Errorf("%s: the notes contain %q: %v, want %v:\n%s", values, text, !want, want, r.Notes)
		}
	}
}

// A configMap is the only object of a fake cluster: the settings of the release that is upgraded.
type configMap map[string]any

// GetClientFor implements Helm's ClientProvider.
func (c configMap) GetClientFor(
	apiVersion, kind string,
) (dynamic.NamespaceableResourceInterface, bool, error) {
	o := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any(c)}}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind("v1", "ConfigMap"))
	o.SetNamespace(deploy.Namespace)
	o.SetName(settings.DaemonSet)
	return clientOf(o, apiVersion, kind), true, nil
}

// Without an agent in ambient mode, enrolled pods would stay redirected.
func TestAmbientModeIsNotDisabledWhilePodsAreEnrolled(t *testing.T) {
	on, off := configMap{"AMBIENT_ENABLED": "true"}, configMap{"AMBIENT_ENABLED": "false"}
	for _, c := range []struct {
		reason, values string
		settings       configMap
		refused        bool
	}{
		{"selectors are not empty", "{}", on, true},
		{"another profile", "profile: default", on, true},
		{
			"some selectors are not empty", "{}",
			configMap{"AMBIENT_ENABLED": "true", "AMBIENT_ENABLEMENT_SELECTOR": `[{"podSelector":{}}]`},
			true,
		},
		{
			"selectors are empty", "{}",
			configMap{"AMBIENT_ENABLED": "true", "AMBIENT_ENABLEMENT_SELECTOR": "[]"},
			false,
		},
		{"ambient mode stays enabled", "profile: ambient", on, false},
		{"selectors become empty", "{profile: ambient, ambient: {enablementSelectors: []}}", on, false},
		{"ambient mode was disabled", "{}", off, false},
		{"ambient mode becomes enabled", "profile: ambient", off, false},
		{"a release without ambient mode", "{}", configMap{}, false},
	} {
		_, err := deploy.Render(parse(t, c.values),
			deploy.Options{UpgradedRelease: "sluice", Cluster: c.settings})
		if refused := err != nil; refused != c.refused {
			t.Errorf("%s: refused %t, want %t; error %v", c.reason, refused, c.refused, err)
		}
		const want = "\n  helm upgrade sluice CHART -n istio-system --wait -f VALUES " +
			"--set-json ambient.enablementSelectors=[]\n"
		if c.refused && err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %q in: %v", c.reason, want, err)
		}
	}
}

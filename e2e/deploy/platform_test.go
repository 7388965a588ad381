package deploy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-mesh/sluice/e2e/deploy"
)

var platforms = []string{
	"gke", "eks", "aks", "iks", "openshift", "k3s", "k3d", "microk8s", "minikube", "bottlerocket",
	"talos",
}

func TestHelmLintFindsNothing(t *testing.T) {
	for _, platform := range append(platforms, "") {
		lint := action.NewLint()
		lint.Strict, lint.Namespace = true, deploy.Namespace
		for _, err := range lint.Run([]string{deploy.ChartDir},
			map[string]any{"platform": platform}).Errors {
			t.Errorf("platform %q: %v", platform, err)
		}
	}
}

// platformSettings contains the settings that depend on the platform.
type platformSettings struct {
	Bin, Conf, Netns, File, Chained, SELinux string
	Kinds                                    []string // additional kinds of objects
}

func TestSettingsOfPlatforms(t *testing.T) {
	common := platformSettings{
		Bin: "/opt/cni/bin", Conf: "/etc/cni/net.d", Netns: "/var/run/netns", Chained: "true",
	}
	with := func(change func(*platformSettings)) platformSettings { p := common; change(&p); return p }
	rancher := "/var/lib/rancher/k3s/"
	for platform, want := range map[string]platformSettings{
		"": common, "eks": common, "aks": common, "iks": common, "talos": common,
		"gke": with(func(p *platformSettings) {
			p.Bin, p.Kinds = "/home/kubernetes/bin", []string{"ResourceQuota"}
		}),
		"openshift": {
			Bin: "/var/lib/cni/bin", Conf: "/etc/cni/multus/net.d", Netns: "/var/run/netns",
			File:    "istio-cni.conf",
			Chained: "false", SELinux: "spc_t",
			Kinds: []string{"NetworkAttachmentDefinition", "SecurityContextConstraints"},
		},
		"k3s": with(func(p *platformSettings) {
			p.Bin, p.Conf = rancher+"data/cni", rancher+"agent/etc/cni/net.d"
		}),
		"k3d": with(func(p *platformSettings) { p.Bin, p.Conf = "/bin", rancher+"agent/etc/cni/net.d" }),
		"microk8s": with(func(p *platformSettings) {
			p.Bin, p.Conf = "/var/snap/microk8s/current/opt/cni/bin",
				"/var/snap/microk8s/current/args/cni-network"
		}),
		"minikube":     with(func(p *platformSettings) { p.Netns = "/var/run/docker/netns" }),
		"bottlerocket": with(func(p *platformSettings) { p.SELinux = "control_t" }),
	} {
		for _, form := range []string{
			"platform: %q", "global: {platform: %q}", "cni: {platform: %q}",
		} {
			values := fmt.Sprintf(form, platform)
			deployed, _ := render(t, values, deploy.Options{})
			if diff := cmp.Diff(want, settingsOf(t, deployed)); diff != "" {
				t.Errorf("%s: settings (-want +got)\n%s", values, diff)
			}
		}
	}
}

// settingsOf returns the platform settings of a rendering, and checks that mounts and settings
// agree.
func settingsOf(t *testing.T, deployed objects) platformSettings {
	t.Helper()
	spec := deployed.agent(t).Spec.Template.Spec
	environment := deployed.environment(t)
	p := platformSettings{File: environment["CNI_CONF_NAME"], Chained: environment["CHAINED_CNI_PLUGIN"]}
	for _, v := range spec.Volumes {
		switch v.Name {
		case "cni-bin":
			p.Bin = v.HostPath.Path
		case "cni-conf":
			p.Conf = v.HostPath.Path
		case "netns":
			p.Netns = v.HostPath.Path
		}
	}
	configured := []string{
		environment["SLUICE_HOST_BIN_DIR"], environment["SLUICE_HOST_NET_DIR"],
		environment["SLUICE_HOST_NETNS_DIR"],
	}
	if diff := cmp.Diff([]string{p.Bin, p.Conf, p.Netns}, configured); diff != "" {
		t.Errorf("mounted directories and the agent's settings (-mounted +settings)\n%s", diff)
	}
	if se := spec.Containers[0].SecurityContext.SELinuxOptions; se != nil {
		p.SELinux = se.Type
	}
	for key := range deployed {
		kind, _, _ := strings.Cut(key, "/")
		if !slices.Contains([]string{
			"DaemonSet", "ConfigMap", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role",
			"RoleBinding",
		}, kind) {
			p.Kinds = append(p.Kinds, kind)
		}
	}
	slices.Sort(p.Kinds)
	return p
}

func TestExplicitValuesOverrideThePlatform(t *testing.T) {
	deployed, _ := render(t, `{platform: openshift, cniBinDir: /b, cniConfDir: /c, cniNetnsDir: /n,
		cniConfFileName: f.conflist, cni: {chained: true, provider: default}, seLinuxOptions: {level: s0},
		resourceQuotas: {enabled: true}}`, deploy.Options{})
	want := platformSettings{
		Bin: "/b", Conf: "/c", Netns: "/n", File: "f.conflist", Chained: "true", SELinux: "spc_t",
		Kinds: []string{"ResourceQuota", "SecurityContextConstraints"},
	}
	if diff := cmp.Diff(want, settingsOf(t, deployed)); diff != "" {
		t.Errorf("settings of the platform (-want +got)\n%s", diff)
	}
	deployed, _ = render(t, "{platform: gke, cni: {resourceQuotas: {enabled: false}}}", deploy.Options{})
	if deployed["ResourceQuota/sluice"] != nil {
		t.Error("the chart contains a ResourceQuota although resourceQuotas.enabled is false")
	}
}

// Like Istio's chart, the chart recognizes GKE by the API server's version.
func TestGKEIsRecognized(t *testing.T) {
	deployed, _ := render(t, "{}", deploy.Options{Kubernetes: "v1.33.4-gke.1245000"})
	if got := settingsOf(t, deployed).Bin; got != "/home/kubernetes/bin" {
		t.Errorf("plugin directory %s, want the directory of GKE", got)
	}
	deployed, _ = render(t, "{platform: k3s}", deploy.Options{Kubernetes: "v1.33.4-gke.1245000"})
	if got := settingsOf(t, deployed).Bin; got != "/var/lib/rancher/k3s/data/cni" {
		t.Errorf("plugin directory %s, want the directory of k3s, because platform is set", got)
	}
	// Without a platform, istio-cni's chart uses this value.
	deployed, _ = render(t, "{cniBinDir: /opt/cni/bin}", deploy.Options{Kubernetes: "v1.33.4-gke.1245000"})
	if got := settingsOf(t, deployed).Bin; got != "/opt/cni/bin" {
		t.Errorf("plugin directory %s, want the value", got)
	}
}

// A NetworkAttachmentDefinition without a spec makes Multus search for a configuration of the same
// name. Istio's injector refers to the definition by this name.
func TestMultusFindsTheNetwork(t *testing.T) {
	deployed, _ := render(t, "platform: openshift", deploy.Options{})
	nad, ok := deployed["NetworkAttachmentDefinition/istio-cni"].(*unstructured.Unstructured)
	if !ok || nad.GetNamespace() != "default" || nad.Object["spec"] != nil {
		t.Errorf("definition %v, want one without a spec in the namespace default", nad)
	}
}

func TestOpenShiftConstraintsMatchTheAgent(t *testing.T) {
	for _, values := range []string{"{}", "{dacOverride: false, searchProc: false, backend: nft}"} {
		deployed, _ := render(t, "{platform: openshift, cni: "+values+"}", deploy.Options{})
		scc, ok := deployed["SecurityContextConstraints/sluice-node"].(*unstructured.Unstructured)
		if !ok {
			t.Fatal("no SecurityContextConstraints sluice-node")
		}
		allowed, _, err := unstructured.NestedStringSlice(scc.Object, "allowedCapabilities")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(capabilities(t, deployed), allowed); diff != "" {
			t.Errorf("%s: capabilities (-agent +constraints)\n%s", values, diff)
		}
		if !slices.Contains(deployed.permissions(), "securitycontextconstraints (sluice-node): use") {
			t.Errorf("%s: the agent may not use its constraints", values)
		}
	}
}

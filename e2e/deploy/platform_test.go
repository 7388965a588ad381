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

// place is what a platform decides.
type place struct {
	Bin, Conf, Netns, File, Chained, SELinux string
	Kinds                                    []string // beyond those that every platform has
}

func TestPlatformsDecidePlaces(t *testing.T) {
	usual := place{
		Bin: "/opt/cni/bin", Conf: "/etc/cni/net.d", Netns: "/var/run/netns", Chained: "true",
	}
	with := func(change func(*place)) place { p := usual; change(&p); return p }
	rancher := "/var/lib/rancher/k3s/"
	for platform, want := range map[string]place{
		"": usual, "eks": usual, "aks": usual, "iks": usual, "talos": usual,
		"gke": with(func(p *place) {
			p.Bin, p.Kinds = "/home/kubernetes/bin", []string{"ResourceQuota"}
		}),
		"openshift": {
			Bin: "/var/lib/cni/bin", Conf: "/etc/cni/multus/net.d", Netns: "/var/run/netns",
			File:    "istio-cni.conf",
			Chained: "false", SELinux: "spc_t",
			Kinds: []string{"NetworkAttachmentDefinition", "SecurityContextConstraints"},
		},
		"k3s": with(func(p *place) {
			p.Bin, p.Conf = rancher+"data/cni", rancher+"agent/etc/cni/net.d"
		}),
		"k3d": with(func(p *place) { p.Bin, p.Conf = "/bin", rancher+"agent/etc/cni/net.d" }),
		"microk8s": with(func(p *place) {
			p.Bin, p.Conf = "/var/snap/microk8s/current/opt/cni/bin",
				"/var/snap/microk8s/current/args/cni-network"
		}),
		"minikube":     with(func(p *place) { p.Netns = "/var/run/docker/netns" }),
		"bottlerocket": with(func(p *place) { p.SELinux = "control_t" }),
	} {
		for _, form := range []string{
			"platform: %q", "global: {platform: %q}", "cni: {platform: %q}",
		} {
			values := fmt.Sprintf(form, platform)
			deployed, _ := render(t, values, deploy.Options{})
			if diff := cmp.Diff(want, placeOf(t, deployed)); diff != "" {
				t.Errorf("%s:\n%s", values, diff)
			}
		}
	}
}

func placeOf(t *testing.T, deployed objects) place {
	t.Helper()
	spec := deployed.agent(t).Spec.Template.Spec
	environment := deployed.environment(t)
	p := place{File: environment["CNI_CONF_NAME"], Chained: environment["CHAINED_CNI_PLUGIN"]}
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
	told := []string{
		environment["SLUICE_HOST_BIN_DIR"], environment["SLUICE_HOST_NET_DIR"],
		environment["SLUICE_HOST_NETNS_DIR"],
	}
	if diff := cmp.Diff([]string{p.Bin, p.Conf, p.Netns}, told); diff != "" {
		t.Errorf("what is mounted, and what the agent is told:\n%s", diff)
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
	deployed, _ := render(t, `{platform: openshift, cniBinDir: /b, cniConfDir: /c, cniNetnsDir: /n, cniConfFileName: f.conflist, chained: true,
		provider: default, seLinuxOptions: {level: s0}, resourceQuotas: {enabled: true}}`, deploy.Options{})
	want := place{
		Bin: "/b", Conf: "/c", Netns: "/n", File: "f.conflist", Chained: "true", SELinux: "spc_t",
		Kinds: []string{"ResourceQuota", "SecurityContextConstraints"},
	}
	if diff := cmp.Diff(want, placeOf(t, deployed)); diff != "" {
		t.Error(diff)
	}
	deployed, _ = render(t, "{platform: gke, resourceQuotas: {enabled: false}}", deploy.Options{})
	if deployed["ResourceQuota/sluice"] != nil {
		t.Error("a quota, though it is turned off")
	}
}

// Istio's chart recognises this one platform by the API server's version.
func TestGKEIsRecognised(t *testing.T) {
	deployed, _ := render(t, "{}", deploy.Options{Kubernetes: "v1.33.4-gke.1245000"})
	if got := placeOf(t, deployed).Bin; got != "/home/kubernetes/bin" {
		t.Errorf("plugins go to %s", got)
	}
	deployed, _ = render(t, "{platform: k3s}", deploy.Options{Kubernetes: "v1.33.4-gke.1245000"})
	if got := placeOf(t, deployed).Bin; got != "/var/lib/rancher/k3s/data/cni" {
		t.Errorf("plugins go to %s, though the platform is given", got)
	}
}

// Multus finds a network without a configuration by its name, and the injector names this one.
func TestMultusFindsTheNetwork(t *testing.T) {
	deployed, _ := render(t, "platform: openshift", deploy.Options{})
	nad, ok := deployed["NetworkAttachmentDefinition/istio-cni"].(*unstructured.Unstructured)
	if !ok || nad.GetNamespace() != "default" || nad.Object["spec"] != nil {
		t.Errorf("%v", nad)
	}
}

func TestOpenShiftAllowsWhatTheAgentNeedsAndNoMore(t *testing.T) {
	for _, values := range []string{"{}", "{dacOverride: false, searchProc: false, backend: nft}"} {
		deployed, _ := render(t, "{platform: openshift, cni: "+values+"}", deploy.Options{})
		scc, ok := deployed["SecurityContextConstraints/sluice-node"].(*unstructured.Unstructured)
		if !ok {
			t.Fatal("no constraints")
		}
		allowed, _, err := unstructured.NestedStringSlice(scc.Object, "allowedCapabilities")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(capabilities(t, deployed), allowed); diff != "" {
			t.Errorf("%s: the agent's capabilities and those allowed:\n%s", values, diff)
		}
		if !slices.Contains(deployed.rights(), "securitycontextconstraints/sluice-node: use") {
			t.Errorf("%s: the agent may not use its constraints", values)
		}
	}
}

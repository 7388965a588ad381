package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/e2e/deploy"
)

func TestValuesAreCopiedToObjects(t *testing.T) {
	deployed, hooks := render(t, `{pullPolicy: Always, global: {imagePullSecrets: [one, two]},
		priorityClassName: high,
		affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {
			nodeSelectorTerms: [{matchFields: [{key: a, operator: Exists}]}]}}},
		tolerations: [{key: only, operator: Exists}],
		updateStrategy: {type: OnDelete, rollingUpdate: null}, terminationGracePeriodSeconds: 99,
		resources: {limits: {memory: 200Mi}}, resourceQuotas: {enabled: true, pods: 7},
		uninstallHook: {timeoutSeconds: 77, tolerations: [{key: hook, operator: Exists}]}}`, deploy.Options{})
	ds := deployed.agent(t)
	agent, hook := ds.Spec.Template.Spec, job(t, hooks).Spec.Template.Spec
	account, quota := deployed["ServiceAccount/sluice"].(*core.ServiceAccount),
		deployed["ResourceQuota/sluice"].(*core.ResourceQuota)
	hookAccount := hooks["ServiceAccount/sluice-uninstall"].(*core.ServiceAccount)
	secrets := []core.LocalObjectReference{{Name: "one"}, {Name: "two"}}
	pods, terms := quota.Spec.Hard["pods"],
		agent.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	got := []any{
		agent.Containers[0].ImagePullPolicy, hook.Containers[0].ImagePullPolicy,
		account.ImagePullSecrets, hookAccount.ImagePullSecrets,
		agent.PriorityClassName, quota.Spec.ScopeSelector.MatchExpressions[0].Values, pods.String(),
		terms[0].MatchFields[0].Key,
		agent.Tolerations[0].Key, hook.Tolerations[0].Key,
		*job(t, hooks).Spec.ActiveDeadlineSeconds,
		string(ds.Spec.UpdateStrategy.Type), ds.Spec.UpdateStrategy.RollingUpdate == nil,
		*agent.TerminationGracePeriodSeconds,
		agent.Containers[0].Resources.Limits.Memory().String(),
	}
	want := []any{
		core.PullAlways, core.PullAlways, secrets, secrets, "high",
		[]string{"high"},
		"7", "a", "only", "hook", int64(77),
		"OnDelete", true, int64(99), "200Mi",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields of the objects (-want +got)\n%s", diff)
	}
}

// As in istio-cni's chart, global resources are the default, and null amounts are omitted.
func TestResources(t *testing.T) {
	const global = "global: {defaultResources: {requests: {cpu: 7m, memory: null}, limits: {memory: null}}}"
	for _, c := range []struct{ reason, values, want string }{
		{"own resources", "{}", "{requests: {cpu: 20m, memory: 50Mi}, limits: {memory: 256Mi}}"},
		{
			"own resources override global ones", "{" + global + "}",
			"{requests: {cpu: 20m, memory: 50Mi}, limits: {memory: 256Mi}}",
		},
		{"global resources", "{resources: null, " + global + "}", "requests: {cpu: 7m}"},
		{"no resources", "resources: null", "{}"},
		{
			"a request above the default limit raises the limit",
			"resources: {requests: {memory: 300Mi}}",
			"{requests: {cpu: 20m, memory: 300Mi}, limits: {memory: 300Mi}}",
		},
		{
			"null amount",
			"resources: {requests: {cpu: null}, limits: {cpu: null, memory: 200Mi}}",
			"{requests: {memory: 50Mi}, limits: {memory: 200Mi}}",
		},
	} {
		deployed, _ := render(t, c.values, deploy.Options{})
		var want core.ResourceRequirements
		if err := yaml.UnmarshalStrict([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want,
			deployed.agent(t).Spec.Template.Spec.Containers[0].Resources); diff != "" {
			t.Errorf("%s: resources (-want +got)\n%s", c.reason, diff)
		}
	}
}

// A variable of Go's runtime replaces the chart's. Server-side apply rejects a name that occurs
// twice.
func TestVariablesOccurOnce(t *testing.T) {
	for _, values := range []string{"{}", "env: {GOMEMLIMIT: 100MiB, GOMAXPROCS: 1, HTTPS_PROXY: p}"} {
		deployed, _ := render(t, values, deploy.Options{})
		seen := map[string]bool{}
		for _, e := range deployed.agent(t).Spec.Template.Spec.Containers[0].Env {
			if seen[e.Name] {
				t.Errorf("%s: the variable %s occurs twice", values, e.Name)
			}
			seen[e.Name] = true
		}
		for _, name := range goVariables {
			if !seen[name] {
				t.Errorf("%s: no variable %s", values, name)
			}
		}
		if got := deployed.environment(t)["GOMEMLIMIT"]; strings.HasPrefix(values, "env") && got != "100MiB" {
			t.Errorf("%s: GOMEMLIMIT is %q, want the value", values, got)
		}
	}
}

// The job can only read and delete the DaemonSet, and list pods.
func TestPermissionsOfTheHook(t *testing.T) {
	_, hooks := render(t, "{}", deploy.Options{})
	want := []rbac.PolicyRule{
		{
			APIGroups: []string{"apps"}, Resources: []string{"daemonsets"},
			ResourceNames: []string{"sluice-node"},
			Verbs:         []string{"get", "delete"},
		},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
	}
	if diff := cmp.Diff(want, hooks["Role/sluice-uninstall"].(*rbac.Role).Rules); diff != "" {
		t.Errorf("rules of the role (-want +got)\n%s", diff)
	}
}

func TestMonitorSelectsTheAgents(t *testing.T) {
	deployed, _ := render(t, "podMonitor: {enabled: true}", deploy.Options{})
	monitor := deployed["PodMonitor/sluice-node"].(*unstructured.Unstructured)
	selector, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector",
		"matchLabels")
	if err != nil {
		t.Fatal(err)
	}
	labels := deployed.agent(t).Spec.Template.Labels
	for k, v := range selector {
		if labels[k] != v {
			t.Errorf("the monitor selects %s=%s, the pods have %q", k, v, labels[k])
		}
	}
}

func TestDashboardConfigMap(t *testing.T) {
	deployed, _ := render(t, "dashboard: {enabled: true}", deploy.Options{})
	config := deployed["ConfigMap/sluice-dashboard"].(*core.ConfigMap)
	file, err := os.ReadFile(filepath.Join(deploy.ChartDir, "files/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	if config.Labels["grafana_dashboard"] != "1" || config.Data["sluice.json"] != string(file) {
		t.Errorf("labels %v, a dashboard of %d bytes; want grafana_dashboard=1 and the file of %d bytes",
			config.Labels, len(config.Data["sluice.json"]), len(file))
	}
}

func TestNotes(t *testing.T) {
	for _, c := range []struct {
		reason, values, text string
		want                 bool
	}{
		{"commands to inspect a pod", "{}", "rules check --pod NAMESPACE/NAME", true},
		{"helm test", "{}", "helm test", true},
		{
			"excluded namespace of the test pod", "excludeNamespaces: [istio-system]",
			"helm test tests nothing: excludeNamespaces contains istio-system.", true,
		},
		{
			"selectors that may exclude the test pod",
			"enablementSelectors: [{podSelector: {matchLabels: {a: b}}}]",
			"helm test tests nothing: enablementSelectors may not select its pod.", true,
		},
		{
			"only cluster-wide objects", "global: {resourceScope: cluster}",
			"helm test tests nothing: resourceScope is cluster.", true,
		},
		{"no agents", "global: {resourceScope: cluster}", "daemonset/sluice-node", false},
		{"no agents to inspect", "global: {resourceScope: cluster}", "exec AGENT", false},
		{"a network that only the user knows", "chained: false", "helm test tests nothing: with chained=false", true},
		{"a network for the test", "{chained: false, provider: multus}", "helm test tests nothing", false},
		{"no server", "serve: {enabled: false}", "rules check", false},
		{
			"Multus and chained", "{provider: multus, chained: true}",
			"For Multus only, set chained=false", true,
		},
		{"Multus only", "platform: openshift", "For Multus only", false},
		{"pod security", "platform: talos", "pod-security.kubernetes.io/enforce=privileged", true},
		{"no pod security", "{}", "pod-security", false},
	} {
		r, err := deploy.Render(parse(t, c.values), deploy.Options{})
		if err != nil || strings.Contains(r.Notes, c.text) != c.want {
			t.Errorf("%s: error %v; notes contain %q: %v, want %v:\n%s", c.reason, err, c.text, !c.want,
				c.want, r.Notes)
		}
	}
}

// Artifact Hub reads the images of a chart from an annotation.
func TestChartNamesItsImage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy.ChartDir, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	images, _ := parse(t,
		string(text))["annotations"].(map[string]any)["artifacthub.io/images"].(string)
	deployed, _ := render(t, "{}", deploy.Options{})
	if image := deployed.agent(t).Spec.Template.Spec.Containers[0].Image; !strings.Contains(images,
		"image: "+image+"\n") {
		t.Errorf("the chart installs %s, but its annotation contains %s", image, images)
	}
}

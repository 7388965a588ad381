package deploy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-mesh/sluice/e2e/deploy"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/plugin/decide"
)

// everything enables all optional objects.
const everything = `{platform: openshift, resourceQuotas: {enabled: true},
	global: {networkPolicy: {enabled: true}, imagePullSecrets: [a]},
	podMonitor: {enabled: true, labels: {release: prom}}, prometheusRule: {enabled: true},
	dashboard: {enabled: true}, startupTaint: a/b, affinity: {nodeAffinity: {}},
	podAnnotations: {a: b}, podLabels: {a: b}, daemonSetLabels: {a: b}, env: {A: b}}`

func TestScopesContainAllObjects(t *testing.T) {
	all, _ := render(t, everything, deploy.Options{})
	cluster, _ := render(t,
		strings.Replace(everything, "global: {", "global: {resourceScope: cluster, ", 1),
		deploy.Options{})
	namespaced, _ := render(t,
		strings.Replace(everything, "global: {", "global: {resourceScope: namespace, ", 1),
		deploy.Options{})
	inScopes := map[string]bool{}
	for key := range cluster {
		inScopes[key] = true
		if kind, _, _ := strings.Cut(key, "/"); kind != "ClusterRole" &&
			kind != "ClusterRoleBinding" && kind != "SecurityContextConstraints" {
			t.Errorf("%s is not cluster-scoped", key)
		}
	}
	for key := range namespaced {
		if inScopes[key] {
			t.Errorf("%s is in both scopes", key)
		}
		inScopes[key] = true
	}
	for key := range all {
		if !inScopes[key] {
			t.Errorf("%s is in neither scope", key)
		}
	}
	if len(inScopes) != len(all) {
		t.Errorf("%d objects in the scopes, want all %d objects", len(inScopes), len(all))
	}
}

func TestNamespacesLabelsAndSubjects(t *testing.T) {
	all, hooks := render(t, everything, deploy.Options{})
	for key, o := range all {
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		want := deploy.Namespace
		switch kind, _, _ := strings.Cut(key, "/"); kind {
		case "ClusterRole", "ClusterRoleBinding", "SecurityContextConstraints":
			want = ""
		case "NetworkAttachmentDefinition":
			want = "default"
		}
		if m.GetNamespace() != want || m.GetLabels()["app.kubernetes.io/instance"] != "sluice" {
			t.Errorf("%s: namespace %q, labels %v, want namespace %q and the release sluice", key,
				m.GetNamespace(), m.GetLabels(), want)
		}
	}
	for key, o := range all {
		checkSubjects(t, key, o, all)
	}
	for key, o := range hooks {
		checkSubjects(t, key, o, hooks)
	}
}

func checkSubjects(t *testing.T, key string, o any, among objects) {
	t.Helper()
	var subjects []rbac.Subject
	var role rbac.RoleRef
	switch b := o.(type) {
	case *rbac.ClusterRoleBinding:
		subjects, role = b.Subjects, b.RoleRef
	case *rbac.RoleBinding:
		subjects, role = b.Subjects, b.RoleRef
	default:
		return
	}
	if among[role.Kind+"/"+role.Name] == nil {
		t.Errorf("%s: no %s %s", key, role.Kind, role.Name)
	}
	for _, s := range subjects {
		if among[s.Kind+"/"+s.Name] == nil || s.Namespace != deploy.Namespace {
			t.Errorf("%s: no %s %s/%s", key, s.Kind, s.Namespace, s.Name)
		}
	}
}

func TestLabelsAndAnnotationsFromValuesAreSet(t *testing.T) {
	deployed, _ := render(t, `{podLabels: {k8s-app: mine, team: mesh},
		daemonSetLabels: {k8s-app: mine, team: net}, revision: canary,
		podAnnotations: {prometheus.io/scrape: "false"}}`, deploy.Options{})
	ds := deployed.agent(t)
	for k, v := range ds.Spec.Selector.MatchLabels {
		if ds.Spec.Template.Labels[k] != v || ds.Labels[k] != v {
			t.Errorf("the pods or the DaemonSet do not have the selector's label %s=%s", k, v)
		}
	}
	got := []string{
		ds.Spec.Template.Labels["team"], ds.Labels["team"], ds.Labels["istio.io/rev"],
		ds.Spec.Template.Annotations["prometheus.io/scrape"],
	}
	if diff := cmp.Diff([]string{"mesh", "net", "canary", "false"}, got); diff != "" {
		t.Errorf("labels and annotations (-want +got)\n%s", diff)
	}
}

// Kubernetes accepts only strings in labels, annotations and variables. YAML reads true as a
// Boolean, and Helm prints large numbers with an exponent.
func TestNumbersAndBooleansBecomeStrings(t *testing.T) {
	deployed, _ := render(t, `{podLabels: {mesh: true}, daemonSetLabels: {cost-center: 12345678},
		podAnnotations: {injected: false, weight: 1.5}, env: {A: 12345678, B: true}}`, deploy.Options{})
	ds := deployed.agent(t)
	template := ds.Spec.Template
	got := []string{
		template.Labels["mesh"], ds.Labels["cost-center"], template.Annotations["injected"],
		template.Annotations["weight"], deployed.environment(t)["A"], deployed.environment(t)["B"],
	}
	if diff := cmp.Diff([]string{"true", "12345678", "false", "1.5", "12345678", "true"}, got); diff != "" {
		t.Errorf("labels, annotations and variables (-want +got)\n%s", diff)
	}
}

// Neither injection nor ambient mode applies to Sluice's pods.
func TestSluicePodsAreNotInTheMesh(t *testing.T) {
	deployed, hooks := render(t, "{}", deploy.Options{})
	for _, labels := range []map[string]string{
		deployed.agent(t).Spec.Template.Labels, job(t, hooks).Spec.Template.Labels,
	} {
		if labels["sidecar.istio.io/inject"] != "false" ||
			labels["istio.io/dataplane-mode"] != "none" {
			t.Errorf("labels %v do not exclude the pod from the mesh", labels)
		}
	}
}

// The plugin recognizes Sluice's pods by the annotation, or by a name that consists of the
// DaemonSet's name, a dash and a suffix without a dash.
func TestPluginRecognizesSluicePods(t *testing.T) {
	deployed, hooks := render(t, "podAnnotations: {"+decide.AgentAnnotation+": 'false'}",
		deploy.Options{})
	agent, hook := deployed.agent(t), job(t, hooks)
	for _, pod := range []core.PodTemplateSpec{agent.Spec.Template, hook.Spec.Template} {
		if pod.Annotations[decide.AgentAnnotation] != "true" {
			t.Errorf("annotations %v, want %s=true", pod.Annotations, decide.AgentAnnotation)
		}
	}
	if agent.Name != settings.DaemonSet || hook.Name != settings.DaemonSet {
		t.Errorf("DaemonSet %s, job %s, want the name %s, which the plugin recognizes", agent.Name, hook.Name,
			settings.DaemonSet)
	}
}

// The plugin redirects the pod of helm test. Its containers run as the proxy's user and as another
// user.
func TestPodOfHelmTest(t *testing.T) {
	const name = "Pod/sluice-test"
	_, hooks := render(t, "{platform: openshift, strictIstio: true, deviationsOff: [nat-first]}",
		deploy.Options{})
	pod, ok := hooks[name].(*core.Pod)
	if !ok {
		t.Fatalf("hooks %v, want %s among them", hooks, name)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var read decide.Pod
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	in := decide.Input{
		Attachment: decide.Attachment{Namespace: pod.Namespace, Name: pod.Name}, Pod: &read,
	}
	s := &decide.Settings{
		AgentNamespace: deploy.Namespace, AgentDaemonSet: settings.DaemonSet,
		ExcludeNamespaces: []string{"kube-system"},
	}
	if d := decide.Decide(in, s); d.Outcome != decide.Redirect {
		t.Errorf("decision %+v, want redirection", d)
	}
	var users []int64
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		users = append(users, *c.SecurityContext.RunAsUser)
		args := strings.Join(c.Args, " ")
		if !strings.HasPrefix(args, "validate ") ||
			!strings.HasSuffix(args, " --strict-istio --without=nat-first") {
			t.Errorf("container %s: arguments %s, want validate with the release's deviations", c.Name, args)
		}
	}
	if !slices.Equal(users, []int64{1000, 1337}) ||
		pod.Annotations["k8s.v1.cni.cncf.io/networks"] != "default/istio-cni" {
		t.Errorf("users %v, annotations %v, want the users 1000 and 1337 and the network of Multus", users,
			pod.Annotations)
	}
	for _, values := range []string{
		"excludeNamespaces: [kube-system, " + deploy.Namespace + "]",
		"enablementSelectors: [{podSelector: {}}]", "global: {resourceScope: cluster}",
	} {
		if _, hooks := render(t, values, deploy.Options{}); hooks[name] != nil {
			t.Errorf("%s: helm test has a pod that the plugin does not redirect", values)
		}
	}
}

func TestPodsOfTheAgent(t *testing.T) {
	deployed, _ := render(t, "{}", deploy.Options{})
	ds := deployed.agent(t)
	pod := ds.Spec.Template.Spec
	c := pod.Containers[0]
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m.MountPath
		if m.Name == "netns" && (m.MountPropagation == nil ||
			*m.MountPropagation != core.MountPropagationHostToContainer) {
			t.Error("no mount propagation: the agent cannot see namespaces of later pods")
		}
	}
	if diff := cmp.Diff(map[string]string{
		"cni-bin": settings.MountedBinDir, "cni-conf": settings.MountedNetDir,
		"run":   settings.RunDir,
		"state": settings.StateDir, "cni-cache": settings.MountedCache,
		"netns": settings.MountedNetns, "proc": settings.MountedProc,
		"identity": "/var/run/secrets/kubernetes.io/serviceaccount",
	}, mounts); diff != "" {
		t.Errorf("mounts (-want +got)\n%s", diff)
	}
	if c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/healthz" {
		t.Errorf("readiness probe %v, liveness probe %v, want the paths /readyz and /healthz",
			c.ReadinessProbe, c.LivenessProbe)
	}
	// These directories must have the same path in the container and on the node, where the plugin
	// uses them.
	for _, v := range pod.Volumes {
		if (v.Name == "run" || v.Name == "state") && v.HostPath.Path != mounts[v.Name] {
			t.Errorf("%s is %s on the node, but %s in the container", v.Name, v.HostPath.Path,
				mounts[v.Name])
		}
	}
	if pod.PriorityClassName != "system-node-critical" || len(pod.Tolerations) != 3 ||
		*pod.TerminationGracePeriodSeconds != 30 ||
		ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue() != 1 {
		t.Errorf("%+v, want priority class system-node-critical, 3 tolerations, a grace period of 30 s and "+
			"maxUnavailable 1", ds.Spec)
	}
}

func TestEitherAnnotationOrMonitorAnnouncesMetrics(t *testing.T) {
	scrape := func(values string) (annotated, monitored bool) {
		deployed, _ := render(t, values, deploy.Options{})
		_, annotated = deployed.agent(t).Spec.Template.Annotations["prometheus.io/scrape"]
		return annotated, deployed["PodMonitor/sluice-node"] != nil
	}
	if a, m := scrape("{}"); !a || m {
		t.Errorf("default: annotation %v, monitor %v, want only the annotation", a, m)
	}
	if a, m := scrape("podMonitor: {enabled: true}"); a || !m {
		t.Errorf("podMonitor.enabled: annotation %v, monitor %v, want only the monitor", a, m)
	}
	if a, m := scrape("monitoringPort: 0"); a || m {
		t.Errorf("without metrics: annotation %v, monitor %v, want neither", a, m)
	}
}

func TestPrometheusOperatorObjects(t *testing.T) {
	deployed, _ := render(t, everything, deploy.Options{})
	rule := deployed["PrometheusRule/sluice-node"].(*unstructured.Unstructured)
	groups, found, err := unstructured.NestedSlice(rule.Object, "spec", "groups")
	if !found || err != nil || len(groups) != 1 {
		t.Errorf("%d groups of rules, error %v, want 1 group in: %v", len(groups), err, rule.Object)
	}
	monitor := deployed["PodMonitor/sluice-node"].(*unstructured.Unstructured)
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "podMetricsEndpoints")
	if err != nil || len(endpoints) != 1 || endpoints[0].(map[string]any)["port"] != "metrics" {
		t.Errorf("error %v, want the endpoint metrics in: %v", err, monitor.Object)
	}
	if monitor.GetLabels()["release"] != "prom" {
		t.Errorf("labels of the monitor: %v, want release=prom", monitor.GetLabels())
	}
}

// Helm deletes the agent's roles right after the DaemonSet. The job needs its own role, which must
// exist before the job.
func TestUninstallHookRunsBeforeDeletion(t *testing.T) {
	deployed, hooks := render(t, "{}", deploy.Options{})
	weights := map[string]string{}
	for key, o := range hooks {
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		switch m.GetAnnotations()["helm.sh/hook"] {
		case "test":
			continue
		case "pre-delete":
		default:
			t.Errorf("%s is neither a test nor a pre-delete hook: %v", key, m.GetAnnotations())
		}
		weights[key] = m.GetAnnotations()["helm.sh/hook-weight"]
	}
	if diff := cmp.Diff(map[string]string{
		"ServiceAccount/sluice-uninstall": "-10", "Role/sluice-uninstall": "-10",
		"RoleBinding/sluice-uninstall": "-9", "Job/sluice-node": "0",
	}, weights); diff != "" {
		t.Errorf("weights of the hooks (-want +got)\n%s", diff)
	}
	if c := job(t, hooks).Spec.Template.Spec.Containers[0]; !cmp.Equal(c.Args, []string{
		"uninstall", "--cluster",
	}) {
		t.Errorf("arguments of the job %v, want uninstall --cluster", c.Args)
	}
	if deployed["Job/sluice-node"] != nil {
		t.Error("the job is an object of the release, want only a hook")
	}
	if _, hooks := render(t, "uninstallHook: {enabled: false}",
		deploy.Options{}); hooks["Job/sluice-node"] != nil || len(hooks) > 1 {
		t.Errorf("hooks with uninstallHook.enabled=false: %v, want only the test", hooks)
	}
}

package suite_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

// The tests of ambient mode use package mesh's replacement for ztunnel. Each test upgrades to
// ambient mode if necessary.
var ambient = testGroup{name: "ambient", tests: []groupTest{
	{
		"after an upgrade to ambient mode, a pod waits for ztunnel, an event reports this, and then the pod starts",
		checkWaitForZtunnel,
	},
	{"pods use HBONE between each other, and reach sidecars and other pods in both directions", checkAmbientTraffic},
	{"the kubelet's probes bypass ztunnel, and DNS queries do not", checkAmbientProbes},
	{"running pods are enrolled and removed with the label of their namespace", checkAmbientLabel},
	{"deleted rules of the node and of a pod are restored", checkAmbientRepair},
	{
		"no connection bypasses ztunnel while the agent and ztunnel are killed and replaced",
		checkAmbientReplacement,
	},
	{
		"after all rules of the node are flushed, the node's rules for probes are restored, and an event and a metric report it",
		checkAmbientFlush,
	},
	{
		"after a reboot of the node, pods start captured from their first request on, and probes bypass ztunnel",
		checkAmbientReboot,
	},
	{
		"no connection bypasses ztunnel while the rules of the pods and of the node move to another backend and back",
		checkAmbientBackend,
	},
	{
		"after ambient mode is disabled, neither the pods nor the node have rules, and connections are direct",
		checkAmbientDisabled,
	},
	{
		"after helm uninstall, neither the pods nor the node have rules, and connections are direct",
		checkAmbientUninstall,
	},
}}

// ambientMigration contains the test of migrations in ambient mode. It begins without Sluice's
// chart.
var ambientMigration = testGroup{name: "ambient migration", withoutChart: true, tests: []groupTest{
	{
		"during migrations from istio-cni to Sluice and back, no request between pods in ambient mode fails or bypasses ztunnel",
		checkAmbientMigration,
	},
}}

// throughZtunnel returns the path of a request from a pod in ambient mode, or from a pod with a
// sidecar, to a server in ambient mode.
func throughZtunnel(server string) path.Expected {
	return path.Expected{Server: server, Outbound: true, Inbound: true, Transparent: true}
}

// mustBeAmbient upgrades to ambient mode if it is not enabled.
func (tc *testCluster) mustBeAmbient(t *testing.T) {
	t.Helper()
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if tc.ambient {
		return
	}
	tc.mustUpgrade(t, ambientArgs()...)
	tc.ambient = true
}

// ambientArgs returns Helm's arguments that enable ambient mode.
func ambientArgs() []string { return []string{"--set", "profile=ambient"} }

// mustUpgrade upgrades the release with additional arguments of Helm.
func (tc *testCluster) mustUpgrade(t *testing.T, extra ...string) {
	t.Helper()
	begin := time.Now()
	args := append([]string{"upgrade"}, tc.chartArgs(extra...)...)
	if _, err := tc.helm(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
	t.Logf("helm upgrade: %s", time.Since(begin).Round(time.Millisecond))
}

// mustRunZtunnel starts ztunnel if it does not run, and waits until it is ready.
func (tc *testCluster) mustRunZtunnel(t *testing.T) {
	t.Helper()
	_, err := tc.client.AppsV1().DaemonSets(agentNamespace).Create(t.Context(),
		mesh.Ztunnel(agentNamespace), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	eventually(t, readyTimeout, "ztunnel is ready", func(ctx context.Context) error {
		return tc.checkAgentsReady(ctx, mesh.ZtunnelName)
	})
}

// mustStopZtunnel deletes ztunnel, and waits until it has ended.
func (tc *testCluster) mustStopZtunnel(t *testing.T) {
	t.Helper()
	err := tc.client.AppsV1().DaemonSets(agentNamespace).Delete(t.Context(), mesh.ZtunnelName,
		metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	eventually(t, readyTimeout, "ztunnel has ended", func(ctx context.Context) error {
		pods, err := tc.ztunnels(ctx)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods exist", len(pods))
		}
		return err
	})
}

// ztunnelSelector selects the pods of ztunnel.
const ztunnelSelector = "app=" + mesh.ZtunnelName

// ztunnels returns the pods of ztunnel.
func (tc *testCluster) ztunnels(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := tc.client.CoreV1().Pods(agentNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: ztunnelSelector,
	})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// newAmbientNamespace creates a namespace for the test, whose pods are in ambient mode.
func (tc *testCluster) newAmbientNamespace(t *testing.T) string {
	t.Helper()
	return tc.newLabeledNamespace(t, map[string]string{mesh.DataplaneLabel: "ambient"})
}

// labelNamespace sets the label of ambient mode; an empty value removes it.
func (tc *testCluster) labelNamespace(t *testing.T, ns, value string) {
	t.Helper()
	text := "null"
	if value != "" {
		text = `"` + value + `"`
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, mesh.DataplaneLabel, text)
	if _, err := tc.client.CoreV1().Namespaces().Patch(t.Context(), ns, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// waitAnnotated waits until the redirection annotation of the pods has the value; an empty value
// means no annotation. The test fails if a pod was replaced by another pod with the same name.
func (tc *testCluster) waitAnnotated(t *testing.T, value string, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		eventually(t, readyTimeout, fmt.Sprintf("the annotation of %s is %q", p.Name, value),
			func(ctx context.Context) error {
				found, err := tc.get(ctx, p)
				if err == nil && found.UID != p.UID {
					t.Errorf("%s was replaced", p.Name)
				}
				if err == nil && found.Annotations[mesh.RedirectionAnnotation] != value {
					err = fmt.Errorf("the annotation is %q", found.Annotations[mesh.RedirectionAnnotation])
				}
				return err
			})
	}
}

func checkWaitForZtunnel(t *testing.T, tc *testCluster) {
	ns := tc.newAmbientNamespace(t)
	before := tc.run(t, mesh.Pod(ns, "before"), meshPod(ns, "sidecar"))
	tc.mustBeAmbient(t)
	tc.mustStopZtunnel(t)
	a := mesh.Pod(ns, "a")
	tc.create(t, a)
	eventually(t, readyTimeout, "an event reports that no ztunnel is connected", func(ctx context.Context) error {
		lines := tc.warnings(ctx, a)
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.Contains(line, "no ztunnel is connected")
		}) {
			return fmt.Errorf("warnings: %q", lines)
		}
		return nil
	})
	if found, err := tc.get(t.Context(), a); err != nil || found.Status.Phase != corev1.PodPending {
		t.Errorf("without ztunnel the pod is %s, want Pending: error %v", found.Status.Phase, err)
	}
	tc.mustRunZtunnel(t)
	a = tc.waitReady(t, a)
	tc.waitAnnotated(t, "enabled", a, before[0])
	ipv4, _ := addresses(before[0])
	tc.mustReach(t, a, url(ipv4.String(), mesh.Port), throughZtunnel("before"))
	ipv4, _ = addresses(before[1])
	tc.mustReach(t, a, url(ipv4.String(), mesh.Port), path.Captured("sidecar"))
}

func checkAmbientUninstall(t *testing.T, tc *testCluster) {
	tc.mustBeAmbient(t)
	tc.mustRunZtunnel(t)
	ns := tc.newAmbientNamespace(t)
	pods := tc.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"))
	tc.waitAnnotated(t, "enabled", pods...)
	tc.mustUninstall(t)
	tc.waitAnnotated(t, "", pods...)
	for _, p := range pods {
		tc.mustHaveNoRules(t, p)
	}
	if has, err := tc.hasHostRules(t.Context()); has || err != nil {
		t.Errorf("the node has rules for probes after helm uninstall: %t, error %v", has, err)
	}
	ipv4, _ := addresses(pods[1])
	tc.mustReach(t, pods[0], url(ipv4.String(), mesh.Port), path.Expected{Server: "b"})
	tc.mustBeAsBefore(t)
	tc.mustStopZtunnel(t)
}

// hasHostRules reports whether the node has the rules for probes.
func (tc *testCluster) hasHostRules(ctx context.Context) (bool, error) {
	out, err := tc.onNode(ctx, "nft", "list", "tables")
	return strings.Contains(out, "table inet sluice"), err
}

// checkHostRules returns an error unless the node has the rules for probes.
func (tc *testCluster) checkHostRules(ctx context.Context) error {
	has, err := tc.hasHostRules(ctx)
	if err == nil && !has {
		err = errors.New("the node has no rules for probes")
	}
	return err
}

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
		"after an upgrade to ambient mode, a pod waits for ztunnel, reports this in an event, and then starts",
		checkWaitForZtunnel,
	},
	{"pods use HBONE between each other, and reach sidecars and other pods in both directions", checkAmbientTraffic},
	{"the kubelet's probes bypass ztunnel, and DNS queries do not", checkAmbientProbes},
	{"running pods are enrolled and removed with the label of their namespace", checkAmbientLabel},
	{"deleted rules of the node and of a pod are restored", checkAmbientRepair},
	{
		"no connection bypasses ztunnel while agent and ztunnel are killed and replaced",
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
		"no connection bypasses ztunnel while the rules of pods and node move to another backend and back",
		checkAmbientBackend,
	},
	{
		"after ambient mode is disabled, neither pods nor node have rules, and connections are direct",
		checkAmbientDisabled,
	},
	{
		"after helm uninstall, neither pods nor node have rules, and connections are direct",
		checkAmbientUninstall,
	},
}}

// ambientMigration is the migration of pods in ambient mode. The chart is not installed before.
var ambientMigration = testGroup{name: "ambient migration", bare: true, tests: []groupTest{
	{
		"between istio-cni and Sluice, requests of pods in ambient mode are answered, and none bypasses ztunnel",
		checkAmbientMigration,
	},
}}

// throughZtunnel is the path between two pods in ambient mode.
func throughZtunnel(server string) path.Expected {
	return path.Expected{Server: server, Outbound: true, Inbound: true, Transparent: true}
}

// mustBeAmbient upgrades to ambient mode if it is not enabled.
func (w *testCluster) mustBeAmbient(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ambient {
		return
	}
	w.mustUpgrade(t, ambientArgs()...)
	w.ambient = true
}

// ambientArgs enable ambient mode. Uninstallation does not wait long for the removal of pods.
func ambientArgs() []string { return []string{"--set", "profile=ambient,uninstallTimeout=2s"} }

func (w *testCluster) mustUpgrade(t *testing.T, more ...string) {
	t.Helper()
	begin := time.Now()
	args := append([]string{"upgrade"}, w.chartArgs(more...)...)
	if _, err := w.helm(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
	t.Logf("helm upgrade: %s", time.Since(begin).Round(time.Millisecond))
}

// mustRunZtunnel starts ztunnel if it does not run, and waits until it is ready.
func (w *testCluster) mustRunZtunnel(t *testing.T) {
	t.Helper()
	_, err := w.client.AppsV1().DaemonSets(agentNamespace).Create(t.Context(),
		mesh.Ztunnel(agentNamespace), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	eventually(t, readyTimeout, "ztunnel is ready", func(ctx context.Context) error {
		return w.agentsReady(ctx, mesh.ZtunnelName)
	})
}

// mustStopZtunnel deletes ztunnel, and waits until it has ended.
func (w *testCluster) mustStopZtunnel(t *testing.T) {
	t.Helper()
	err := w.client.AppsV1().DaemonSets(agentNamespace).Delete(t.Context(), mesh.ZtunnelName,
		metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	eventually(t, readyTimeout, "ztunnel has ended", func(ctx context.Context) error {
		pods, err := w.ztunnels(ctx)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods", len(pods))
		}
		return err
	})
}

// ztunnels returns the pods of ztunnel.
func (w *testCluster) ztunnels(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := w.client.CoreV1().Pods(agentNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app=" + mesh.ZtunnelName,
	})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// newAmbientNamespace creates a namespace for the test, whose pods are in ambient mode.
func (w *testCluster) newAmbientNamespace(t *testing.T) string {
	t.Helper()
	return w.newLabelledNamespace(t, map[string]string{mesh.DataplaneLabel: "ambient"})
}

// labelNamespace sets the label of ambient mode; an empty value removes it.
func (w *testCluster) labelNamespace(t *testing.T, ns, value string) {
	t.Helper()
	text := "null"
	if value != "" {
		text = `"` + value + `"`
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, mesh.DataplaneLabel, text)
	if _, err := w.client.CoreV1().Namespaces().Patch(t.Context(), ns, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// annotated waits until the redirection annotation of the pods has the value; an empty value means
// no annotation.
func (w *testCluster) annotated(t *testing.T, value string, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		eventually(t, readyTimeout, fmt.Sprintf("the annotation of %s is %q", p.Name, value),
			func(ctx context.Context) error {
				found, err := w.get(ctx, p)
				if err == nil && found.UID != p.UID {
					t.Errorf("%s was replaced", p.Name)
				}
				if err == nil && found.Annotations[mesh.RedirectionAnnotation] != value {
					err = fmt.Errorf("%q", found.Annotations[mesh.RedirectionAnnotation])
				}
				return err
			})
	}
}

func checkWaitForZtunnel(t *testing.T, w *testCluster) {
	ns := w.newAmbientNamespace(t)
	before := w.run(t, mesh.Pod(ns, "before"), meshPod(ns, "sidecar"))
	w.mustBeAmbient(t)
	w.mustStopZtunnel(t)
	a := mesh.Pod(ns, "a")
	w.create(t, a)
	eventually(t, readyTimeout, "an event reports that no ztunnel is connected", func(ctx context.Context) error {
		lines := w.warnings(ctx, a)
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.Contains(line, "no ztunnel is connected")
		}) {
			return fmt.Errorf("warnings: %q", lines)
		}
		return nil
	})
	if found, err := w.get(t.Context(), a); err != nil || found.Status.Phase != corev1.PodPending {
		t.Errorf("without ztunnel the pod is %s: %v", found.Status.Phase, err)
	}
	w.mustRunZtunnel(t)
	a = w.ready(t, a)
	w.annotated(t, "enabled", a, before[0])
	four, _ := addresses(before[0])
	w.mustReach(t, a, url(four.String(), mesh.Port), throughZtunnel("before"))
	four, _ = addresses(before[1])
	w.mustReach(t, a, url(four.String(), mesh.Port), path.Captured("sidecar"))
}

func checkAmbientUninstall(t *testing.T, w *testCluster) {
	w.mustBeAmbient(t)
	w.mustRunZtunnel(t)
	ns := w.newAmbientNamespace(t)
	pods := w.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"))
	w.annotated(t, "enabled", pods...)
	w.mustUninstall(t)
	w.annotated(t, "", pods...)
	for _, p := range pods {
		w.mustHaveNoRules(t, p)
	}
	if err := w.hostRules(t.Context()); err == nil {
		t.Error("the node has rules for probes")
	}
	four, _ := addresses(pods[1])
	w.mustReach(t, pods[0], url(four.String(), mesh.Port), path.Expected{Server: "b"})
	w.mustBeAsBefore(t)
	w.mustStopZtunnel(t)
}

// hostRules returns an error unless the node has the rules for probes.
func (w *testCluster) hostRules(ctx context.Context) error {
	out, err := w.onNode(ctx, "nft", "list", "tables")
	if err == nil && !strings.Contains(out, "table inet sluice") {
		err = errors.New("the node's tables: " + out)
	}
	return err
}

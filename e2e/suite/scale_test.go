package suite_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// burstSize is the number of pods that start at the same time. The kubelets of package cluster
// permit 250 pods.
const burstSize = 100

var scale = testGroup{name: "scale", tests: []groupTest{
	{
		"a hundred pods that start at the same time are redirected",
		checkBurst,
	},
}}

// plainBurst contains the test of scale without the plugin, for comparison.
var plainBurst = testGroup{name: "scale without the plugin", withoutChart: true, long: true, tests: []groupTest{
	{"a hundred pods that start at the same time", checkPlainBurst},
}}

// checkBurst starts a burst of pods with the plugin, and logs how long it takes. If checkPlainBurst
// ran before, the log also contains the difference per pod.
func checkBurst(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	tc.mustHaveNoPods(t) // the agent would count retries of ADD for other pods
	countBefore, timeBefore := tc.addDuration(t, tc.node())
	elapsed := tc.startBurst(t, ns, func(p *corev1.Pod) { p.Annotations[mesh.StatusAnnotation] = "{}" })
	count, totalTime := tc.addDuration(t, tc.node())
	// The plugin reports ADD to the agent within a tenth of a second. On a busy machine, some
	// reports may be lost.
	if count -= countBefore; count < 1 || count > burstSize {
		t.Fatalf("the agent counts %d ADDs, want 1 to %d", count, burstSize)
	}
	t.Logf("%d pods running after %s; mean duration of ADD %s, of %d counted by the agent", burstSize,
		elapsed.Round(time.Millisecond),
		((totalTime - timeBefore) / time.Duration(count)).Round(time.Microsecond), count)
	if tc.plainBurst > 0 {
		t.Logf("without the plugin, the pods were running after %s: the plugin adds %s per pod",
			tc.plainBurst.Round(time.Millisecond),
			((elapsed - tc.plainBurst) / burstSize).Round(time.Microsecond))
	}
	t.Logf("memory of the agent: %s", tc.agentMemory(t))
	// The agent may have repaired pods that started without rules, but it writes no records.
	records, err := tc.onNode(t.Context(), "sh", "-c", fmt.Sprintf(
		`cat /run/sluice-cni/attachments/*.json | grep '"namespace":"%s"' | grep -c '"outcome":"redirect"'`, ns))
	if strings.TrimSpace(records) != strconv.Itoa(burstSize) {
		t.Errorf("ADD redirected %q pods, want %d (error %v)", records, burstSize, err)
	}
	tc.mustAllHaveRules(t)
	tc.endBurst(t, ns)
}

// checkPlainBurst starts the same pods without the plugin.
func checkPlainBurst(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	tc.plainBurst = tc.startBurst(t, ns, func(*corev1.Pod) {})
	tc.endBurst(t, ns)
	t.Logf("%d pods running after %s", burstSize, tc.plainBurst.Round(time.Millisecond))
}

// mustAllHaveRules fails the test unless the number of network namespaces with Sluice's table
// equals the number of pods. It waits for the removal of namespaces of deleted pods.
func (tc *testCluster) mustAllHaveRules(t *testing.T) {
	t.Helper()
	eventually(t, readyTimeout, "only the pods have rules", func(ctx context.Context) error {
		out, err := tc.onNode(ctx, "sh", "-c",
			`for n in /run/netns/*; do
				nsenter --net=$n nft list table inet sluice >/dev/null 2>&1 && echo $n
			done; true`)
		count := strings.Count(out, "\n")
		if err == nil && count < burstSize {
			t.Fatalf("%d of %d pods have rules", count, burstSize)
		}
		if err == nil && count > burstSize {
			err = fmt.Errorf("%d network namespaces have rules", count)
		}
		return err
	})
}

// mustHaveNoPods waits until the pods of earlier tests no longer exist.
func (tc *testCluster) mustHaveNoPods(t *testing.T) {
	t.Helper()
	eventually(t, 2*time.Minute, "the pods of earlier tests are deleted", func(ctx context.Context) error {
		list, err := tc.client.CoreV1().Pods("").List(ctx,
			metav1.ListOptions{LabelSelector: mesh.NameLabel})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods left, such as %s/%s", len(list.Items), list.Items[0].Namespace,
				list.Items[0].Name)
		}
		return err
	})
}

// startBurst creates burstSize pods, and returns the time until all are running. change may modify
// each pod before its creation. The pods' only container has the proxy's name, because the plugin
// redirects only pods with a proxy.
func (tc *testCluster) startBurst(t *testing.T, ns string, change func(p *corev1.Pod)) time.Duration {
	t.Helper()
	tc.mustHaveNoPods(t)
	begin := time.Now()
	for i := range burstSize {
		p := mesh.Pod(ns, fmt.Sprintf("burst-%d", i))
		p.Spec.Containers[0].Name, p.Spec.Containers[0].ReadinessProbe = mesh.ProxyContainer, nil
		change(p)
		tc.create(t, p)
	}
	eventually(t, 5*time.Minute, "all pods are running", func(ctx context.Context) error {
		pods, err := tc.client.CoreV1().Pods(ns).List(ctx,
			metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if err == nil && len(pods.Items) < burstSize {
			err = fmt.Errorf("%d are running", len(pods.Items))
		}
		return err
	})
	return time.Since(begin)
}

// endBurst deletes the pods of a burst, and waits until they no longer exist.
func (tc *testCluster) endBurst(t *testing.T, ns string) {
	t.Helper()
	pods := tc.client.CoreV1().Pods(ns)
	if err := pods.DeleteCollection(t.Context(), deleteNow, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Minute, "all pods are deleted", func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods left", len(list.Items))
		}
		return err
	})
}

// agentMemory returns the current and the maximum resident memory of the agent.
func (tc *testCluster) agentMemory(t *testing.T) string {
	t.Helper()
	pid, err := tc.containerPID(t.Context(), tc.agentPod(t), agent)
	if err != nil {
		t.Fatal(err)
	}
	text, err := tc.onNode(t.Context(), "grep", "-E", "^Vm(RSS|HWM)", "/proc/"+pid+"/status")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(text), " ")
}

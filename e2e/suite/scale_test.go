package suite_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// crowd is how many pods start at once. A node has 110 at most, a few of which are the cluster's
// own.
const crowd = 100

var scale = part{name: "scale", proofs: []proof{
	{
		"a hundred pods that start at once are redirected, in time and memory that are reported",
		provesCrowd,
	},
}}

// provesCrowd starts pods with rules. What the same takes without the plugin is known if that was
// proved too.
func provesCrowd(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	w.mustBeEmpty(t) // a pod that cannot start is tried again, and each time counts
	countBefore, timeBefore := w.addTime(t, w.node())
	took := w.startCrowd(t, ns, func(p *corev1.Pod) { p.Annotations[mesh.StatusAnnotation] = "{}" })
	count, altogether := w.addTime(t, w.node())
	// The plugin has a tenth of a second for telling the agent, which a busy machine may not allow
	// each time.
	if count -= countBefore; count < 1 || count > crowd {
		t.Fatalf("the agent was told of %d ADDs", count)
	}
	t.Logf("%d pods run after %s; ADD took %s for each of the %d that the agent was told of", crowd,
		took.Round(time.Millisecond),
		((altogether - timeBefore) / time.Duration(count)).Round(time.Microsecond), count)
	if w.plainCrowd > 0 {
		t.Logf("without the plugin after %s: added are %s for each",
			w.plainCrowd.Round(time.Millisecond),
			((took - w.plainCrowd) / crowd).Round(time.Microsecond))
	}
	t.Logf("the agent's memory: %s", w.agentMemory(t))
	w.mustAllHaveRules(t)
	w.endCrowd(t, ns)
}

// provesPlainCrowd starts the same pods without the plugin.
func provesPlainCrowd(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	w.plainCrowd = w.startCrowd(t, ns, func(*corev1.Pod) {})
	w.endCrowd(t, ns)
	t.Logf("%d pods run after %s", crowd, w.plainCrowd.Round(time.Millisecond))
}

// mustAllHaveRules fails the test unless there are as many network namespaces with our table as
// there are pods, once those of earlier pods are gone: the API server forgets these at once, and a
// busy node may not have removed them yet.
func (w *world) mustAllHaveRules(t *testing.T) {
	t.Helper()
	eventually(t, readyTime, "only the pods have rules", func(ctx context.Context) error {
		out, err := w.onNode(ctx, "sh", "-c",
			`for n in /run/netns/*; do nsenter --net=$n nft list table inet sluice >/dev/null 2>&1 && echo $n; done; true`)
		have := strings.Count(out, "\n")
		if err == nil && have < crowd {
			t.Fatalf("%d pods have rules", have) // later the agent would have repaired the others
		}
		if err == nil && have > crowd {
			err = fmt.Errorf("%d network namespaces have rules", have)
		}
		return err
	})
}

// mustBeEmpty waits until the pods of earlier tests are gone.
func (w *world) mustBeEmpty(t *testing.T) {
	t.Helper()
	eventually(t, 2*time.Minute, "the pods of earlier tests are gone", func(ctx context.Context) error {
		list, err := w.client.CoreV1().Pods("").List(ctx,
			metav1.ListOptions{LabelSelector: mesh.NameLabel})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left, as %s/%s", len(list.Items), list.Items[0].Namespace,
				list.Items[0].Name)
		}
		return err
	})
}

// startCrowd makes pods of one container, and returns after what time all run.
func (w *world) startCrowd(t *testing.T, ns string, change func(p *corev1.Pod)) time.Duration {
	t.Helper()
	w.mustBeEmpty(t)
	begin := time.Now()
	for i := range crowd {
		p := mesh.Pod(ns, fmt.Sprintf("crowd-%d", i))
		p.Spec.Containers[0].Name, p.Spec.Containers[0].ReadinessProbe = mesh.ProxyContainer, nil
		change(p)
		w.create(t, p)
	}
	eventually(t, 5*time.Minute, "all pods run", func(ctx context.Context) error {
		pods, err := w.client.CoreV1().Pods(ns).List(ctx,
			metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if err == nil && len(pods.Items) < crowd {
			err = fmt.Errorf("%d run", len(pods.Items))
		}
		return err
	})
	return time.Since(begin)
}

func (w *world) endCrowd(t *testing.T, ns string) {
	t.Helper()
	pods := w.client.CoreV1().Pods(ns)
	if err := pods.DeleteCollection(t.Context(), deleteNow, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Minute, "all pods are gone", func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return err
	})
}

// agentMemory is what the kernel says of the agent's process: what is resident, and the most that
// was.
func (w *world) agentMemory(t *testing.T) string {
	t.Helper()
	pid, err := w.containerPID(t.Context(), w.agentPod(t), agent)
	if err != nil {
		t.Fatal(err)
	}
	text, err := w.onNode(t.Context(), "grep", "-E", "^Vm(RSS|HWM)", "/proc/"+pid+"/status")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(text), " ")
}

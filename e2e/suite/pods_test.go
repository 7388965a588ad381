package suite_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// readyTimeout is the time limit for the start of a pod on a busy machine.
var readyTimeout = timeFactor * 2 * time.Minute

// deleteNow contains the options for deleting a pod without a grace period.
var deleteNow = metav1.DeleteOptions{GracePeriodSeconds: new(int64)}

// notInNames matches characters that names of namespaces must not contain.
var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// newNamespace creates a namespace, and deletes it when the test ends.
func (tc *testCluster) newNamespace(t *testing.T) string {
	t.Helper()
	return tc.newLabeledNamespace(t, nil)
}

// newLabeledNamespace creates a namespace with labels. Labels that are added later may not apply
// to the next pod, because the API server caches the labels of namespaces for webhooks.
func (tc *testCluster) newLabeledNamespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	last := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
	prefix := notInNames.ReplaceAllString(strings.ToLower(last), "-")
	ns, err := tc.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: strings.Trim(prefix[:min(len(prefix), 30)], "-") + "-", Labels: labels,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's context is done. Other tests do not wait for the deletion.
		err := tc.client.CoreV1().Namespaces().Delete(context.Background(), ns.Name,
			metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	// The API server rejects pods before the service account exists. After an outage, its
	// controller may reconnect only after 30 seconds.
	eventually(t, readyTimeout, "namespace "+ns.Name+" has its service account", func(ctx context.Context) error {
		_, err := tc.client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default",
			metav1.GetOptions{})
		return err
	})
	return ns.Name
}

// meshPod returns a pod with a regular sidecar.
func meshPod(ns, name string) *corev1.Pod { return mesh.Inject(mesh.Pod(ns, name), mesh.Sidecar{}) }

// dualStackEnv is the proxy environment that enables capture of both address families.
var dualStackEnv = map[string]string{"ISTIO_DUAL_STACK": "true"}

// create creates pods on their nodes, by default the first node, without waiting.
func (tc *testCluster) create(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		p.Spec.NodeName = cmp.Or(p.Spec.NodeName, tc.node().Name())
		if _, err := tc.client.CoreV1().Pods(p.Namespace).Create(t.Context(), p,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// run creates pods, waits until all are ready, and returns their current objects. The test fails if
// a pod of the mesh starts without rules.
func (tc *testCluster) run(t *testing.T, pods ...*corev1.Pod) []*corev1.Pod {
	t.Helper()
	tc.create(t, pods...)
	ready := make([]*corev1.Pod, len(pods))
	for i, p := range pods {
		ready[i] = tc.waitReady(t, p)
		mustStartCaptured(t, ready[i])
	}
	return ready
}

// waitReady waits until a pod is ready, and returns its current object.
func (tc *testCluster) waitReady(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, readyTimeout, "pod "+pod.Name+" is ready", func(ctx context.Context) (err error) {
		if found, err = tc.get(ctx, pod); err != nil {
			return err
		}
		for _, c := range found.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New(tc.describeState(ctx, found))
	})
	return found
}

// get returns the current object of a pod.
func (tc *testCluster) get(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return tc.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
}

// remove deletes pods without a grace period, and waits until they no longer exist.
func (tc *testCluster) remove(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		err := tc.client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, deleteNow)
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	for _, p := range pods {
		eventually(t, readyTimeout, "pod "+p.Name+" is deleted", func(ctx context.Context) error {
			if found, err := tc.get(ctx, p); !apierrors.IsNotFound(err) {
				return errors.Join(fmt.Errorf("phase %v", found.Status.Phase), err)
			}
			return nil
		})
	}
}

// describeState describes why a pod is not ready: its phase, waiting and failed containers, and
// warning events.
func (tc *testCluster) describeState(ctx context.Context, pod *corev1.Pod) string {
	lines := []string{string(pod.Status.Phase)}
	for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		switch s := c.State; {
		case s.Waiting != nil:
			lines = append(lines,
				fmt.Sprintf("%s is waiting: %s %s", c.Name, s.Waiting.Reason, s.Waiting.Message))
		case s.Terminated != nil && s.Terminated.ExitCode != 0:
			lines = append(lines,
				fmt.Sprintf("%s exited with code %d: %s", c.Name, s.Terminated.ExitCode,
					s.Terminated.Message))
		}
		if l := c.LastTerminationState.Terminated; l != nil && l.ExitCode != 0 {
			lines = append(lines,
				fmt.Sprintf("%s had exited with code %d: %s", c.Name, l.ExitCode, l.Message))
		}
	}
	return strings.Join(append(lines, tc.warnings(ctx, pod)...), "; ")
}

// warnings returns the warning events of a pod.
func (tc *testCluster) warnings(ctx context.Context, pod *corev1.Pod) []string {
	events, err := tc.client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "type=Warning,involvedObject.name=" + pod.Name,
	})
	if err != nil {
		return []string{err.Error()}
	}
	var lines []string
	for _, e := range events.Items {
		lines = append(lines, e.Reason+": "+e.Message)
	}
	return lines
}

// exec runs a command in a container, and returns its standard output. The error contains its
// standard error.
func (tc *testCluster) exec(
	ctx context.Context, pod *corev1.Pod, container string, argv ...string,
) (string, error) {
	request := tc.client.CoreV1().RESTClient().Post().Resource("pods").
		Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container, Command: argv, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(tc.REST(), "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{
		Stdout: &stdout, Stderr: &stderr,
	}); err != nil {
		return stdout.String(), fmt.Errorf("%s of %s: %s: %w: %s", container, pod.Name,
			strings.Join(argv, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// execJSON runs a command in the application container, and decodes its JSON output.
func (tc *testCluster) execJSON(t *testing.T, from *corev1.Pod, answer any, argv ...string) {
	t.Helper()
	text, err := tc.exec(t.Context(), from, mesh.AppContainer, argv...)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), answer); err != nil {
		t.Fatalf("%s: %v: %q: %v", from.Name, argv, text, err)
	}
}

package suite_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pluginLog is the path of the plugin's log on a node.
const pluginLog = "/run/sluice-cni/sluice-cni.log"

// unreadableMessage returns the beginning of the error for a pod that the plugin cannot read.
func unreadableMessage(pod *corev1.Pod) string {
	return fmt.Sprintf("pod %s/%s cannot be read, so it is not known whether it is in the mesh",
		pod.Namespace, pod.Name)
}

// checkAgentBackFirst pauses the agent, and resumes it while the API server is unavailable.
func checkAgentBackFirst(t *testing.T, tc *testCluster) {
	o := tc.newOutage(t)
	signal := tc.newAgentSignaler(t)
	o.stopAPIServer(t)
	// If the test fails, the kubelet restarts the agent after a minute because of its liveness
	// probe.
	signal("STOP")
	o.recreateSandbox(t)
	o.mustNotStart(t, "node agent: no answer within")
	signal("CONT")
	o.mustRun(t)
	o.endOutage(t)
	o.mustReportReason(t)
	o.restartClients(t)
	o.mustCaptureAgain(t)
}

// checkAPIServerBackFirst updates the agent to a missing image, so that no agent runs.
func checkAPIServerBackFirst(t *testing.T, tc *testCluster) {
	o := tc.newOutage(t)
	tc.removeAgent(t)
	o.startOutage(t)
	o.mustNotStart(t, "node agent: ")
	o.endOutage(t)
	o.mustReportReason(t)
	o.restartClients(t)
	o.mustRun(t)
	o.mustCaptureAgain(t)
}

// removeAgent leaves the node without an agent until the test ends, like a failed update. The chain
// keeps Sluice's plugin.
func (tc *testCluster) removeAgent(t *testing.T) {
	t.Helper()
	agents := tc.client.AppsV1().DaemonSets(agentNamespace)
	d, err := agents.Get(t.Context(), agent, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	setImage := func(ctx context.Context, image string) error {
		patch := fmt.Sprintf(
			`{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, agent, image)
		_, err := agents.Patch(ctx, agent, types.StrategicMergePatchType, []byte(patch),
			metav1.PatchOptions{})
		return err
	}
	t.Cleanup(func() {
		// After the outage, the kubelet may reconnect only after 30 seconds.
		eventually(t, 2*readyTimeout, "the agent is ready again", func(ctx context.Context) error {
			if err := setImage(ctx, d.Spec.Template.Spec.Containers[0].Image); err != nil {
				return err
			}
			return tc.checkAgentsReady(ctx, agent)
		})
	})
	last := tc.agentPod(t)
	if err := setImage(t.Context(), "mesh.test/nowhere:e2e"); err != nil {
		t.Fatal(err)
	}
	// With several nodes, the update may begin on another node and stop there.
	tc.remove(t, last)
	// The kubelet may stop the container only after it has reconnected to the API server. The
	// DaemonSet controller may first have created another pod from the previous template.
	eventually(t, 2*readyTimeout, "no agent runs on the node", func(ctx context.Context) error {
		ids, err := tc.crictl(ctx, "ps", "--quiet", "--state", "running", "--name", "^"+agent+"$")
		if err == nil && ids != "" {
			err = errors.New("containers: " + ids)
		}
		return err
	})
	if chain := conflist(t, tc.node()); !lastPluginIs(t, chain, "sluice-cni") {
		t.Errorf("the plugin was removed from the chain: %s", chain)
	}
}

// mustNotStart waits until an ADD of the pod fails twice, and fails the test unless the plugin's
// log contains the reason and no sandbox of the pod is ready.
func (o *outage) mustNotStart(t *testing.T, reason string) {
	t.Helper()
	eventually(t, readyTimeout, "two ADDs fail", func(context.Context) error {
		output := o.failedADDs(t)
		if len(output) < 2 {
			return fmt.Errorf("%d failed ADDs", len(output))
		}
		for _, part := range []string{unreadableMessage(o.a), reason, "API server"} {
			if !strings.Contains(output[0], part) {
				t.Errorf("no %q in the message: %s", part, output[0])
			}
		}
		return nil
	})
	if now, err := o.sandbox(t.Context(), o.a); !errors.Is(err, errNoSandbox) {
		t.Errorf("sandbox %+v, error %v; want no ready sandbox", now, err)
	}
}

// failedADDs returns the errors and details of the failed ADDs in the plugin's log since the pod's
// sandbox was stopped. Earlier ADDs may have failed for other reasons.
func (o *outage) failedADDs(t *testing.T) (output []string) {
	t.Helper()
	log, err := os.ReadFile(o.node().Path(pluginLog))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		var entry struct {
			Msg, Pod, Namespace, Error, Details string
			Time                                time.Time
		}
		// The plugin may be writing the last line.
		if json.Unmarshal(line, &entry) != nil || entry.Error == "" || entry.Time.Before(o.begin) {
			continue
		}
		if entry.Msg == "ADD" && entry.Namespace == o.a.Namespace && entry.Pod == o.a.Name {
			output = append(output, entry.Error+"; "+entry.Details)
		}
	}
	return output
}

// mustReportReason fails the test unless kubectl describe shows why the pod did not start.
func (o *outage) mustReportReason(t *testing.T) {
	t.Helper()
	// The kubelet retries writing events every ten seconds.
	eventually(t, readyTimeout, "kubectl describe pod shows the reason", func(ctx context.Context) error {
		out, err := o.onNode(ctx, "kubectl", "describe", "pod", "--namespace", o.a.Namespace,
			o.a.Name)
		if err == nil && (!strings.Contains(out, "FailedCreatePodSandBox") ||
			!strings.Contains(out, unreadableMessage(o.a))) {
			err = errors.New(out)
		}
		return err
	})
}

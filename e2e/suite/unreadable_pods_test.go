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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pluginLog is what the plugin has logged on a node.
const pluginLog = "/run/sluice-cni/sluice-cni.log"

// unknown is how the message begins of a pod that nobody tells the plugin about.
func unknown(pod *corev1.Pod) string {
	return fmt.Sprintf("pod %s/%s cannot be read, so it is not known whether it is in the mesh",
		pod.Namespace, pod.Name)
}

// provesAgentBackFirst has an agent that hangs, and goes on while there is no API server.
func provesAgentBackFirst(t *testing.T, w *world) {
	o := w.newOutage(t)
	signal := w.agentSignals(t)
	o.stopAPIServer(t)
	// Where this ends early, the kubelet sees after a minute that the agent does not live, and
	// starts another.
	signal("STOP")
	o.startPod(t)
	o.mustNotStart(t, "node agent: no answer within")
	signal("CONT")
	o.mustRun(t)
	o.end(t)
	o.mustSayWhy(t)
	o.mustCaptureAgain(t)
}

// provesAPIServerBackFirst has an update of the agent to an image that no node has, so that there
// is no agent.
func provesAPIServerBackFirst(t *testing.T, w *world) {
	o := w.newOutage(t)
	w.takeAgentAway(t)
	o.start(t)
	o.mustNotStart(t, "node agent: ")
	o.end(t)
	o.mustRun(t)
	o.mustSayWhy(t)
	o.mustCaptureAgain(t)
}

// takeAgentAway leaves the node without an agent until the test ends, as an update does that goes
// wrong. The chain keeps our element.
func (w *world) takeAgentAway(t *testing.T) {
	t.Helper()
	agents := w.client.AppsV1().DaemonSets(agentNamespace)
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
		// Where the API server was away, controllers and kubelet may each look for it half a minute
		// later.
		eventually(t, 2*readyTime, "the agent is back", func(ctx context.Context) error {
			if err := setImage(ctx, d.Spec.Template.Spec.Containers[0].Image); err != nil {
				return err
			}
			return w.agentsReady(ctx, agent)
		})
	})
	last := w.agentPod(t)
	if err := setImage(t.Context(), "mesh.test/nowhere:e2e"); err != nil {
		t.Fatal(err)
	}
	// Of several nodes the update may begin with another, and does not go on.
	w.remove(t, last)
	if chain := conflist(t, w.node()); !hasElement(t, chain, "sluice-cni") {
		t.Errorf("with the agent our element has left the chain: %s", chain)
	}
}

// mustNotStart waits until an ADD for the pod fails, and fails the test unless the plugin has
// logged why, and nothing of the pod runs.
func (o *outage) mustNotStart(t *testing.T, why string) {
	t.Helper()
	eventually(t, readyTime, "an ADD fails", func(context.Context) error {
		said := o.failedADDs(t)
		if len(said) == 0 {
			return errors.New("none has failed")
		}
		for _, part := range []string{unknown(o.a), why, "API server"} {
			if !strings.Contains(said[0], part) {
				t.Errorf("the message does not say %q: %s", part, said[0])
			}
		}
		return nil
	})
	if now, err := o.sandbox(t.Context(), o.a); err == nil {
		t.Errorf("the pod has a sandbox that is ready: %+v", now)
	}
}

// failedADDs are the messages, with details, of all ADDs for the pod that have failed on the node.
func (o *outage) failedADDs(t *testing.T) (said []string) {
	t.Helper()
	log, err := os.ReadFile(o.node().Path(pluginLog))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		var entry struct{ Msg, Pod, Namespace, Error, Details string }
		// The plugin may be writing the last line.
		if json.Unmarshal(line, &entry) != nil || entry.Error == "" {
			continue
		}
		if entry.Msg == "ADD" && entry.Namespace == o.a.Namespace && entry.Pod == o.a.Name {
			said = append(said, entry.Error+"; "+entry.Details)
		}
	}
	return said
}

// mustSayWhy fails the test unless kubectl describe tells, of a pod that did not start at first,
// why.
func (o *outage) mustSayWhy(t *testing.T) {
	t.Helper()
	// The kubelet tries every ten seconds to write its events.
	eventually(t, readyTime, "kubectl describe pod tells why", func(ctx context.Context) error {
		out, err := o.onNode(ctx, "kubectl", "describe", "pod", "--namespace", o.a.Namespace,
			o.a.Name)
		if err == nil && (!strings.Contains(out, "FailedCreatePodSandBox") ||
			!strings.Contains(out, unknown(o.a))) {
			err = errors.New(out)
		}
		return err
	})
}

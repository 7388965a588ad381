package suite_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

var faults = part{name: "faults", proofs: []proof{
	{"rules that somebody flushes in a live pod come back", provesFlush},
	{"a pod whose ADD is under way starts captured when the agent is killed", provesAgentKilled},
	{"a pod that starts while the API server is away is captured", provesAPIServerAway},
	{
		"without API server and agent a pod does not start, says why, and is captured when the agent answers",
		provesAgentBackFirst,
	},
	{
		"without API server and agent a pod does not start, says why, and is captured when the API server is back",
		provesAPIServerBackFirst,
	},
	{
		"a conflicting writer that overwrites the chain finds our element back in it",
		provesConflictingWriter,
	},
	{"while the agent is updated pods start and stop, and each is captured", provesUpdate},
	{"after a reboot of the node all pods come back captured", provesReboot},
}}

// provesAgentKilled stops the agent, so that a pod's ADD waits for its answer, and kills it then.
func provesAgentKilled(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	b := w.run(t, inMesh(ns, "b"))[0]
	signal := w.agentSignals(t)
	signal("STOP")
	a := inMesh(ns, "a")
	w.create(t, a)
	eventually(t, readyTime, "the ADD waits", func(ctx context.Context) error {
		_, err := w.onNode(ctx, "pgrep", "-x", "sluice-cni")
		return err
	})
	signal("KILL")
	a = w.ready(t, a)
	w.mustCapture(t, a, b)
	if lines := w.warnings(t.Context(), a); strings.Contains(strings.Join(lines, " "),
		"FailedCreatePodSandBox") {
		t.Errorf("the first try failed: %s", lines)
	}
	eventually(t, readyTime, "the agent is back", func(ctx context.Context) error {
		return w.agentsReady(ctx, agent)
	})
}

// agentSignals returns what sends signals to the process that is the agent now.
func (w *world) agentSignals(t *testing.T) func(name string) {
	t.Helper()
	pid, err := w.containerPID(t.Context(), w.agentPod(t), agent)
	if err != nil {
		t.Fatal(err)
	}
	return func(name string) {
		t.Helper()
		if _, err := w.onNode(t.Context(), "kill", "-"+name, pid); err != nil {
			t.Fatal(err)
		}
	}
}

func provesConflictingWriter(t *testing.T, w *world) {
	const times = 5
	for i := range times {
		t.Logf("%d: back after at most %s", i+1,
			w.overwriteChain(t, w.chain()).Round(time.Millisecond))
	}
	provesTheMesh(t, w)
}

func provesFlush(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	pods := w.run(t, inMesh(ns, "a"), inMesh(ns, "b"))
	w.mustCapture(t, pods[0], pods[1])
	sandbox := w.mustSandbox(t, pods[0])
	if _, err := w.inNetns(t.Context(), sandbox, "nft", "flush", "ruleset"); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, 2*time.Minute, "the rules are back", func(ctx context.Context) error {
		_, err := w.inNetns(ctx, sandbox, "nft", "list", "table", "inet", "sluice")
		return err
	})
	t.Logf("back after at most %s", took.Round(time.Millisecond))
	w.mustCapture(t, pods[0], pods[1])
}

// provesUpdate updates the agent again and again while 50 pods come and go.
func provesUpdate(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	b := w.run(t, inMesh(ns, "b"))[0]
	begin := time.Now()
	c := w.startChurn(t, ns, b, 8)
	updates := 0
	for ended := 0; ended < 50; updates++ {
		values := append([]string{"upgrade"},
			w.chartArgs("--set", fmt.Sprintf("podAnnotations.round=r%d", updates))...)
		if _, err := w.helm(t.Context(), values...); err != nil {
			t.Error(err)
			break
		}
		_, ended = c.count()
	}
	c.end(t)
	t.Logf("%d updates in %s", updates, time.Since(begin).Round(time.Millisecond))
}

func provesReboot(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	pods := w.run(t, inMesh(ns, "a"), mesh.Inject(mesh.Pod(ns, "b"), mesh.Sidecar{Native: true}))
	begin := time.Now()
	if err := w.node().Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("the node is back after %s", time.Since(begin).Round(time.Millisecond))
	for i, p := range pods {
		pods[i] = w.restarted(t, p, begin)
		if err := failed(pods[i], mesh.ValidationContainer, 126); err == nil {
			t.Errorf("%s was started without rules", p.Name)
		}
	}
	t.Logf("its pods are ready after %s", time.Since(begin).Round(time.Millisecond))
	w.mustCapture(t, pods[0], pods[1])
	w.mustCapture(t, pods[1], pods[0])
	eventually(t, readyTime, "the agent is back", func(ctx context.Context) error {
		return w.agentsReady(ctx, agent)
	})
}

// restarted waits until a pod is ready whose containers have all been started since a time: until
// the kubelet has seen to it, the API server says what was before.
func (w *world) restarted(t *testing.T, pod *corev1.Pod, since time.Time) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, 2*readyTime, "pod "+pod.Name+" is started anew", func(ctx context.Context) (err error) {
		if found, err = w.get(ctx, pod); err != nil {
			return err
		}
		for _, c := range found.Status.ContainerStatuses {
			// The kubelet's times are whole seconds.
			if r := c.State.Running; r == nil ||
				r.StartedAt.Time.Before(since.Truncate(time.Second)) || !c.Ready {
				return errors.New(w.state(ctx, found))
			}
		}
		return nil
	})
	return found
}

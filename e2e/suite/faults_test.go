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

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

var faults = testGroup{name: "faults", tests: []groupTest{
	{"rules that are flushed in a running pod are restored", checkFlush},
	{"a pod starts captured when the agent is killed during ADD", checkAgentKilled},
	{"a pod that starts while the API server is unavailable is captured", checkAPIServerUnavailable},
	{
		"without API server and agent, a pod does not start, an event contains the reason, " +
			"and the pod is captured when the agent is available again",
		checkAgentBackFirst,
	},
	{
		"without API server and agent, a pod does not start, an event contains the reason, " +
			"and the pod is captured when the API server is available again",
		checkAPIServerBackFirst,
	},
	{
		"the plugin is added again after another program overwrites the chain",
		checkConflictingWriter,
	},
	{"pods that start while the agent is updated are captured", checkUpdate},
	{"after a reboot of the node, all pods start captured", checkReboot},
}}

// checkAgentKilled pauses the agent, so that ADD waits for the agent's response, and then kills the
// agent.
func checkAgentKilled(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	b := tc.run(t, meshPod(ns, "b"))[0]
	signal := tc.newAgentSignaler(t)
	signal("STOP")
	a := meshPod(ns, "a")
	tc.create(t, a)
	eventually(t, readyTimeout, "the ADD waits", func(ctx context.Context) error {
		_, err := tc.onNode(ctx, "pgrep", "-x", "sluice-cni")
		return err
	})
	signal("KILL")
	a = tc.waitReady(t, a)
	mustStartCaptured(t, a)
	tc.mustCapture(t, a, b)
	if lines := tc.warnings(t.Context(), a); strings.Contains(strings.Join(lines, " "),
		"FailedCreatePodSandBox") {
		t.Errorf("the first attempt to start the pod failed: %s", lines)
	}
	eventually(t, readyTimeout, "the agent is ready again", func(ctx context.Context) error {
		return tc.checkAgentsReady(ctx, agent)
	})
}

// newAgentSignaler returns a function that sends signals to the agent process that runs now. The
// function also works while the API server is unavailable; newAgentSignaler itself does not.
func (tc *testCluster) newAgentSignaler(t *testing.T) func(name string) {
	t.Helper()
	pid, err := tc.containerPID(t.Context(), tc.agentPod(t), agent)
	if err != nil {
		t.Fatal(err)
	}
	return func(name string) {
		t.Helper()
		if _, err := tc.onNode(t.Context(), "kill", "-"+name, pid); err != nil {
			t.Fatal(err)
		}
	}
}

// signalAgent sends a signal to the current agent process.
func (tc *testCluster) signalAgent(t *testing.T, name string) {
	t.Helper()
	tc.newAgentSignaler(t)(name)
}

func checkConflictingWriter(t *testing.T, tc *testCluster) {
	const times = 5
	for i := range times {
		t.Logf("%d: plugin restored after at most %s", i+1,
			tc.overwriteChain(t, tc.chain()).Round(time.Millisecond))
	}
	checkMesh(t, tc)
}

func checkFlush(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	pods := tc.run(t, meshPod(ns, "a"), meshPod(ns, "b"))
	tc.mustCapture(t, pods[0], pods[1])
	sandbox := tc.mustSandbox(t, pods[0])
	if _, err := tc.inNetns(t.Context(), sandbox, "nft", "flush", "ruleset"); err != nil {
		t.Fatal(err)
	}
	elapsed := eventually(t, 2*time.Minute, "the rules are restored", func(ctx context.Context) error {
		_, err := tc.inNetns(ctx, sandbox, "nft", "list", "table", "inet", "sluice")
		return err
	})
	t.Logf("rules restored after at most %s", elapsed.Round(time.Millisecond))
	tc.mustCapture(t, pods[0], pods[1])
}

// checkUpdate repeatedly updates the agent while at least 50 pods start and stop.
func checkUpdate(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	b := tc.run(t, meshPod(ns, "b"))[0]
	begin := time.Now()
	c := tc.startChurn(t, ns, b, 8)
	updates := 0
	for ended := 0; ended < 50; updates++ {
		args := append([]string{"upgrade"},
			tc.chartArgs("--set", fmt.Sprintf("podAnnotations.round=r%d", updates))...)
		if _, err := tc.helm(t.Context(), args...); err != nil {
			t.Error(err)
			break
		}
		_, ended = c.count()
	}
	c.end(t)
	t.Logf("%d updates in %s", updates, time.Since(begin).Round(time.Millisecond))
}

func checkReboot(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	pods := tc.run(t, meshPod(ns, "a"), mesh.Inject(mesh.Pod(ns, "b"), mesh.Sidecar{Native: true}))
	begin := time.Now()
	if err := tc.node().Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("the node is ready after %s", time.Since(begin).Round(time.Millisecond))
	for i, p := range pods {
		pods[i] = tc.waitRestarted(t, p, begin)
		if hasExited(pods[i], mesh.ValidationContainer, 126) {
			t.Errorf("%s started without rules", p.Name)
		}
	}
	t.Logf("the pods are ready after %s", time.Since(begin).Round(time.Millisecond))
	tc.mustCapture(t, pods[0], pods[1])
	tc.mustCapture(t, pods[1], pods[0])
	eventually(t, readyTimeout, "the agent is ready again", func(ctx context.Context) error {
		return tc.checkAgentsReady(ctx, agent)
	})
}

// waitRestarted waits until all containers of a pod are ready and have started after since. The
// start times are compared because, for some time after a reboot, the API server still reports the
// status from before the reboot.
func (tc *testCluster) waitRestarted(t *testing.T, pod *corev1.Pod, since time.Time) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, 2*readyTimeout, "pod "+pod.Name+" is restarted", func(ctx context.Context) (err error) {
		if found, err = tc.get(ctx, pod); err != nil {
			return err
		}
		for _, c := range found.Status.ContainerStatuses {
			// The kubelet's timestamps have a resolution of one second. A container that started in
			// the second of since has its old ID until it is restarted.
			if r := c.State.Running; r == nil || r.StartedAt.Time.Before(since.Truncate(time.Second)) ||
				!c.Ready || hasContainer(pod, c.ContainerID) {
				return errors.New(tc.describeState(ctx, found))
			}
		}
		return nil
	})
	return found
}

// hasContainer reports whether the status of the pod contains the container with the ID.
func hasContainer(pod *corev1.Pod, id string) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.ContainerID == id
	})
}

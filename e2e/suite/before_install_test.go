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
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

// beforeInstall contains the tests before the installation.
var beforeInstall = testGroup{name: "before the installation", withoutChart: true, tests: []groupTest{
	{"without the plugin, requests bypass the sidecar, and the checks for captured requests fail", checkBypassIsDetected},
	{
		"validation of a pod fails with exit code 126, and after the installation the pod is repaired in place",
		checkRepair,
	},
}}

func checkBypassIsDetected(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	pods := tc.run(t, uncapturedPod(ns, "a"), uncapturedPod(ns, "b"))
	ipv4, _ := addresses(pods[1])
	r := tc.mustReach(t, pods[0], url(ipv4.String(), mesh.Port), path.Expected{Server: "b"})
	if err := r.Check(path.Captured("b")); err == nil {
		t.Errorf("a request that no proxy forwarded counts as captured: %+v", r)
	}
	if _, err := tc.exec(t.Context(), pods[0], mesh.AppContainer, "mesh", "get", "-captured",
		url(ipv4.String(), mesh.Port)); err == nil {
		t.Error("mesh get -captured succeeds without the plugin")
	}
}

func checkRepair(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	a, b := meshPod(ns, "a"), meshPod(ns, "b")
	tc.create(t, a, b)
	for _, p := range []*corev1.Pod{a, b} {
		eventually(t, readyTimeout, "the validation of "+p.Name+" fails with 126", func(ctx context.Context) error {
			found, err := tc.get(ctx, p)
			if err != nil {
				return err
			}
			return checkFailed(found, mesh.ValidationContainer, 126)
		})
	}
	sandbox := tc.mustSandbox(t, a)
	tc.mustInstall(t)
	begin := time.Now()
	pods := []*corev1.Pod{tc.waitReady(t, a), tc.waitReady(t, b)}
	t.Logf("pods ready %s after the installation", time.Since(begin).Round(time.Millisecond))
	tc.mustCapture(t, pods[0], pods[1])
	if tc.mustSandbox(t, a) != sandbox {
		t.Error("the pod has a new sandbox: it was not repaired in place")
	}
}

// hasExited reports whether the last run of a container that has ended, or the run before it,
// exited with the code. The status of a pod contains no earlier runs.
func hasExited(pod *corev1.Pod, container string, code int32) bool {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for _, s := range []corev1.ContainerState{c.State, c.LastTerminationState} {
			if c.Name == container && s.Terminated != nil && s.Terminated.ExitCode == code {
				return true
			}
		}
	}
	return false
}

// mustStartCaptured fails the test if the validation of a new pod has failed: a pod that starts
// without rules is captured only after the agent has repaired it.
func mustStartCaptured(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	for _, s := range pod.Status.InitContainerStatuses {
		if s.Name == mesh.ValidationContainer && s.RestartCount > 0 {
			t.Errorf("%s of %s has restarted %d times, want 0: the pod started without rules", s.Name,
				pod.Name, s.RestartCount)
		}
	}
}

// TestHasExited tests statuses of a container that ran twice.
func TestHasExited(t *testing.T) {
	exited := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for _, row := range []struct {
		now, last corev1.ContainerState
		want      bool
	}{
		{exited(0), exited(126), true},
		{exited(126), corev1.ContainerState{}, true},
		{running, exited(126), true},
		{exited(0), corev1.ContainerState{}, false},
		{exited(1), exited(0), false},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{
			{Name: "other", State: exited(126)},
			{Name: mesh.ValidationContainer, State: row.now, LastTerminationState: row.last},
		}}}
		if got := hasExited(pod, mesh.ValidationContainer, 126); got != row.want {
			t.Errorf("state %+v, last state %+v: %t, want %t", row.now, row.last, got, row.want)
		}
	}
}

// checkFailed returns an error unless the container last exited with the code. The container may
// run again.
func checkFailed(pod *corev1.Pod, container string, code int32) error {
	for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if c.Name != container {
			continue
		}
		for _, s := range []corev1.ContainerState{c.State, c.LastTerminationState} {
			if s.Terminated != nil && s.Terminated.ExitCode == code {
				return nil
			}
			if s.Terminated != nil {
				return fmt.Errorf("%s exited with code %d: %s", container, s.Terminated.ExitCode,
					strings.TrimSpace(s.Terminated.Message))
			}
		}
	}
	return errors.New(container + " has not exited")
}

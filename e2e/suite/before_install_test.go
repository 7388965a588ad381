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
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

// bare is proved before anything is installed.
var bare = part{name: "before the installation", bare: true, proofs: []proof{
	{"a sidecar carries nothing, and that counts as a failure", provesThatABypassIsSeen},
	{"a hundred pods start at once without the plugin, for comparison", provesPlainCrowd},
	{
		"the validation of a pod fails with 126, and once the chart is installed the pod is repaired in place",
		provesRepair,
	},
}}

func provesThatABypassIsSeen(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	pods := w.run(t, leftAlone(ns, "a"), leftAlone(ns, "b"))
	four, _ := addresses(pods[1])
	r := w.mustGo(t, pods[0], url(four.String(), mesh.Port), path.Expected{Server: "b"})
	if err := r.Check(path.Captured("b")); err == nil {
		t.Errorf("a request that no proxy carried counts as captured: %+v", r)
	}
	if _, err := w.exec(t.Context(), pods[0], mesh.AppContainer, "mesh", "get", "-captured",
		url(four.String(), mesh.Port)); err == nil {
		t.Error("mesh get -captured succeeds without the plugin")
	}
}

func provesRepair(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	a, b := inMesh(ns, "a"), inMesh(ns, "b")
	w.create(t, a, b)
	for _, p := range []*corev1.Pod{a, b} {
		eventually(t, readyTime, "the validation of "+p.Name+" fails with 126", func(ctx context.Context) error {
			found, err := w.get(ctx, p)
			if err != nil {
				return err
			}
			return failed(found, mesh.ValidationContainer, 126)
		})
	}
	sandbox := w.mustSandbox(t, a)
	w.mustInstall(t)
	begin := time.Now()
	pods := []*corev1.Pod{w.ready(t, a), w.ready(t, b)}
	t.Logf("repaired and ready %s after the installation",
		time.Since(begin).Round(time.Millisecond))
	w.mustCapture(t, pods[0], pods[1])
	if w.mustSandbox(t, a) != sandbox {
		t.Error("the pod has another sandbox: it was not repaired in place")
	}
}

// failed is nil if a container of a pod has ended with a code, now or the last time.
func failed(pod *corev1.Pod, container string, code int32) error {
	for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if c.Name != container {
			continue
		}
		for _, s := range []corev1.ContainerState{c.State, c.LastTerminationState} {
			if s.Terminated != nil && s.Terminated.ExitCode == code {
				return nil
			}
			if s.Terminated != nil {
				return fmt.Errorf("%s ended with %d: %s", container, s.Terminated.ExitCode,
					strings.TrimSpace(s.Terminated.Message))
			}
		}
	}
	return errors.New(container + " has not ended")
}

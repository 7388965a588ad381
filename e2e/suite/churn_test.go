package suite_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// A podChurn continuously starts pods. Each sends a request, checks that it is captured, and ends.
type podChurn struct {
	tc     *testCluster
	ns     string
	target string        // URL that the pods request
	done   chan struct{} // closed when the last pod has ended

	mu             sync.Mutex
	errs           []error
	started, ended int
	stopped        bool // no further pods are started
}

// churnTimeout is the time limit for a pod.
var churnTimeout = timeFactor * 2 * time.Minute

// startChurn starts pods in the background until end is called, and runs parallel of them at the
// same time. Each requests the pod to.
func (tc *testCluster) startChurn(t *testing.T, ns string, to *corev1.Pod, parallel int) *podChurn {
	t.Helper()
	ipv4, _ := addresses(to)
	c := &podChurn{tc: tc, ns: ns, target: url(ipv4.String(), mesh.Port), done: make(chan struct{})}
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for name := c.next(); name != "" && t.Context().Err() == nil; name = c.next() {
				c.record(c.runPod(t.Context(), name))
			}
		})
	}
	go func() {
		workers.Wait()
		close(c.done)
	}()
	return c
}

// next returns the name of the next pod, or an empty string if no further pods are started.
func (c *podChurn) next() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return ""
	}
	c.started++
	return fmt.Sprintf("churn-%d", c.started)
}

// record records the end of a pod.
func (c *podChurn) record(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

// count returns the numbers of started and ended pods.
func (c *podChurn) count() (started, ended int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started, c.ended
}

// waitForMore waits until at least n pods that started after the call have ended.
func (c *podChurn) waitForMore(t *testing.T, n int) {
	t.Helper()
	started, _ := c.count()
	eventually(t, churnTimeout, "more pods start and end", func(context.Context) error {
		if _, ended := c.count(); ended < started+n {
			return fmt.Errorf("%d of %d", ended, started+n)
		}
		return nil
	})
}

// end stops starting pods, waits for the last one, and fails the test if a pod failed, was retried
// or was not captured.
func (c *podChurn) end(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	<-c.done
	for _, err := range c.errs {
		t.Error(err)
	}
}

// runPod creates a pod, and waits until its request and the pod have ended.
func (c *podChurn) runPod(ctx context.Context, name string) error {
	pod := mesh.Inject(mesh.Pod(c.ns, name), mesh.Sidecar{Native: true})
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.NodeName = c.tc.node().Name()
	app := &pod.Spec.Containers[0]
	app.Args, app.ReadinessProbe = []string{"get", "-captured", "-wait", wait, c.target}, nil
	pods := c.tc.client.CoreV1().Pods(c.ns)
	ctx, cancel := context.WithTimeout(ctx, churnTimeout)
	defer cancel()
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := c.waitSucceeded(ctx, pod); err != nil {
		return fmt.Errorf("pod %s: %w", name, err)
	}
	for _, line := range c.tc.warnings(ctx, pod) {
		// Warnings about the proxy's readiness are normal.
		if !strings.HasPrefix(line, "Unhealthy:") && !isFailureOfIstioCNI(line) {
			return fmt.Errorf("pod %s succeeded after a warning: %s", name, line)
		}
	}
	if err := pods.Delete(ctx, name, deleteNow); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// waitSucceeded waits until a pod has succeeded.
func (c *podChurn) waitSucceeded(ctx context.Context, pod *corev1.Pod) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("the pod has not started")
	for {
		found, err := c.tc.get(ctx, pod)
		switch {
		case err != nil && ctx.Err() == nil:
			last = err
		case err == nil && found.Status.Phase == corev1.PodSucceeded:
			return nil
		case err == nil:
			last = errors.New(c.tc.state(ctx, found))
			if found.Status.Phase == corev1.PodFailed {
				return last
			}
		}
		select {
		case <-ctx.Done():
			return last
		case <-tick.C:
		}
	}
}

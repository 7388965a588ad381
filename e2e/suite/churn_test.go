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

// A podChurn continuously starts pods. Each pod sends a request, checks that the request is
// captured, and ends.
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

// churnTimeout is the time limit for a pod from its creation to its end.
var churnTimeout = timeFactor * 2 * time.Minute

// startChurn starts pods in the background until end is called. Each of them sends a request to the
// pod server. parallel is the number of pods that run at the same time.
func (tc *testCluster) startChurn(t *testing.T, ns string, server *corev1.Pod, parallel int) *podChurn {
	t.Helper()
	ipv4, _ := addresses(server)
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

// next counts another started pod and returns its name, or returns an empty string if no further
// pods are started.
func (c *podChurn) next() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return ""
	}
	c.started++
	return fmt.Sprintf("churn-%d", c.started)
}

// record counts an ended pod, and keeps its error if err is not nil.
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
			return fmt.Errorf("%d of %d pods have ended", ended, started+n)
		}
		return nil
	})
}

// end stops starting pods, waits for the last one, and fails the test if a pod failed, had a
// warning event or was not captured.
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

// runPod creates a pod, waits until it has succeeded, and deletes it. A warning event of the pod is
// an error, because it means that the first attempt to start the pod failed.
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
		// The proxy's probes fail until it listens.
		if !strings.HasPrefix(line, "Unhealthy:") && !isFailureOfIstioCNI(line) {
			return fmt.Errorf("pod %s succeeded after a warning: %s", name, line)
		}
	}
	if err := pods.Delete(ctx, name, deleteNow); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// waitSucceeded waits until a pod has succeeded. When the pod has failed or ctx ends, it returns an
// error with the pod's last state.
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
			last = errors.New(c.tc.describeState(ctx, found))
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

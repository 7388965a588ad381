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

// A churn is pods that come and go, each of which proves by its first request that it is captured.
type churn struct {
	w      *world
	ns     string
	target string        // what they ask
	done   chan struct{} // closed when the last pod is gone

	mu             sync.Mutex
	errs           []error
	started, ended int
	stopped        bool // no more pods are started
}

// churnTime bounds the life of one pod.
var churnTime = slowness * 2 * time.Minute

// startChurn lets pods start and stop, so many at once, until its end, and returns at once.
func (w *world) startChurn(t *testing.T, ns string, to *corev1.Pod, atOnce int) *churn {
	t.Helper()
	four, _ := addresses(to)
	c := &churn{w: w, ns: ns, target: url(four.String(), mesh.Port), done: make(chan struct{})}
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for name := c.next(); name != "" && t.Context().Err() == nil; name = c.next() {
				c.note(c.live(t.Context(), name))
			}
		})
	}
	go func() {
		workers.Wait()
		close(c.done)
	}()
	return c
}

// next returns the name of the next pod; none if no more are to be started.
func (c *churn) next() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return ""
	}
	c.started++
	return fmt.Sprintf("churn-%d", c.started)
}

// note records the end of a pod.
func (c *churn) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

// count returns how many pods have been started, and how many have ended.
func (c *churn) count() (started, ended int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started, c.ended
}

// more waits until a number of pods have started and ended that start after the call.
func (c *churn) more(t *testing.T, number int) {
	t.Helper()
	before, _ := c.count()
	eventually(t, churnTime, "more pods start and end", func(context.Context) error {
		if _, ended := c.count(); ended < before+number {
			return fmt.Errorf("%d of %d", ended, before+number)
		}
		return nil
	})
}

// end waits for the last pod, and fails the test if one failed, had to be tried again or was not
// captured.
func (c *churn) end(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	<-c.done
	for _, err := range c.errs {
		t.Error(err)
	}
}

// live makes a pod and waits for its end, which is that of its one request.
func (c *churn) live(ctx context.Context, name string) error {
	pod := mesh.Inject(mesh.Pod(c.ns, name), mesh.Sidecar{Native: true})
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.NodeName = c.w.node().Name()
	app := &pod.Spec.Containers[0]
	app.Args, app.ReadinessProbe = []string{"get", "-captured", "-wait", wait, c.target}, nil
	pods := c.w.client.CoreV1().Pods(c.ns)
	ctx, cancel := context.WithTimeout(ctx, churnTime)
	defer cancel()
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := c.succeeded(ctx, pod); err != nil {
		return fmt.Errorf("pod %s: %w", name, err)
	}
	for _, line := range c.w.warnings(ctx, pod) {
		// That the proxy is not ready at once is how all pods begin.
		if !strings.HasPrefix(line, "Unhealthy:") && !isFailureOfIstioCNI(line) {
			return fmt.Errorf("pod %s has succeeded, but not at once: %s", name, line)
		}
	}
	if err := pods.Delete(ctx, name, deleteNow); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// succeeded waits until a pod has.
func (c *churn) succeeded(ctx context.Context, pod *corev1.Pod) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("it has not begun")
	for {
		found, err := c.w.get(ctx, pod)
		switch {
		case err != nil && ctx.Err() == nil:
			last = err
		case err == nil && found.Status.Phase == corev1.PodSucceeded:
			return nil
		case err == nil:
			last = errors.New(c.w.state(ctx, found))
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

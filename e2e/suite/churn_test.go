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
	target string // what they ask
	done   chan struct{}

	mu   sync.Mutex
	errs []error
}

// churnTime bounds the life of one pod.
var churnTime = slowness * 2 * time.Minute

// startChurn lets a number of pods start and stop, so many at once, and returns at once.
func (w *world) startChurn(t *testing.T, ns string, to *corev1.Pod, number, atOnce int) *churn {
	t.Helper()
	four, _ := addresses(to)
	c := &churn{w: w, ns: ns, target: url(four.String(), mesh.Port), done: make(chan struct{})}
	next := make(chan int, number)
	for i := range number {
		next <- i
	}
	close(next)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for i := range next {
				c.note(c.live(t.Context(), fmt.Sprintf("churn-%d", i)))
			}
		})
	}
	go func() {
		workers.Wait()
		close(c.done)
	}()
	return c
}

func (c *churn) note(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// end waits for the last pod, and fails the test if one failed, had to be tried again or was not
// captured.
func (c *churn) end(t *testing.T) {
	t.Helper()
	<-c.done
	for _, err := range c.errs {
		t.Error(err)
	}
}

// running reports whether a pod is still to come to its end.
func (c *churn) running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
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
		if !strings.HasPrefix(line, "Unhealthy:") {
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

package suite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

func provesAmbientRepair(t *testing.T, w *world) {
	w.mustBeAmbient(t)
	w.mustRunZtunnel(t)
	ns := w.newAmbientNamespace(t)
	pods := w.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"))
	four, _ := addresses(pods[1])
	w.annotated(t, "enabled", pods...)
	// Other tables of the node belong to kube-proxy and to the plugins.
	if _, err := w.onNode(t.Context(), "nft", "delete", "table", "inet", "sluice"); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, 5*time.Second, "the node's rules are back", w.hostRules)
	t.Logf("the node's rules are back after at most %s", took.Round(time.Millisecond))
	sandbox := w.mustSandbox(t, pods[0])
	if _, err := w.inNetns(t.Context(), sandbox, "nft", "flush", "ruleset"); err != nil {
		t.Fatal(err)
	}
	took = eventually(t, 2*time.Minute, "the pod's rules are back", func(ctx context.Context) error {
		_, err := w.inNetns(ctx, sandbox, "nft", "list", "table", "inet", "sluice")
		return err
	})
	t.Logf("the pod's rules are back after at most %s", took.Round(time.Millisecond))
	w.mustGo(t, pods[0], url(four.String(), mesh.Port), throughZtunnel("b"))
	for _, p := range pods {
		if err := w.probed(t.Context(), p, time.Now()); err != nil {
			t.Error(err)
		}
	}
}

func provesAmbientReplacement(t *testing.T, w *world) {
	w.mustBeAmbient(t)
	w.mustRunZtunnel(t)
	ns := w.newAmbientNamespace(t)
	pods := w.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"))
	w.annotated(t, "enabled", pods...)
	begin := time.Now()
	calls := w.startCalls(t, pods[0], pods[1], throughZtunnel("b"))
	step := func(what string) {
		calls.more(t, 3)
		t.Logf("%s: %s", what, time.Since(begin).Round(time.Millisecond))
	}
	step("before")

	w.agentSignals(t)("KILL")
	calls.more(t, 3)
	eventually(t, readyTime, "the agent is back", func(ctx context.Context) error {
		return w.agentsReady(ctx, agent)
	})
	step("the agent was killed")

	killed, err := w.ztunnels(t.Context())
	if err != nil || len(killed) != len(w.Nodes()) {
		t.Fatalf("%d pods of ztunnel: %v", len(killed), err)
	}
	pid, err := w.containerPID(t.Context(), &killed[0], mesh.ProxyContainer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.onNode(t.Context(), "kill", "-KILL", pid); err != nil {
		t.Fatal(err)
	}
	step("ztunnel was killed")

	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"restarted":%q}}}}}`, begin)
	if _, err := w.client.AppsV1().DaemonSets(agentNamespace).Patch(t.Context(), mesh.ZtunnelName,
		types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, readyTime, "another ztunnel is ready", func(ctx context.Context) error {
		return w.agentsReady(ctx, mesh.ZtunnelName)
	})
	step("ztunnel was replaced")

	w.mustUpgrade(t, "--set", "profile=ambient", "--set", "podAnnotations.round=next")
	step("the agent was replaced")
	c := w.run(t, mesh.Pod(ns, "c"))[0]
	calls.end(t)
	four, _ := addresses(c)
	w.mustGo(t, pods[0], url(four.String(), mesh.Port), throughZtunnel("c"))
	for _, p := range pods {
		if err := w.probed(t.Context(), p, begin); err != nil {
			t.Error(err)
		}
	}
}

// calls are requests one after the other, each of which must take a path.
type calls struct {
	stop func()
	done chan struct{} // closed when the last request has ended

	mu       sync.Mutex
	answered int
	errs     []error
}

// startCalls sends requests from a pod to another until the end of the calls.
func (w *world) startCalls(t *testing.T, from, to *corev1.Pod, way path.Expected) *calls {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &calls{stop: stop, done: make(chan struct{})}
	four, _ := addresses(to)
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			// A request that has begun is not interrupted.
			c.note(w.call(context.WithoutCancel(ctx), from, url(four.String(), mesh.Port), way))
		}
	}()
	t.Cleanup(func() {
		stop()
		<-c.done
	})
	return c
}

// call sends a request, and again while nobody answers.
func (w *world) call(ctx context.Context, from *corev1.Pod, url string, way path.Expected) error {
	text, err := w.exec(ctx, from, mesh.AppContainer, "mesh", "get", "-wait", wait, url)
	if err != nil {
		return err
	}
	var r path.Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	return r.Check(way)
}

func (c *calls) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered++
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

// more waits for so many requests that begin after the call.
func (c *calls) more(t *testing.T, number int) {
	t.Helper()
	c.mu.Lock()
	before := c.answered
	c.mu.Unlock()
	eventually(t, readyTime, "more requests", func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.answered <= before+number { // one may have begun before
			return fmt.Errorf("%d of %d", c.answered-before, number+1)
		}
		return nil
	})
}

// end ends the requests, and fails the test if one took another path or was not answered.
func (c *calls) end(t *testing.T) {
	t.Helper()
	c.stop()
	<-c.done
	for _, err := range c.errs {
		t.Error(err)
	}
	t.Logf("%d requests", c.answered)
}

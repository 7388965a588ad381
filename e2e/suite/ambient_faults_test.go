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

func checkAmbientRepair(t *testing.T, tc *testCluster) {
	tc.mustBeAmbient(t)
	tc.mustRunZtunnel(t)
	ns := tc.newAmbientNamespace(t)
	pods := tc.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"))
	ipv4, _ := addresses(pods[1])
	tc.waitAnnotated(t, "enabled", pods...)
	// Other tables of the node belong to kube-proxy and CNI plugins.
	if _, err := tc.onNode(t.Context(), "nft", "delete", "table", "inet", "sluice"); err != nil {
		t.Fatal(err)
	}
	elapsed := eventually(t, timeFactor*time.Minute, "the node's rules are restored", tc.checkHostRules)
	t.Logf("node's rules restored after at most %s", elapsed.Round(time.Millisecond))
	sandbox := tc.mustSandbox(t, pods[0])
	if _, err := tc.inNetns(t.Context(), sandbox, "nft", "flush", "ruleset"); err != nil {
		t.Fatal(err)
	}
	elapsed = eventually(t, timeFactor*time.Minute, "the pod's rules are restored", func(ctx context.Context) error {
		_, err := tc.inNetns(ctx, sandbox, "nft", "list", "table", "inet", "sluice")
		return err
	})
	t.Logf("pod's rules restored after at most %s", elapsed.Round(time.Millisecond))
	tc.mustReach(t, pods[0], url(ipv4.String(), mesh.Port), throughZtunnel("b"))
	for _, p := range pods {
		if err := tc.checkReady(t.Context(), p); err != nil {
			t.Error(err)
		}
	}
}

// checkAmbientReplacement kills the agent and ztunnel, and replaces both, while a pod sends
// requests.
func checkAmbientReplacement(t *testing.T, tc *testCluster) {
	tc.mustBeAmbient(t)
	tc.mustRunZtunnel(t)
	ns := tc.newAmbientNamespace(t)
	pods := tc.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"))
	tc.waitAnnotated(t, "enabled", pods...)
	begin := time.Now()
	requests := tc.startRequests(t, pods[0], pods[1], throughZtunnel("b"))
	logStep := func(description string) {
		requests.waitForMore(t, 3)
		t.Logf("%s: %s", description, time.Since(begin).Round(time.Millisecond))
	}
	logStep("the first requests have ended")

	tc.signalAgent(t, "KILL")
	requests.waitForMore(t, 3)
	eventually(t, readyTimeout, "the agent is ready again", func(ctx context.Context) error {
		return tc.checkAgentsReady(ctx, agent)
	})
	logStep("the agent was killed")

	pid, err := tc.containerPID(t.Context(), tc.podOn(t, tc.node(), ztunnelSelector),
		mesh.ProxyContainer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tc.onNode(t.Context(), "kill", "-KILL", pid); err != nil {
		t.Fatal(err)
	}
	logStep("ztunnel was killed")

	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"restarted":%q}}}}}`, begin)
	if _, err := tc.client.AppsV1().DaemonSets(agentNamespace).Patch(t.Context(), mesh.ZtunnelName,
		types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, readyTimeout, "another ztunnel is ready", func(ctx context.Context) error {
		return tc.checkAgentsReady(ctx, mesh.ZtunnelName)
	})
	logStep("ztunnel was replaced")

	ipv4, _ := addresses(pods[1])
	to := url(ipv4.String(), mesh.Port)
	before := tc.mustReach(t, pods[0], to, throughZtunnel("b"))
	tc.mustUpgrade(t, append(ambientArgs(), "--set", "podAnnotations.round=next")...)
	logStep("the agent was replaced")
	after := tc.mustReach(t, pods[0], to, throughZtunnel("b"))
	if !t.Failed() && before.Answer.Via[0].Upstream != after.Answer.Via[0].Upstream {
		t.Errorf("ztunnel opened a new HBONE connection (from %s, previously from %s), so it had "+
			"removed the pods from its state",
			after.Answer.Via[0].Upstream, before.Answer.Via[0].Upstream)
	}
	c := tc.run(t, mesh.Pod(ns, "c"))[0]
	requests.end(t)
	ipv4, _ = addresses(c)
	tc.mustReach(t, pods[0], url(ipv4.String(), mesh.Port), throughZtunnel("c"))
	for _, p := range pods {
		if err := tc.checkReadySince(t.Context(), p, begin); err != nil {
			t.Error(err)
		}
	}
}

// A requestLoop sends requests one after the other, and checks the path of each.
type requestLoop struct {
	stop func()
	done chan struct{} // closed when the last request has ended

	mu    sync.Mutex
	ended int // number of requests that have ended
	errs  []error
}

// startRequests starts a loop that sends requests from one pod to another. The loop stops when end
// is called or the test ends.
func (tc *testCluster) startRequests(t *testing.T, from, to *corev1.Pod, want path.Expected) *requestLoop {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	loop := &requestLoop{stop: stop, done: make(chan struct{})}
	ipv4, _ := addresses(to)
	go func() {
		defer close(loop.done)
		for ctx.Err() == nil {
			// end does not interrupt the last request.
			loop.record(tc.request(context.WithoutCancel(ctx), from, url(ipv4.String(), mesh.Port), want))
		}
	}()
	t.Cleanup(func() {
		stop()
		<-loop.done
	})
	return loop
}

// request sends a request, retries until there is a response, and returns an error unless the
// answered request took the path want.
func (tc *testCluster) request(ctx context.Context, from *corev1.Pod, url string, want path.Expected) error {
	text, err := tc.exec(ctx, from, mesh.AppContainer, "mesh", "get", "-wait", wait, url)
	if err != nil {
		return err
	}
	var r path.Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	return r.Check(want)
}

// record counts an ended request, and keeps its error if err is not nil.
func (l *requestLoop) record(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended++
	if err != nil {
		l.errs = append(l.errs, err)
	}
}

// waitForMore waits until at least n requests that started after the call have ended.
func (l *requestLoop) waitForMore(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	before := l.ended
	l.mu.Unlock()
	eventually(t, readyTimeout, "more requests have ended", func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.ended <= before+n { // one of them may have started before the call
			return fmt.Errorf("%d of %d requests have ended", l.ended-before, n+1)
		}
		return nil
	})
}

// end stops the loop, and fails the test if a request took another path or had no response.
func (l *requestLoop) end(t *testing.T) {
	t.Helper()
	l.stop()
	<-l.done
	for _, err := range l.errs {
		t.Error(err)
	}
	t.Logf("%d requests have ended", l.ended)
}

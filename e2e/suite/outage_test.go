package suite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/e2e/cluster"
	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// An outage is a test in which a pod starts while the API server is unavailable. The test stops the
// pod's sandbox, and the kubelet creates a new one.
type outage struct {
	*testCluster
	// a is the pod, and b is another pod, which a can reach.
	a, b   *corev1.Pod
	before sandbox   // the sandbox of pod a before the outage
	begin  time.Time // the time just before this sandbox was stopped
}

// newOutage creates the pods, and waits until the agent knows the pod a.
func (tc *testCluster) newOutage(t *testing.T) *outage {
	t.Helper()
	ns := tc.newNamespace(t)
	pods := tc.run(t, meshPod(ns, "a"), meshPod(ns, "b"))
	o := &outage{testCluster: tc, a: pods[0], b: pods[1]}
	o.mustBeKnown(t)
	return o
}

// mustBeKnown waits until the agent's cache contains the pod a. After an earlier outage, the agent
// may reconnect to the API server only after five seconds. During an outage, the agent cannot read
// a pod that is not in the cache.
func (o *outage) mustBeKnown(t *testing.T) {
	t.Helper()
	eventually(t, readyTimeout, "the agent knows the pod", func(ctx context.Context) error {
		_, err := o.exec(ctx, o.agentPod(t), agent, "rules", "check", "--pod", o.a.Namespace+"/"+
			o.a.Name)
		return err
	})
}

// startOutage stops the API server and the pod's sandbox.
func (o *outage) startOutage(t *testing.T) {
	t.Helper()
	o.stopAPIServer(t)
	o.recreateSandbox(t)
}

// stopAPIServer stops the API server.
func (o *outage) stopAPIServer(t *testing.T) {
	t.Helper()
	// Other tests need the API server, even if this one fails.
	t.Cleanup(func() {
		if err := o.node().StartService(context.Background(), cluster.APIServer); err != nil {
			t.Error(err)
		}
	})
	if err := o.node().StopService(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
}

// recreateSandbox stops the pod's sandbox; the kubelet then creates a new one.
func (o *outage) recreateSandbox(t *testing.T) {
	t.Helper()
	o.before, o.begin = o.mustSandbox(t, o.a), time.Now()
	if _, err := o.crictl(t.Context(), "stopp", o.before.id); err != nil {
		t.Fatal(err)
	}
}

// mustRun waits until the pod's application runs in a new sandbox, and fails the test unless the
// sandbox has rules.
func (o *outage) mustRun(t *testing.T) {
	t.Helper()
	var now sandbox
	elapsed := eventually(t, 2*readyTimeout, "the pod's application runs in a new sandbox", func(ctx context.Context) (err error) {
		if now, err = o.sandbox(ctx, o.a); err == nil && now.id == o.before.id {
			err = errors.New("the pod still has its old sandbox")
		}
		if err != nil {
			return err
		}
		out, err := o.crictl(ctx, "ps", "--quiet", "--state", "running", "--name",
			"^"+mesh.AppContainer+"$", "--pod", now.id)
		if err == nil && out == "" {
			err = errors.New("the application does not run")
		}
		return err
	})
	t.Logf("pod running after %s", elapsed.Round(time.Millisecond))
	if _, err := o.inNetns(t.Context(), now, "nft", "list", "table", "inet", "sluice"); err != nil {
		t.Errorf("the new sandbox has no rules: %v", err)
	}
}

// endOutage starts the API server, and waits until it responds.
func (o *outage) endOutage(t *testing.T) {
	t.Helper()
	if err := o.node().StartService(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	eventually(t, readyTimeout, "the API server responds", func(ctx context.Context) error {
		_, err := o.client.CoreV1().Nodes().Get(ctx, o.node().Name(), metav1.GetOptions{})
		return err
	})
}

// restartClients kills the kubelet and the controllers, which are then restarted, and waits until
// the kubelet knows the pods again. Otherwise each of them might take up to a minute to reconnect
// to the API server. Events that the kubelet has not written yet are lost. kube-proxy is not
// restarted: its first transaction fails if a Service has gained endpoints meanwhile, and is
// retried after 30 seconds. On kind, the controllers end by themselves when they cannot renew their
// leases, and the kubelet delays the restart of containers that were killed.
func (o *outage) restartClients(t *testing.T) {
	t.Helper()
	if onKind() {
		return
	}
	for _, service := range []string{cluster.ControllerManager, cluster.Scheduler, cluster.Kubelet} {
		if err := o.node().KillService(t.Context(), service); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 2*readyTimeout, "the kubelet knows the pods", func(ctx context.Context) error {
		pods, err := o.client.CoreV1().RESTClient().Get().Resource("nodes").Name(o.node().Name()).
			SubResource("proxy").Suffix("pods").DoRaw(ctx)
		if err == nil && (!bytes.Contains(pods, []byte(o.a.UID)) || !bytes.Contains(pods, []byte(o.b.UID))) {
			err = fmt.Errorf("no pod with the UIDs %s and %s", o.a.UID, o.b.UID)
		}
		return err
	})
}

// mustCaptureAgain fails the test unless the restarted pod is captured.
func (o *outage) mustCaptureAgain(t *testing.T) {
	t.Helper()
	a := o.waitRestarted(t, o.a, o.begin)
	if hasExited(a, mesh.ValidationContainer, 126) {
		t.Error("the new sandbox started without rules")
	}
	o.mustCapture(t, a, o.b)
}

func checkAPIServerUnavailable(t *testing.T, tc *testCluster) {
	o := tc.newOutage(t)
	o.startOutage(t)
	o.mustRun(t)
	o.endOutage(t)
	o.restartClients(t)
	o.mustCaptureAgain(t)
}

package suite_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/e2e/cluster"
	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// An outage is a time without an API server, in which a pod is started: the runtime ends its
// sandbox, and the kubelet, which knows the pod, makes it another.
type outage struct {
	*world
	// a is the pod, and b another that it can ask.
	a, b   *corev1.Pod
	before sandbox // a's
	begin  time.Time
}

// newOutage makes the pods.
func (w *world) newOutage(t *testing.T) *outage {
	t.Helper()
	ns := w.newNamespace(t)
	pods := w.run(t, inMesh(ns, "a"), inMesh(ns, "b"))
	o := &outage{world: w, a: pods[0], b: pods[1]}
	o.mustBeKnown(t)
	return o
}

// mustBeKnown waits until the agent knows the pod. After an earlier outage it looks for the API
// server within five seconds, and fetches pods one by one until then: from an API server that is
// away again it cannot.
func (o *outage) mustBeKnown(t *testing.T) {
	t.Helper()
	eventually(t, readyTime, "the agent knows the pod", func(ctx context.Context) error {
		_, err := o.exec(ctx, o.agentPod(t), agent, "rules", "check", "--pod", o.a.Namespace+"/"+
			o.a.Name)
		return err
	})
}

// start stops the API server, and has the pod be started.
func (o *outage) start(t *testing.T) {
	t.Helper()
	o.stopAPIServer(t)
	o.startPod(t)
}

// stopAPIServer is the first half of start.
func (o *outage) stopAPIServer(t *testing.T) {
	t.Helper()
	// Whatever becomes of this test, others need the API server.
	t.Cleanup(func() {
		if err := o.node().StartService(context.Background(), cluster.APIServer); err != nil {
			t.Error(err)
		}
	})
	if err := o.node().StopService(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
}

// startPod is the second.
func (o *outage) startPod(t *testing.T) {
	t.Helper()
	o.before, o.begin = o.mustSandbox(t, o.a), time.Now()
	if _, err := o.crictl(t.Context(), "stopp", o.before.id); err != nil {
		t.Fatal(err)
	}
}

// mustRun waits until the pod's application runs in a new sandbox, and fails the test unless that
// has rules.
func (o *outage) mustRun(t *testing.T) {
	t.Helper()
	var now sandbox
	// Where the API server is back, kube-proxy may look for it half a minute later, and know no way
	// to it until then.
	took := eventually(t, 2*readyTime, "the pod's application runs in a new sandbox", func(ctx context.Context) (err error) {
		if now, err = o.sandbox(ctx, o.a); err == nil && now.id == o.before.id {
			err = errors.New("the old sandbox is ready")
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
	t.Logf("the pod runs again after %s", took.Round(time.Millisecond))
	if _, err := o.inNetns(t.Context(), now, "nft", "list", "table", "inet", "sluice"); err != nil {
		t.Error(err)
	}
}

// end starts the API server, and returns when it answers.
func (o *outage) end(t *testing.T) {
	t.Helper()
	if err := o.node().StartService(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	eventually(t, readyTime, "the API server is back", func(ctx context.Context) error {
		_, err := o.client.CoreV1().Nodes().Get(ctx, o.node().Name(), metav1.GetOptions{})
		return err
	})
}

// mustCaptureAgain fails the test unless the pod, once the API server knows that it was started
// anew, is captured.
func (o *outage) mustCaptureAgain(t *testing.T) {
	t.Helper()
	o.mustCapture(t, o.restarted(t, o.a, o.begin), o.b)
}

func provesAPIServerAway(t *testing.T, w *world) {
	o := w.newOutage(t)
	o.start(t)
	o.mustRun(t)
	o.end(t)
	o.mustCaptureAgain(t)
}

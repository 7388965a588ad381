package suite_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/name"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
	"github.com/sluice-mesh/sluice/rules"
)

func checkAmbientTraffic(t *testing.T, w *testCluster) {
	w.mustBeAmbient(t)
	w.mustRunZtunnel(t)
	ns := w.newAmbientNamespace(t)
	pods := w.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"), meshPod(ns, "sidecar"),
		mesh.Pod(w.newNamespace(t), "outside"))
	a, b, sidecar, outside := pods[0], pods[1], pods[2], pods[3]
	four, six := addresses(b)
	first := w.mustReach(t, a, url(four.String(), mesh.Port), throughZtunnel("b"))
	again := w.mustReach(t, a, url(four.String(), mesh.OtherPort), throughZtunnel("b"))
	if !t.Failed() && first.Answer.Via[0].Upstream != again.Answer.Via[0].Upstream {
		t.Errorf("two requests use different HBONE connections, %s and %s",
			first.Answer.Via[0].Upstream, again.Answer.Via[0].Upstream)
	}
	w.mustReach(t, a, url(six.String(), mesh.Port), throughZtunnel("b"))
	s := w.newService(t, service(b, corev1.ServicePort{
		Port: 80, TargetPort: intstr.FromInt(mesh.Port),
	}))
	w.mustReach(t, a, url(s.Spec.ClusterIP, 80), throughZtunnel("b"))

	for _, c := range []struct {
		from, to *corev1.Pod
		want     path.Expected
	}{
		{b, a, throughZtunnel("a")},
		{a, sidecar, path.Captured("sidecar")},
		{sidecar, a, throughZtunnel("a")},
		{a, outside, path.Expected{Server: "outside", Outbound: true}},
		{outside, a, path.Expected{Server: "a", Inbound: true, Transparent: true}},
	} {
		four, _ := addresses(c.to)
		w.mustReach(t, c.from, url(four.String(), mesh.Port), c.want)
	}
	out, err := w.rules(t.Context(), t, "validate", "--pod", ns+"/a", "--probe-timeout", wait)
	if err != nil || !strings.Contains(out, "with the proxy that runs") ||
		!strings.Contains(out, "ok           ztunnel calls the application as a client") {
		t.Errorf("rules validate: %v\n%s", err, out)
	}
}

func checkAmbientProbes(t *testing.T, w *testCluster) {
	w.mustBeAmbient(t)
	w.mustRunZtunnel(t)
	ns := w.newAmbientNamespace(t)
	a := w.run(t, mesh.Pod(ns, "a"))[0]
	four, _ := addresses(a)
	r := w.report(t, a, fmt.Sprintf("http://%s/last/ready",
		net.JoinHostPort(four.String(), fmt.Sprint(mesh.Port))))
	if r.Answer == nil || len(r.Answer.Via) > 0 || r.Answer.Peer.Addr() != rules.DefaultProbeSourceIPv4() {
		t.Errorf("probe of the application: %+v, %s", r.Answer, r.Error)
	}
	for _, more := range [][]string{nil, {"-tcp"}, {"-server", "192.0.2.1:53"}} {
		var r name.Resolution
		w.ask(t, a, &r, append(append([]string{"mesh", "lookup", "-wait", wait}, more...),
			"kubernetes.default.svc.cluster.local.")...)
		if r.Proxy != "a" || len(r.Addresses) == 0 {
			t.Errorf("lookup %v: %+v, want proxy a", more, r)
		}
	}
}

func checkAmbientLabel(t *testing.T, w *testCluster) {
	w.mustBeAmbient(t)
	w.mustRunZtunnel(t)
	ns := w.newNamespace(t)
	pods := w.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"), meshPod(ns, "sidecar"))
	a, b, sidecar := pods[0], pods[1], pods[2]
	four, _ := addresses(b)
	to := url(four.String(), mesh.Port)
	w.mustReach(t, a, to, path.Expected{Server: "b"})
	w.labelNamespace(t, ns, "ambient")
	w.annotated(t, "enabled", a, b)
	w.mustReach(t, a, to, throughZtunnel("b"))
	w.mustReach(t, sidecar, to, throughZtunnel("b"))
	w.annotated(t, "", sidecar)
	w.labelNamespace(t, ns, "")
	w.annotated(t, "", a, b)
	w.mustReach(t, a, to, path.Expected{Server: "b"})
	if err := w.probed(t.Context(), b, time.Now()); err != nil {
		t.Error(err)
	}
}

// probed returns an error unless a pod has been ready since a time.
func (w *testCluster) probed(ctx context.Context, pod *corev1.Pod, since time.Time) error {
	found, err := w.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range found.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue &&
			c.LastTransitionTime.Time.Before(since) {
			return nil
		}
	}
	return fmt.Errorf("%s has not been ready since %s: %+v", pod.Name, since.Format(time.RFC3339),
		found.Status.Conditions)
}

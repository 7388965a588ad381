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

func checkAmbientTraffic(t *testing.T, tc *testCluster) {
	tc.mustBeAmbient(t)
	tc.mustRunZtunnel(t)
	ns := tc.newAmbientNamespace(t)
	pods := tc.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"), meshPod(ns, "sidecar"),
		mesh.Pod(tc.newNamespace(t), "outside"))
	a, b, sidecar, outside := pods[0], pods[1], pods[2], pods[3]
	ipv4, ipv6 := addresses(b)
	first := tc.mustReach(t, a, url(ipv4.String(), mesh.Port), throughZtunnel("b"))
	second := tc.mustReach(t, a, url(ipv4.String(), mesh.OtherPort), throughZtunnel("b"))
	if !t.Failed() && first.Answer.Via[0].Upstream != second.Answer.Via[0].Upstream {
		t.Errorf("two requests use different HBONE connections, %s and %s, want the same one",
			first.Answer.Via[0].Upstream, second.Answer.Via[0].Upstream)
	}
	tc.mustReach(t, a, url(ipv6.String(), mesh.Port), throughZtunnel("b"))
	s := tc.newService(t, service(b, corev1.ServicePort{
		Port: 80, TargetPort: intstr.FromInt(mesh.Port),
	}))
	tc.mustReach(t, a, url(s.Spec.ClusterIP, 80), throughZtunnel("b"))

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
		ipv4, _ := addresses(c.to)
		tc.mustReach(t, c.from, url(ipv4.String(), mesh.Port), c.want)
	}
	out, err := tc.rules(t.Context(), t, "validate", "--pod", ns+"/a", "--probe-timeout", wait)
	if err != nil || !strings.Contains(out, "with the proxy that runs") ||
		!strings.Contains(out, "ok           ztunnel calls the application as a client") {
		t.Errorf("rules validate, want a successful validation with ztunnel: error %v\n%s", err, out)
	}
}

func checkAmbientProbes(t *testing.T, tc *testCluster) {
	tc.mustBeAmbient(t)
	tc.mustRunZtunnel(t)
	ns := tc.newAmbientNamespace(t)
	a := tc.run(t, mesh.Pod(ns, "a"))[0]
	ipv4, _ := addresses(a)
	r := tc.report(t, a, fmt.Sprintf("http://%s/last/ready",
		net.JoinHostPort(ipv4.String(), fmt.Sprint(mesh.Port))))
	if r.Answer == nil || len(r.Answer.Via) > 0 || r.Answer.Peer.Addr() != rules.DefaultProbeSourceIPv4() {
		t.Errorf("the last probe, want no proxy and the source %s: answer %+v, error %q",
			rules.DefaultProbeSourceIPv4(), r.Answer, r.Error)
	}
	for _, extra := range [][]string{nil, {"-tcp"}, {"-server", "192.0.2.1:53"}} {
		var r name.Resolution
		tc.execJSON(t, a, &r, append(append([]string{"mesh", "lookup", "-wait", wait}, extra...),
			"kubernetes.default.svc.cluster.local.")...)
		if r.Proxy != "a" || len(r.Addresses) == 0 {
			t.Errorf("lookup %v: %+v, want proxy a and at least one address", extra, r)
		}
	}
}

func checkAmbientLabel(t *testing.T, tc *testCluster) {
	tc.mustBeAmbient(t)
	tc.mustRunZtunnel(t)
	ns := tc.newNamespace(t)
	pods := tc.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"), meshPod(ns, "sidecar"))
	a, b, sidecar := pods[0], pods[1], pods[2]
	ipv4, _ := addresses(b)
	to := url(ipv4.String(), mesh.Port)
	tc.mustReach(t, a, to, path.Expected{Server: "b"})
	tc.labelNamespace(t, ns, "ambient")
	tc.waitAnnotated(t, "enabled", a, b)
	tc.mustReach(t, a, to, throughZtunnel("b"))
	tc.mustReach(t, sidecar, to, throughZtunnel("b"))
	tc.waitAnnotated(t, "", sidecar)
	tc.labelNamespace(t, ns, "")
	tc.waitAnnotated(t, "", a, b)
	tc.mustReach(t, a, to, path.Expected{Server: "b"})
	if err := tc.checkReady(t.Context(), b); err != nil {
		t.Error(err)
	}
}

// checkReady returns an error unless the pod is ready.
func (tc *testCluster) checkReady(ctx context.Context, pod *corev1.Pod) error {
	return tc.checkReadySince(ctx, pod, time.Now())
}

// checkReadySince returns an error unless the pod is ready and became ready before the time since.
func (tc *testCluster) checkReadySince(ctx context.Context, pod *corev1.Pod, since time.Time) error {
	found, err := tc.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
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

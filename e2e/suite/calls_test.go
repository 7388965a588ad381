package suite_test

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

// wait is for how long a caller tries again while nobody answers: kube-proxy programs services up
// to a second late.
var wait = (slowness * 10 * time.Second).String()

// addresses are a pod's, by family; invalid where it has none.
func addresses(pod *corev1.Pod) (four, six netip.Addr) {
	for _, ip := range pod.Status.PodIPs {
		if a := netip.MustParseAddr(ip.IP); a.Is4() {
			four = a
		} else {
			six = a
		}
	}
	return four, six
}

// url is that of a port at an address.
func url(host string, port int) string {
	return "http://" + net.JoinHostPort(host, strconv.Itoa(port)) + "/"
}

// report asks a URL from a pod's application.
func (w *world) report(t *testing.T, from *corev1.Pod, url string) path.Report {
	t.Helper()
	var r path.Report
	w.ask(t, from, &r, "mesh", "get", "-wait", wait, url)
	return r
}

// mustGo asks a URL from a pod's application, and fails the test unless the request went the way.
func (w *world) mustGo(t *testing.T, from *corev1.Pod, url string, way path.Expected) path.Report {
	t.Helper()
	r := w.report(t, from, url)
	if err := r.Check(way); err != nil {
		t.Error(err)
	}
	return r
}

// mustCapture fails the test unless a request from one pod to the other's address of IPv4 is
// carried by both proxies.
func (w *world) mustCapture(t *testing.T, from, to *corev1.Pod) {
	t.Helper()
	four, _ := addresses(to)
	w.mustGo(t, from, url(four.String(), mesh.Port), path.Captured(to.Name))
}

// service makes a Service for a pod's application.
func service(pod *corev1.Pod, ports ...corev1.ServicePort) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Selector: pod.Labels, Ports: ports}}
	s.Name, s.Namespace = pod.Name, pod.Namespace
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].Name = fmt.Sprintf("port-%d", i)
	}
	return s
}

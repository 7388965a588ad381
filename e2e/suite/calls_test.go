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

// wait is the value of the flag -wait of the mesh commands: the time limit for the retries of a
// client. Retries are needed because kube-proxy may program a new Service a second late.
var wait = (timeFactor * 10 * time.Second).String()

// addresses returns the pod's addresses. An address is zero if the pod has no address of the
// family.
func addresses(pod *corev1.Pod) (ipv4, ipv6 netip.Addr) {
	for _, ip := range pod.Status.PodIPs {
		if a := netip.MustParseAddr(ip.IP); a.Is4() {
			ipv4 = a
		} else {
			ipv6 = a
		}
	}
	return ipv4, ipv6
}

// url returns the URL of a port of a host.
func url(host string, port int) string {
	return "http://" + net.JoinHostPort(host, strconv.Itoa(port)) + "/"
}

// report requests a URL from a pod's application container, and returns the client's report.
func (tc *testCluster) report(t *testing.T, from *corev1.Pod, url string) path.Report {
	t.Helper()
	var r path.Report
	tc.execJSON(t, from, &r, "mesh", "get", "-wait", wait, url)
	return r
}

// mustReach requests a URL from a pod's application container, fails the test unless the request
// takes the path want, and returns the client's report.
func (tc *testCluster) mustReach(t *testing.T, from *corev1.Pod, url string, want path.Expected) path.Report {
	t.Helper()
	r := tc.report(t, from, url)
	if err := r.Check(want); err != nil {
		t.Error(err)
	}
	return r
}

// mustCapture fails the test unless both proxies forward a request to the other pod's IPv4 address.
func (tc *testCluster) mustCapture(t *testing.T, from, to *corev1.Pod) {
	t.Helper()
	ipv4, _ := addresses(to)
	tc.mustReach(t, from, url(ipv4.String(), mesh.Port), path.Captured(to.Name))
}

// service returns a Service for a pod's application.
func service(pod *corev1.Pod, ports ...corev1.ServicePort) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Selector: pod.Labels, Ports: ports}}
	s.Name, s.Namespace = pod.Name, pod.Namespace
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].Name = fmt.Sprintf("port-%d", i)
	}
	return s
}

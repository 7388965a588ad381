package suite_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/name"
)

// captureDNS is the proxy's environment of pods whose DNS queries are captured.
var captureDNS = map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}

func provesDNS(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	dns := dnsServer(ns)
	s := w.newService(t, dnsService(dns))
	captured := withResolver(mesh.Inject(mesh.Pod(ns, "captured"), mesh.Sidecar{Env: captureDNS}),
		s)
	plain := withResolver(inMesh(ns, "plain"), s)
	w.run(t, dns, captured, plain)
	w.mustResolve(t, captured, "captured")
	w.mustResolve(t, captured, "captured", "-tcp")
	w.mustResolve(t, captured, "captured", "-server", "192.0.2.1:53")
	w.mustResolve(t, plain, "")
}

// dnsServer is a pod that answers queries for any name.
func dnsServer(ns string) *corev1.Pod {
	p := mesh.Pod(ns, "dns")
	p.Spec.Containers = append(p.Spec.Containers, mesh.Container("dns", "dns", "-at", ":5353"))
	return p
}

// dnsService is its Service.
func dnsService(server *corev1.Pod) *corev1.Service {
	return service(server,
		corev1.ServicePort{
			Port: 53, TargetPort: intstr.FromInt(5353), Protocol: corev1.ProtocolUDP,
		},
		corev1.ServicePort{
			Port: 53, TargetPort: intstr.FromInt(5353), Protocol: corev1.ProtocolTCP,
		})
}

// withResolver has a pod ask a Service for names.
func withResolver(pod *corev1.Pod, s *corev1.Service) *corev1.Pod {
	pod.Spec.DNSPolicy = corev1.DNSNone
	pod.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{s.Spec.ClusterIP}}
	return pod
}

// mustResolve fails the test unless a pod's query is answered by the server, and was carried by the
// proxy of a pod; none if that is empty. More are arguments of mesh lookup.
func (w *world) mustResolve(t *testing.T, from *corev1.Pod, proxy string, more ...string) {
	t.Helper()
	var r name.Resolution
	w.ask(t, from, &r,
		append(append([]string{"mesh", "lookup", "-wait", wait}, more...), "a.example.")...)
	if r.Server != "dns" || r.Proxy != proxy || len(r.Addresses) != 1 ||
		r.Addresses[0] != name.Answered4 {
		t.Errorf("lookup %v from %s: %+v, want it carried by %q", more, from.Name, r, proxy)
	}
}

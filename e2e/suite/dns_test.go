package suite_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/name"
)

// dnsCaptureEnv is the proxy environment that enables DNS capture.
var dnsCaptureEnv = map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}

func checkDNS(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	dns := dnsServer(ns)
	s := tc.newService(t, dnsService(dns))
	captured := withResolver(mesh.Inject(mesh.Pod(ns, "captured"), mesh.Sidecar{Env: dnsCaptureEnv}),
		s)
	plain := withResolver(meshPod(ns, "plain"), s)
	tc.run(t, dns, captured, plain)
	tc.mustResolve(t, captured, "captured")
	tc.mustResolve(t, captured, "captured", "-tcp")
	tc.mustResolve(t, captured, "captured", "-server", "192.0.2.1:53")
	tc.mustResolve(t, plain, "")
}

// dnsServer returns a pod with a DNS server that resolves every name.
func dnsServer(ns string) *corev1.Pod {
	p := mesh.Pod(ns, "dns")
	p.Spec.Containers = append(p.Spec.Containers, mesh.Container("dns", "dns", "-at", ":5353"))
	return p
}

// dnsService returns the Service of a DNS server.
func dnsService(server *corev1.Pod) *corev1.Service {
	return service(server,
		corev1.ServicePort{
			Port: 53, TargetPort: intstr.FromInt(5353), Protocol: corev1.ProtocolUDP,
		},
		corev1.ServicePort{
			Port: 53, TargetPort: intstr.FromInt(5353), Protocol: corev1.ProtocolTCP,
		})
}

// withResolver sets a pod's nameserver to the address of a Service.
func withResolver(pod *corev1.Pod, s *corev1.Service) *corev1.Pod {
	pod.Spec.DNSPolicy = corev1.DNSNone
	pod.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{s.Spec.ClusterIP}}
	return pod
}

// mustResolve fails the test unless the server responds to a pod's query, and the proxy of the pod
// named proxy has forwarded the query. An empty name means that no proxy has forwarded it. extra
// contains arguments of mesh lookup.
func (tc *testCluster) mustResolve(t *testing.T, from *corev1.Pod, proxy string, extra ...string) {
	t.Helper()
	var r name.Resolution
	tc.execJSON(t, from, &r,
		append(append([]string{"mesh", "lookup", "-wait", wait}, extra...), "a.example.")...)
	if r.Server != "dns" || r.Proxy != proxy || len(r.Addresses) != 1 ||
		r.Addresses[0] != name.Answered4 {
		t.Errorf("lookup %v from %s: %+v, want server dns, proxy %q and address %s", extra, from.Name, r,
			proxy, name.Answered4)
	}
}

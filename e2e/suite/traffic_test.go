package suite_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

var traffic = testGroup{name: "traffic", parallel: true, tests: []groupTest{
	{"requests to a Service pass through both proxies", checkServices},
	{
		"DNS queries to any server are captured, over UDP and TCP",
		checkDNS,
	},
	{"IPv6 is captured in dual-stack pods", checkDualStack},
	{"a native sidecar forwards requests of later init containers", checkNativeSidecar},
	{"TPROXY works and keeps the client's address", checkTProxy},
	{"a pod with its own user namespace is captured", checkUserNamespaces},
	{"requests to a hostPort pass through the proxy", checkHostPorts},
	{
		"the kubelet's probes of the application pass through the proxy, and probes of the proxy do not",
		checkProbes,
	},
}}

func checkServices(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	pods := tc.run(t, meshPod(ns, "a"), meshPod(ns, "b"))
	s := tc.newService(t, service(pods[1], corev1.ServicePort{
		Port: 80, TargetPort: intstr.FromInt(mesh.Port),
	}))
	tc.mustReach(t, pods[0], url(s.Spec.ClusterIP, 80), path.Captured("b"))
}

// newService creates a Service, and returns the created object, which contains its address.
func (tc *testCluster) newService(t *testing.T, s *corev1.Service) *corev1.Service {
	t.Helper()
	made, err := tc.client.CoreV1().Services(s.Namespace).Create(t.Context(), s,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func checkDualStack(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	dual := mesh.Sidecar{Env: dualStackEnv}
	pods := tc.run(t, mesh.Inject(mesh.Pod(ns, "a"), dual), mesh.Inject(mesh.Pod(ns, "b"), dual),
		meshPod(ns, "only-ipv4"))
	ipv4, ipv6 := addresses(pods[1])
	if !ipv4.IsValid() || !ipv6.IsValid() {
		t.Fatalf("addresses %s and %s, want both families", ipv4, ipv6)
	}
	tc.mustReach(t, pods[0], url(ipv4.String(), mesh.Port), path.Captured("b"))
	tc.mustReach(t, pods[0], url(ipv6.String(), mesh.Port), path.Captured("b"))
	// As in Istio, a pod without the variable is captured only in the family of its first address.
	tc.mustReach(t, pods[2], url(ipv6.String(), mesh.Port), path.Expected{Server: "b", Inbound: true})
}

func checkNativeSidecar(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	b := tc.run(t, mesh.Inject(mesh.Pod(ns, "b"), mesh.Sidecar{Native: true}))[0]
	ipv4, _ := addresses(b)
	a := mesh.Pod(ns, "a")
	a.Spec.InitContainers = []corev1.Container{
		mesh.Container("init", "get", "-captured", "-wait", wait, url(ipv4.String(), mesh.Port)),
	}
	tc.mustCapture(t, tc.run(t, mesh.Inject(a, mesh.Sidecar{Native: true}))[0], b)
}

func checkTProxy(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	dual := mesh.Sidecar{TProxy: true, Env: dualStackEnv}
	pods := tc.run(t, mesh.Inject(mesh.Pod(ns, "a"), dual), mesh.Inject(mesh.Pod(ns, "b"), dual))
	want := path.Captured("b")
	want.Transparent = true
	ipv4, ipv6 := addresses(pods[1])
	tc.mustReach(t, pods[0], url(ipv4.String(), mesh.Port), want)
	tc.mustReach(t, pods[0], url(ipv6.String(), mesh.Port), want)
}

func checkUserNamespaces(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	a, b := meshPod(ns, "a"), meshPod(ns, "b")
	a.Spec.HostUsers, b.Spec.HostUsers = new(bool), new(bool)
	pods := tc.run(t, a, b)
	pid, err := tc.containerPID(t.Context(), pods[0], mesh.AppContainer)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := tc.onNode(t.Context(), "cat", "/proc/"+pid+"/uid_map"); err != nil ||
		strings.Fields(ids)[1] == "0" {
		t.Errorf("the pod is in the node's user namespace: %s: error %v", ids, err)
	}
	tc.mustCapture(t, pods[0], pods[1])
}

func checkHostPorts(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	const hostPort = 18080
	b := meshPod(ns, "b")
	for i := range b.Spec.Containers {
		if c := &b.Spec.Containers[i]; c.Name == mesh.AppContainer {
			c.Ports = []corev1.ContainerPort{{ContainerPort: mesh.Port, HostPort: hostPort}}
		}
	}
	pods := tc.run(t, meshPod(ns, "a"), b, hostNetworkPod(ns))
	node := pods[0].Status.HostIP
	// The plugin portmap masquerades connections from pods of the same node.
	tc.mustReach(t, pods[0], url(node,
		hostPort), path.Expected{Server: "b", Outbound: true, Inbound: true, Masqueraded: true})
	tc.mustReach(t, pods[2], url(node, hostPort), path.Expected{Server: "b", Inbound: true})
}

// hostNetworkPod returns a pod in the host network.
func hostNetworkPod(ns string) *corev1.Pod {
	p := mesh.Pod(ns, "host")
	p.Spec.HostNetwork = true
	app := &p.Spec.Containers[0]
	app.Args, app.ReadinessProbe = []string{"serve", "-tcp", "18090"}, nil
	return p
}

func checkProbes(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	pods := tc.run(t, mesh.Pod(ns, "outside"), meshPod(ns, "b"))
	outside, b := pods[0], pods[1]
	ipv4, _ := addresses(b)
	caller, _ := addresses(outside)
	lastAnswer := func(port int, probePath string) *path.Answer {
		r := tc.report(t, outside,
			fmt.Sprintf("http://%s/last%s", net.JoinHostPort(ipv4.String(), fmt.Sprint(port)), probePath))
		if r.Answer == nil {
			t.Fatalf("no probe of %s: %s", probePath, r.Error)
		}
		return r.Answer
	}
	app := lastAnswer(mesh.Port, "/ready")
	if len(app.Via) != 1 || app.Via[0].Proxy != "b" || app.Via[0].Direction != path.Inbound ||
		app.Peer != app.Via[0].Upstream ||
		app.Via[0].Peer.Addr() == caller {
		t.Errorf("probe of the application, want only the inbound proxy of b: %+v", app)
	}
	if proxy := lastAnswer(15021, "/healthz/ready"); len(proxy.Via) != 0 || proxy.Peer.Addr() == caller {
		t.Errorf("probe of the proxy, want no proxy and the kubelet's address: %+v", proxy)
	}
}

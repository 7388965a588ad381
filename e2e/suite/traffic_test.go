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

var traffic = part{name: "traffic", together: true, proofs: []proof{
	{"a Service leads through both proxies", provesServices},
	{
		"DNS queries go to the agent beside the proxy, by UDP and TCP, whatever server they are sent to",
		provesDNS,
	},
	{"IPv6 is captured in pods of both families", provesDualStack},
	{"a native sidecar carries what the init containers after it send", provesNativeSidecar},
	{"TPROXY carries requests and keeps the caller's address", provesTProxy},
	{"a pod in a user namespace of its own is captured", provesUserNamespaces},
	{"a hostPort leads to the proxy", provesHostPorts},
	{
		"the kubelet's probes reach the application through the proxy, and the proxy's own past it",
		provesProbes,
	},
}}

func provesServices(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	pods := w.run(t, inMesh(ns, "a"), inMesh(ns, "b"))
	s := w.newService(t, service(pods[1], corev1.ServicePort{
		Port: 80, TargetPort: intstr.FromInt(mesh.Port),
	}))
	w.mustGo(t, pods[0], url(s.Spec.ClusterIP, 80), path.Captured("b"))
}

func (w *world) newService(t *testing.T, s *corev1.Service) *corev1.Service {
	t.Helper()
	made, err := w.client.CoreV1().Services(s.Namespace).Create(t.Context(), s,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func provesDualStack(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	dual := mesh.Sidecar{Env: dualStack}
	pods := w.run(t, mesh.Inject(mesh.Pod(ns, "a"), dual), mesh.Inject(mesh.Pod(ns, "b"), dual),
		inMesh(ns, "four"))
	four, six := addresses(pods[1])
	if !four.IsValid() || !six.IsValid() {
		t.Fatalf("the pod's addresses are %s and %s: this cluster has not both families", four, six)
	}
	w.mustGo(t, pods[0], url(four.String(), mesh.Port), path.Captured("b"))
	w.mustGo(t, pods[0], url(six.String(), mesh.Port), path.Captured("b"))
	// As Istio's: without the variable, the family of the first address counts.
	w.mustGo(t, pods[2], url(six.String(), mesh.Port), path.Expected{Server: "b", Inbound: true})
}

func provesNativeSidecar(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	b := w.run(t, mesh.Inject(mesh.Pod(ns, "b"), mesh.Sidecar{Native: true}))[0]
	four, _ := addresses(b)
	a := mesh.Pod(ns, "a")
	a.Spec.InitContainers = []corev1.Container{
		mesh.Container("init", "get", "-captured", "-wait", wait, url(four.String(), mesh.Port)),
	}
	w.mustCapture(t, w.run(t, mesh.Inject(a, mesh.Sidecar{Native: true}))[0], b)
}

func provesTProxy(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	dual := mesh.Sidecar{TProxy: true, Env: dualStack}
	pods := w.run(t, mesh.Inject(mesh.Pod(ns, "a"), dual), mesh.Inject(mesh.Pod(ns, "b"), dual))
	way := path.Captured("b")
	way.Transparent = true
	four, six := addresses(pods[1])
	w.mustGo(t, pods[0], url(four.String(), mesh.Port), way)
	w.mustGo(t, pods[0], url(six.String(), mesh.Port), way)
}

func provesUserNamespaces(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	a, b := inMesh(ns, "a"), inMesh(ns, "b")
	a.Spec.HostUsers, b.Spec.HostUsers = new(bool), new(bool)
	pods := w.run(t, a, b)
	pid, err := w.containerPID(t.Context(), pods[0], mesh.AppContainer)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := w.onNode(t.Context(), "cat", "/proc/"+pid+"/uid_map"); err != nil ||
		strings.Fields(ids)[1] == "0" {
		t.Errorf("the pod has the node's users: %s: %v", ids, err)
	}
	w.mustCapture(t, pods[0], pods[1])
}

func provesHostPorts(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	const hostPort = 18080
	b := inMesh(ns, "b")
	for i := range b.Spec.Containers {
		if c := &b.Spec.Containers[i]; c.Name == mesh.AppContainer {
			c.Ports = []corev1.ContainerPort{{ContainerPort: mesh.Port, HostPort: hostPort}}
		}
	}
	pods := w.run(t, inMesh(ns, "a"), b, w.onHost(ns))
	node := pods[0].Status.HostIP
	// The plugin portmap masquerades what comes from pods of the same node.
	w.mustGo(t, pods[0], url(node,
		hostPort), path.Expected{Server: "b", Outbound: true, Inbound: true, Masqueraded: true})
	w.mustGo(t, pods[2], url(node, hostPort), path.Expected{Server: "b", Inbound: true})
}

// onHost is a pod in the node's network.
func (w *world) onHost(ns string) *corev1.Pod {
	p := mesh.Pod(ns, "host")
	p.Spec.HostNetwork = true
	app := &p.Spec.Containers[0]
	app.Args, app.ReadinessProbe = []string{"serve", "-tcp", "18090"}, nil
	return p
}

func provesProbes(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	pods := w.run(t, mesh.Pod(ns, "outside"), inMesh(ns, "b"))
	outside, b := pods[0], pods[1]
	four, _ := addresses(b)
	caller, _ := addresses(outside)
	last := func(port int, of string) *path.Answer {
		r := w.report(t, outside,
			fmt.Sprintf("http://%s/last%s", net.JoinHostPort(four.String(), fmt.Sprint(port)), of))
		if r.Answer == nil {
			t.Fatalf("%s was not probed: %s", of, r.Error)
		}
		return r.Answer
	}
	app := last(mesh.Port, "/ready")
	if len(app.Via) != 1 || app.Via[0].Proxy != "b" || app.Via[0].Direction != path.Inbound ||
		app.Peer != app.Via[0].Upstream ||
		app.Via[0].Peer.Addr() == caller {
		t.Errorf("the application was probed like this: %+v", app)
	}
	if proxy := last(15021, "/healthz/ready"); len(proxy.Via) != 0 || proxy.Peer.Addr() == caller {
		t.Errorf("the proxy was probed like this: %+v", proxy)
	}
}

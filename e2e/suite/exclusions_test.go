package suite_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

var exceptions = part{name: "exceptions", together: true, proofs: []proof{
	{"excluded ports go past the proxies, and others do not", provesExcludedPorts},
	{"excluded prefixes go past the proxy, and others do not", provesExcludedPrefixes},
	{"with prefixes to include only these are captured", provesIncludedPrefixes},
	{"UDP other than DNS goes past the proxy", provesUDP},
	{"a pod that opts out by its label is left alone", provesOptOut},
	{"a pod in an excluded namespace is left alone", provesExcludedNamespaces},
	{"a pod in the node's network is left alone, and so is the node", provesHostNetwork},
	{
		"an init container before the proxy is refused, unless it runs as the proxy's user",
		provesInitContainers,
	},
	{
		"a wrong annotation keeps the pod from starting, and its event says what is wrong",
		provesWrongAnnotations,
	},
}}

func provesExcludedPorts(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	a, b, c := mesh.Pod(ns, "a"), mesh.Pod(ns, "b"), mesh.Pod(ns, "c")
	a.Annotations[mesh.ExcludeOutboundPorts] = "9090"
	b.Annotations[mesh.ExcludeInboundPorts] = "9090"
	pods := w.run(t, mesh.Inject(a, mesh.Sidecar{}), mesh.Inject(b, mesh.Sidecar{}),
		mesh.Inject(c, mesh.Sidecar{}))
	toB, _ := addresses(pods[1])
	toC, _ := addresses(pods[2])
	w.mustGo(t, pods[0], url(toC.String(), mesh.OtherPort), path.Expected{Server: "c", Inbound: true})
	w.mustGo(t, pods[2], url(toB.String(), mesh.OtherPort), path.Expected{Server: "b", Outbound: true})
	w.mustGo(t, pods[0], url(toB.String(), mesh.OtherPort), path.Expected{Server: "b"})
	w.mustCapture(t, pods[0], pods[1])
}

func provesExcludedPrefixes(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	servers := w.run(t, inMesh(ns, "b"), inMesh(ns, "c"))
	toB, _ := addresses(servers[0])
	a := mesh.Pod(ns, "a")
	a.Annotations[mesh.ExcludeRanges] = toB.String() + "/32,192.0.2.0/24"
	a = w.run(t, mesh.Inject(a, mesh.Sidecar{}))[0]
	w.mustGo(t, a, url(toB.String(), mesh.Port), path.Expected{Server: "b", Inbound: true})
	w.mustCapture(t, a, servers[1])
}

func provesIncludedPrefixes(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	b := w.run(t, inMesh(ns, "b"))[0]
	s := w.newService(t, service(b, corev1.ServicePort{
		Port: 80, TargetPort: intstr.FromInt(mesh.Port),
	}))
	a := mesh.Pod(ns, "a")
	a.Annotations[mesh.IncludeRanges] = s.Spec.ClusterIP + "/32"
	a = w.run(t, mesh.Inject(a, mesh.Sidecar{}))[0]
	w.mustGo(t, a, url(s.Spec.ClusterIP, 80), path.Captured("b"))
	toB, _ := addresses(b)
	w.mustGo(t, a, url(toB.String(), mesh.Port), path.Expected{Server: "b", Inbound: true})
}

func provesUDP(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	pods := w.run(t, inMesh(ns, "a"), inMesh(ns, "b"))
	four, _ := addresses(pods[1])
	var r path.Report
	w.ask(t, pods[0], &r, "mesh", "udp", "-wait", wait, four.String()+":7000")
	if err := r.Check(path.Expected{Server: "b"}); err != nil {
		t.Error(err)
	}
}

// leftAlone is a pod with a proxy that gets no traffic: without the validation, which would fail.
func leftAlone(ns, name string) *corev1.Pod {
	p := inMesh(ns, name)
	p.Spec.InitContainers = nil
	return p
}

// mustPassBy fails the test unless a request from a pod with a proxy goes past it, and is found to
// have.
func (w *world) mustPassBy(t *testing.T, from, to *corev1.Pod) {
	t.Helper()
	four, _ := addresses(to)
	r := w.mustGo(t, from, url(four.String(), mesh.Port), path.Expected{Server: to.Name, Inbound: true})
	if err := r.Check(path.Captured(to.Name)); err == nil ||
		!strings.Contains(err.Error(), "the caller's proxy was bypassed") {
		t.Errorf("a request past the proxy counts as captured: %v", err)
	}
}

func provesOptOut(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	a := leftAlone(ns, "a")
	a.Labels[mesh.InjectKey] = "false"
	pods := w.run(t, a, inMesh(ns, "b"))
	w.mustPassBy(t, pods[0], pods[1])
}

func provesExcludedNamespaces(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	a := leftAlone("kube-system", "sluice-e2e")
	t.Cleanup(func() {
		_ = w.client.CoreV1().Pods(a.Namespace).Delete(context.Background(), a.Name, deleteNow)
	})
	pods := w.run(t, a, inMesh(ns, "b"))
	w.mustPassBy(t, pods[0], pods[1])
}

func provesHostNetwork(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	host := w.onHost(ns)
	// The runtime does not ask plugins about it, whatever it looks like.
	host.Annotations[mesh.StatusAnnotation] = "{}"
	pods := w.run(t, host, inMesh(ns, "b"))
	four, _ := addresses(pods[1])
	w.mustGo(t, pods[0], url(four.String(), mesh.Port), path.Expected{Server: "b", Inbound: true})
	tables, err := w.onNode(t.Context(), "nft", "list", "tables")
	if err != nil || strings.Contains(tables, "sluice") {
		t.Errorf("the node has tables %s: %v", tables, err)
	}
}

func provesInitContainers(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	b := w.run(t, inMesh(ns, "b"))[0]
	four, _ := addresses(b)
	a := mesh.Pod(ns, "a")
	user, proxy := mesh.Container("as-a-user", "get", url(four.String(), mesh.Port)),
		mesh.Container("as-the-proxy", "get", url(four.String(), mesh.Port))
	proxy.SecurityContext.RunAsUser, proxy.SecurityContext.RunAsGroup = new(int64(mesh.ProxyID)),
		new(int64(mesh.ProxyID))
	a.Spec.InitContainers = []corev1.Container{user, proxy}
	a = w.run(t, mesh.Inject(a, mesh.Sidecar{}))[0]

	if r := w.said(t, a, user.Name); r.Answer != nil || !strings.Contains(r.Error, "refused") {
		t.Errorf("before the proxy: %+v", r)
	}
	if err := w.said(t, a, proxy.Name).Check(path.Expected{Server: "b", Inbound: true}); err != nil {
		t.Error(err)
	}
	w.mustCapture(t, a, b)
}

// said is the report that a container has printed.
func (w *world) said(t *testing.T, pod *corev1.Pod, container string) (r path.Report) {
	t.Helper()
	text, err := w.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name,
		&corev1.PodLogOptions{Container: container}).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%s: %q: %v", container, text, err)
	}
	return r
}

func provesWrongAnnotations(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	a := mesh.Pod(ns, "a")
	a.Annotations[mesh.ExcludeOutboundPorts] = "80a"
	w.create(t, mesh.Inject(a, mesh.Sidecar{}))
	eventually(t, readyTime, "an event names the annotation", func(ctx context.Context) error {
		text := strings.Join(w.warnings(ctx, a), "\n")
		for _, part := range []string{
			"FailedCreatePodSandBox", mesh.ExcludeOutboundPorts, `"80a"`,
		} {
			if !strings.Contains(text, part) {
				return errors.New("events: " + text)
			}
		}
		return nil
	})
}

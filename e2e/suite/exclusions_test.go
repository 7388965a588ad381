package suite_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

var exceptions = testGroup{name: "exceptions", parallel: true, tests: []groupTest{
	{"connections to excluded ports bypass the proxies, and others do not", checkExcludedPorts},
	{"connections to excluded prefixes bypass the proxy, and others do not", checkExcludedPrefixes},
	{"only connections to included prefixes are captured", checkIncludedPrefixes},
	{"UDP other than DNS bypasses the proxy", checkUDP},
	{"a pod that opts out with its label is not redirected", checkOptOut},
	{"a pod in an excluded namespace is not redirected", checkExcludedNamespaces},
	{"a pod in the host network and the node are not redirected", checkHostNetwork},
	{
		"connections of an init container that runs before the proxy are refused, unless its user is the proxy's",
		checkInitContainers,
	},
	{
		"a pod with an invalid annotation does not start, and an event reports the error",
		checkInvalidAnnotation,
	},
}}

func checkExcludedPorts(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	a, b, c := mesh.Pod(ns, "a"), mesh.Pod(ns, "b"), mesh.Pod(ns, "c")
	a.Annotations[mesh.ExcludeOutboundPorts] = "9090"
	b.Annotations[mesh.ExcludeInboundPorts] = "9090"
	pods := tc.run(t, mesh.Inject(a, mesh.Sidecar{}), mesh.Inject(b, mesh.Sidecar{}),
		mesh.Inject(c, mesh.Sidecar{}))
	toB, _ := addresses(pods[1])
	toC, _ := addresses(pods[2])
	tc.mustReach(t, pods[0], url(toC.String(), mesh.OtherPort), path.Expected{Server: "c", Inbound: true})
	tc.mustReach(t, pods[2], url(toB.String(), mesh.OtherPort), path.Expected{Server: "b", Outbound: true})
	tc.mustReach(t, pods[0], url(toB.String(), mesh.OtherPort), path.Expected{Server: "b"})
	tc.mustCapture(t, pods[0], pods[1])
}

func checkExcludedPrefixes(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	servers := tc.run(t, meshPod(ns, "b"), meshPod(ns, "c"))
	toB, _ := addresses(servers[0])
	a := mesh.Pod(ns, "a")
	a.Annotations[mesh.ExcludeRanges] = toB.String() + "/32,192.0.2.0/24"
	a = tc.run(t, mesh.Inject(a, mesh.Sidecar{}))[0]
	tc.mustReach(t, a, url(toB.String(), mesh.Port), path.Expected{Server: "b", Inbound: true})
	tc.mustCapture(t, a, servers[1])
}

func checkIncludedPrefixes(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	b := tc.run(t, meshPod(ns, "b"))[0]
	s := tc.newService(t, service(b, corev1.ServicePort{
		Port: 80, TargetPort: intstr.FromInt(mesh.Port),
	}))
	a := mesh.Pod(ns, "a")
	a.Annotations[mesh.IncludeRanges] = s.Spec.ClusterIP + "/32"
	a = tc.run(t, mesh.Inject(a, mesh.Sidecar{}))[0]
	tc.mustReach(t, a, url(s.Spec.ClusterIP, 80), path.Captured("b"))
	toB, _ := addresses(b)
	tc.mustReach(t, a, url(toB.String(), mesh.Port), path.Expected{Server: "b", Inbound: true})
}

func checkUDP(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	pods := tc.run(t, meshPod(ns, "a"), meshPod(ns, "b"))
	ipv4, _ := addresses(pods[1])
	var r path.Report
	tc.execJSON(t, pods[0], &r, "mesh", "udp", "-wait", wait, ipv4.String()+":7000")
	if err := r.Check(path.Expected{Server: "b"}); err != nil {
		t.Error(err)
	}
}

// uncapturedPod returns a pod with a proxy for tests without redirection. It has no
// istio-validation, which would fail.
func uncapturedPod(ns, name string) *corev1.Pod {
	p := meshPod(ns, name)
	p.Spec.InitContainers = nil
	return p
}

// mustBypass fails the test unless a request bypasses the caller's proxy, and the check of the path
// detects the bypass.
func (tc *testCluster) mustBypass(t *testing.T, from, to *corev1.Pod) {
	t.Helper()
	ipv4, _ := addresses(to)
	r := tc.mustReach(t, from, url(ipv4.String(), mesh.Port), path.Expected{Server: to.Name, Inbound: true})
	if err := r.Check(path.Captured(to.Name)); err == nil ||
		!strings.Contains(err.Error(), "the caller's proxy was bypassed") {
		t.Errorf("check of a request that bypassed the caller's proxy: error %v, want an error that says so", err)
	}
}

func checkOptOut(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	a := uncapturedPod(ns, "a")
	a.Labels[mesh.InjectKey] = "false"
	pods := tc.run(t, a, meshPod(ns, "b"))
	tc.mustBypass(t, pods[0], pods[1])
}

func checkExcludedNamespaces(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	a := uncapturedPod("kube-system", "sluice-e2e")
	t.Cleanup(func() {
		_ = tc.client.CoreV1().Pods(a.Namespace).Delete(context.Background(), a.Name, deleteNow)
	})
	pods := tc.run(t, a, meshPod(ns, "b"))
	tc.mustBypass(t, pods[0], pods[1])
}

func checkHostNetwork(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	host := hostNetworkPod(ns)
	// With the annotation, the plugin would redirect the pod if the runtime called it. But the
	// runtime calls no CNI plugin for a pod in the host network.
	host.Annotations[mesh.StatusAnnotation] = "{}"
	pods := tc.run(t, host, meshPod(ns, "b"))
	ipv4, _ := addresses(pods[1])
	tc.mustReach(t, pods[0], url(ipv4.String(), mesh.Port), path.Expected{Server: "b", Inbound: true})
	tables, err := tc.onNode(t.Context(), "nft", "list", "tables")
	if err != nil || strings.Contains(tables, "sluice") {
		t.Errorf("tables of the node, want none of Sluice: %s: error %v", tables, err)
	}
}

func checkInitContainers(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	b := tc.run(t, meshPod(ns, "b"))[0]
	ipv4, _ := addresses(b)
	a := mesh.Pod(ns, "a")
	user, proxy := mesh.Container("as-a-user", "get", url(ipv4.String(), mesh.Port)),
		mesh.Container("as-the-proxy", "get", url(ipv4.String(), mesh.Port))
	proxy.SecurityContext.RunAsUser, proxy.SecurityContext.RunAsGroup = new(int64(mesh.ProxyID)),
		new(int64(mesh.ProxyID))
	a.Spec.InitContainers = []corev1.Container{user, proxy}
	a = tc.run(t, mesh.Inject(a, mesh.Sidecar{}))[0]

	if r := tc.containerReport(t, a, user.Name); r.Answer != nil || !strings.Contains(r.Error, "refused") {
		t.Errorf("request before the proxy's start, want a refused connection: %+v", r)
	}
	if err := tc.containerReport(t, a, proxy.Name).Check(path.Expected{Server: "b", Inbound: true}); err != nil {
		t.Error(err)
	}
	tc.mustCapture(t, a, b)
}

// containerReport waits until a container has printed a report, and returns the report.
func (tc *testCluster) containerReport(t *testing.T, pod *corev1.Pod, container string) (r path.Report) {
	t.Helper()
	eventually(t, readyTimeout, container+" has printed a report", func(ctx context.Context) error {
		text, err := tc.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name,
			&corev1.PodLogOptions{Container: container}).DoRaw(ctx)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
		return nil
	})
	return r
}

func checkInvalidAnnotation(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	a := mesh.Pod(ns, "a")
	a.Annotations[mesh.ExcludeOutboundPorts] = "80a"
	tc.create(t, mesh.Inject(a, mesh.Sidecar{}))
	eventually(t, readyTimeout, "an event contains the annotation", func(ctx context.Context) error {
		text := strings.Join(tc.warnings(ctx, a), "\n")
		for _, part := range []string{
			"FailedCreatePodSandBox", mesh.ExcludeOutboundPorts, `"80a"`,
		} {
			if !strings.Contains(text, part) {
				return errors.New("events: " + text)
			}
		}
		return nil
	})
	if s, err := tc.sandbox(t.Context(), a); !errors.Is(err, errNoSandbox) {
		t.Errorf("sandbox %+v, error %v; want no ready sandbox", s, err)
	}
}

package suite_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/e2e/injection"
	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/name"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// Images with Istio's programs. The sample application's proxy replaces Envoy.
const (
	istiodImage     = "mesh.test/pilot:e2e"
	istioProxyImage = "mesh.test/proxyv2:e2e"
)

var istioImages = []struct {
	name, ref, entrypoint string
	programs              map[string]string
}{
	{
		name: "pilot", ref: istiodImage, entrypoint: "/usr/local/bin/pilot-discovery",
		programs: map[string]string{"usr/local/bin/pilot-discovery": "e2e/istio/pilot-discovery"},
	},
	{
		name: "proxyv2", ref: istioProxyImage, entrypoint: "/usr/local/bin/pilot-agent",
		programs: map[string]string{
			"usr/local/bin/pilot-agent":       "e2e/pilot-agent",
			"usr/local/bin/istio/pilot-agent": "e2e/istio/pilot-agent",
			"usr/local/bin/mesh":              "e2e/mesh",
		},
	},
}

// TestIstio runs tests with sidecars that istiod injects, on a separate cluster.
func TestIstio(t *testing.T) {
	netnstest.RequireRoot(t)
	tc := newTestCluster(t)
	tc.mustInstallIstiod(t)
	tc.runGroups(t, injected, withoutPlugin)
}

var injected = testGroup{name: "injected by istiod", parallel: true, tests: []groupTest{
	{"native sidecar, istiod's default", checkInjection(nil)},
	{"regular container", checkInjection(map[string]string{nativeSidecar: "false"})},
	{"application that waits for the proxy", checkInjection(map[string]string{
		nativeSidecar: "false", proxyConfig: "holdApplicationUntilProxyStarts: true",
	})},
	{"TPROXY", checkInjection(map[string]string{mesh.ModeAnnotation: "TPROXY"})},
	{
		"TPROXY with regular container",
		checkInjection(map[string]string{mesh.ModeAnnotation: "TPROXY", nativeSidecar: "false"}),
	},
	{"dual stack", checkInjectedDualStack},
	{"DNS capture", checkInjectedDNS},
	{"excluded outbound port", checkInjectedExclusion},
}}

// withoutPlugin contains the tests that start without the plugin and then install it.
var withoutPlugin = testGroup{name: "injected by istiod without the plugin", withoutChart: true, tests: []groupTest{
	{
		"istio-validation fails with exit code 126, and after the installation the pod is repaired in place",
		checkInjectedRepair,
	},
}}

// Annotations of Istio's injector.
const (
	nativeSidecar = "sidecar.istio.io/nativeSidecar"
	proxyConfig   = "proxy.istio.io/config"
)

// mustInstallIstiod installs Istio's control plane with Helm, with CNI enabled.
func (tc *testCluster) mustInstallIstiod(t *testing.T) {
	t.Helper()
	tools, err := injection.FindTools(bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range istioImages {
		archive := filepath.Join(bin, "e2e", "images", i.name+".tar")
		if err := packImage(archive, i.ref, i.programs, i.entrypoint); err != nil {
			t.Fatalf("image %s: %v", i.ref, err)
		}
		if err := tc.LoadImage(t.Context(), archive); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	for _, args := range [][]string{
		{"install", "istio-base", filepath.Join(tools.Charts, "base"), "--create-namespace"},
		{
			"install", "istiod", tools.Chart(), "--wait", "--timeout", installTimeout.String(),
			"--set", "pilot.cni.enabled=true", "--set", "pilot.image=" + istiodImage, "--set",
			"autoscaleEnabled=false",
			"--set", "global.proxy.image=" + istioProxyImage, "--set",
			"global.proxy_init.image=" + istioProxyImage,
			"--set", "global.imagePullPolicy=Never", "--set",
			"pilot.resources.requests.memory=128Mi",
			"--set", "pilot.resources.requests.cpu=100m", "--set",
			"global.proxy.resources.requests.cpu=10m",
		},
	} {
		if _, err := tc.helm(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("istiod ready after %s", time.Since(begin).Round(time.Millisecond))
}

// newInjectedNamespace creates a namespace for the test with injection enabled.
func (tc *testCluster) newInjectedNamespace(t *testing.T) string {
	t.Helper()
	return tc.newLabeledNamespace(t, map[string]string{"istio-injection": "enabled"})
}

// annotatedPod returns a pod with annotations, before injection.
func annotatedPod(ns, name string, annotations map[string]string) *corev1.Pod {
	p := mesh.Pod(ns, name)
	for key, value := range annotations {
		p.Annotations[key] = value
	}
	return p
}

// runInjected creates the pods "a" and "b" with the same annotations, and returns them when they
// are ready, that is, after istio-validation.
func (tc *testCluster) runInjected(t *testing.T, annotations map[string]string) (a, b *corev1.Pod) {
	t.Helper()
	ns := tc.newInjectedNamespace(t)
	pods := tc.run(t, annotatedPod(ns, "a", annotations), annotatedPod(ns, "b", annotations))
	for _, p := range pods {
		if p.Annotations[mesh.StatusAnnotation] == "" {
			t.Fatalf("istiod has not injected into %s: %v", p.Name, p.Annotations)
		}
	}
	return pods[0], pods[1]
}

// checkInjection returns a test that starts two pods with the annotations, and checks that a
// request from one pod to the other passes through both proxies.
func checkInjection(annotations map[string]string) func(t *testing.T, tc *testCluster) {
	return func(t *testing.T, tc *testCluster) {
		a, b := tc.runInjected(t, annotations)
		want := path.Captured("b")
		want.Transparent = annotations[mesh.ModeAnnotation] == "TPROXY"
		ipv4, _ := addresses(b)
		tc.mustReach(t, a, url(ipv4.String(), mesh.Port), want)
	}
}

func checkInjectedDualStack(t *testing.T, tc *testCluster) {
	a, b := tc.runInjected(t,
		map[string]string{proxyConfig: `proxyMetadata: {ISTIO_DUAL_STACK: "true"}`})
	ipv4, ipv6 := addresses(b)
	tc.mustReach(t, a, url(ipv4.String(), mesh.Port), path.Captured("b"))
	tc.mustReach(t, a, url(ipv6.String(), mesh.Port), path.Captured("b"))
}

func checkInjectedDNS(t *testing.T, tc *testCluster) {
	a, _ := tc.runInjected(t,
		map[string]string{proxyConfig: `proxyMetadata: {ISTIO_META_DNS_CAPTURE: "true"}`})
	for _, extra := range [][]string{nil, {"-tcp"}} {
		var r name.Resolution
		tc.execJSON(t, a, &r,
			append(append([]string{"mesh", "lookup", "-wait", wait}, extra...),
				"kubernetes.default.svc.cluster.local.")...)
		if r.Proxy != "a" || len(r.Addresses) == 0 {
			t.Errorf("lookup %v: %+v, want proxy a and at least one address", extra, r)
		}
	}
}

func checkInjectedExclusion(t *testing.T, tc *testCluster) {
	a, b := tc.runInjected(t, map[string]string{mesh.ExcludeOutboundPorts: "8080"})
	ipv4, _ := addresses(b)
	tc.mustReach(t, a, url(ipv4.String(), mesh.Port), path.Expected{Server: "b", Inbound: true})
	tc.mustReach(t, a, url(ipv4.String(), mesh.OtherPort), path.Captured("b"))
}

func checkInjectedRepair(t *testing.T, tc *testCluster) {
	ns := tc.newInjectedNamespace(t)
	a, b := mesh.Pod(ns, "a"), mesh.Pod(ns, "b")
	b.Annotations[nativeSidecar] = "false"
	tc.create(t, a, b)
	broken := map[string]*corev1.Pod{}
	for _, p := range []*corev1.Pod{a, b} {
		eventually(t, readyTimeout, "istio-validation of "+p.Name+" fails with 126", func(ctx context.Context) error {
			found, err := tc.get(ctx, p)
			if err != nil {
				return err
			}
			broken[p.Name] = found
			return checkFailed(found, mesh.ValidationContainer, 126)
		})
	}
	before := tc.mustSandbox(t, a)
	tc.mustInstall(t)
	begin := time.Now()
	for _, p := range []*corev1.Pod{tc.waitReady(t, a), tc.waitReady(t, b)} {
		if p.UID != broken[p.Name].UID {
			t.Errorf("%s was replaced: it was not repaired in place", p.Name)
		}
	}
	t.Logf("pods ready %s after the installation", time.Since(begin).Round(time.Millisecond))
	if tc.mustSandbox(t, a) != before {
		t.Error("the pod has a new sandbox: it was not repaired in place")
	}
	tc.mustCapture(t, tc.waitReady(t, a), tc.waitReady(t, b))
	tc.mustCapture(t, tc.waitReady(t, b), tc.waitReady(t, a))
}

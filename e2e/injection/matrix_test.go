package injection_test

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/e2e/injection"
	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/decide/podfile"
)

// bin is the directory of the Makefile's programs.
const bin = "../../bin"

// TestInjectedPods injects each pod for a CNI plugin and for istio-init. It checks the plugin's
// decisions on both, and compares the plugin's rules with istio-init's.
func TestInjectedPods(t *testing.T) {
	netnstest.RequireRoot(t)
	tools, err := injection.FindTools(bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range controlPlanes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.CNI = true
			forPlugin := start(t, tools, c)
			c.CNI = false
			forInit := start(t, tools, c)
			for _, s := range c.pods {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					pod := inject(t, forPlugin, s)
					if s.skipped != "" {
						mustSkip(t, readAsPlugin(t, pod), s.skipped)
						return
					}
					mustBeInjected(t, c, s, pod)
					initialized := inject(t, forInit, s)
					mustSkip(t, readAsPlugin(t, initialized), decide.IstioInit)
					compare(t, tools, s, pod, initialized)
				})
			}
		})
	}
}

// start runs the istiod of a control plane until the test ends.
func start(t *testing.T, tools injection.Tools, c controlPlane) *injection.Istiod {
	t.Helper()
	i, err := injection.Start(t.Context(), tools, c.Installation, c.namespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

// inject returns the injected pod, with addresses in its status.
func inject(t *testing.T, i *injection.Istiod, s podCase) *corev1.Pod {
	t.Helper()
	pod, err := i.Inject(t.Context(), s.manifest())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses(s.pod) {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	pod.Status.PodIP = pod.Status.PodIPs[0].IP
	return pod
}

// mustBeInjected checks that the settings of control plane and pod have taken effect.
func mustBeInjected(t *testing.T, c controlPlane, s podCase, pod *corev1.Pod) {
	t.Helper()
	if revision := cmp.Or(c.Revision, "default"); pod.Annotations["istio.io/rev"] != revision {
		t.Errorf("revision %q, want %s", pod.Annotations["istio.io/rev"], revision)
	}
	asContainer := slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == "istio-proxy"
	})
	if native := s.annotations[nativeAnnotation] != "false"; native == asContainer {
		t.Errorf("the proxy is a regular container: %t, want %t", asContainer, !native)
	}
}

// addresses returns the addresses of a pod in the order of its status. As in a cluster whose
// primary family is IPv6, IPv6 is first. istio-init sees the kernel's order, in which IPv4 is
// first.
func addresses(p istio.Pod) []netip.Addr {
	return map[istio.Pod][]netip.Addr{
		istio.IPv4Pod: {testbed.PodIP4}, istio.IPv6Pod: {testbed.PodIP6},
		istio.DualPod: {testbed.PodIP6, testbed.PodIP4},
	}[p]
}

// readAsPlugin parses a pod as the plugin does.
func readAsPlugin(t *testing.T, pod *corev1.Pod) *decide.Pod {
	t.Helper()
	workload, err := podfile.Read(strings.NewReader(text(t, pod)))
	if err != nil {
		t.Fatal(err)
	}
	return workload.Pod
}

// text formats a pod as YAML.
func text(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	p := *pod
	p.APIVersion, p.Kind = "v1", "Pod"
	manifest, err := yaml.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(manifest)
}

func decisionOn(pod *decide.Pod) decide.Decision {
	return decide.Decide(decide.Input{
		Attachment: decide.Attachment{
			Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name,
			Annotations: pod.Metadata.Annotations,
		},
		Pod: pod,
	}, &decide.Settings{})
}

func mustSkip(t *testing.T, pod *decide.Pod, reason decide.Reason) {
	t.Helper()
	if d := decisionOn(pod); d.Outcome != decide.Skip || d.Reason != reason {
		t.Errorf("decision %s, want skip with the reason %s", d, reason)
	}
}

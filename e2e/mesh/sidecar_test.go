package mesh_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

// parsePod returns a pod as the plugin parses it.
func parsePod(t *testing.T, pod *corev1.Pod) *decide.Pod {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var p decide.Pod
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	return &p
}

func TestPluginRecognizesInjectedPods(t *testing.T) {
	settings := &decide.Settings{
		ProxyContainer: mesh.ProxyContainer, ValidationContainer: mesh.ValidationContainer,
	}
	for _, c := range []struct {
		name    string
		sidecar mesh.Sidecar
		change  func(r *rules.Redirect)
	}{
		{"regular container", mesh.Sidecar{}, func(*rules.Redirect) {}},
		{"native sidecar", mesh.Sidecar{Native: true}, func(*rules.Redirect) {}},
		{"TPROXY", mesh.Sidecar{TProxy: true}, func(r *rules.Redirect) {
			r.Mode = rules.ModeTProxy
		}},
		{"environment of the proxy", mesh.Sidecar{Env: map[string]string{
			"ISTIO_META_DNS_CAPTURE": "true", "ISTIO_DUAL_STACK": "true",
		}}, func(r *rules.Redirect) {
			r.DNS, r.IPv6 = rules.DNS{Capture: true, All: true}, true
		}},
	} {
		pod := mesh.Pod("shop", "web")
		pod.Annotations[mesh.ExcludeInboundPorts] = "9090"
		p := parsePod(t, mesh.Inject(pod, c.sidecar))
		in := decide.Input{Attachment: decide.Attachment{Namespace: "shop", Name: "web"}, Pod: p}
		if d := decide.Decide(in, settings); d.Reason != decide.MeshPod {
			t.Errorf("%s: decision %s, want the reason %s", c.name, d, decide.MeshPod)
			continue
		}
		addresses := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
		got, _, err := decide.Parameters(p, addresses, settings)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want := rules.DefaultRedirect()
		want.InboundPorts.All, want.OutboundCIDRs.All = true, true
		want.InboundExcludePorts = rules.Singles[uint16](9090, 15020, 15021, 15090)
		// istio-cni's default without an annotation.
		want.OutboundExcludePorts = rules.Singles[uint16](15020)
		c.change(&want)
		if diff := cmp.Diff(rules.MustCompile(want).String(),
			rules.MustCompile(got).String()); diff != "" {
			t.Errorf("%s: rules of the parameters (-want +got)\n%s", c.name, diff)
		}
	}
}

func TestPodWithoutSidecarIsNotRedirected(t *testing.T) {
	in := decide.Input{
		Attachment: decide.Attachment{Namespace: "shop", Name: "web"},
		Pod:        parsePod(t, mesh.Pod("shop", "web")),
	}
	if d := decide.Decide(in,
		&decide.Settings{ProxyContainer: mesh.ProxyContainer}); d.Outcome != decide.Skip {
		t.Errorf("decision %s, want skip", d)
	}
}

func TestObjectsHaveTheNamesOfTheConstants(t *testing.T) {
	app, ztunnel := mesh.Pod("shop", "web").Spec.Containers[0], mesh.Ztunnel("istio-system")
	proxy := ztunnel.Spec.Template.Spec.Containers[0]
	if app.Name != mesh.AppContainer || app.Image != mesh.Image || proxy.Image != mesh.Image ||
		proxy.Name != mesh.ProxyContainer || ztunnel.Name != mesh.ZtunnelName {
		t.Errorf("application %s of %s, DaemonSet %s with %s of %s: differ from the constants",
			app.Name, app.Image, ztunnel.Name, proxy.Name, proxy.Image)
	}
}

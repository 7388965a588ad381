package injection_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/injection"
	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// TestSampleInjection compares package mesh's injection, which needs no istiod, with istiod's.
func TestSampleInjection(t *testing.T) {
	netnstest.RequireRoot(t)
	tools, err := injection.FindTools(bin)
	if err != nil {
		t.Fatal(err)
	}
	istiod := start(t, tools, controlPlane{
		namespace: plainNamespace, Installation: injection.Installation{CNI: true},
	})
	dns := map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}
	for _, test := range []struct {
		name   string
		sample mesh.Sidecar
		pod    podCase
	}{
		{"a native sidecar", mesh.Sidecar{Native: true}, podCase{}},
		{
			"regular container",
			mesh.Sidecar{},
			podCase{annotations: annotated(nativeAnnotation, "false")},
		},
		{
			"TPROXY",
			mesh.Sidecar{Native: true, TProxy: true},
			podCase{annotations: annotated(mesh.ModeAnnotation, "TPROXY")},
		},
		{
			"an environment",
			mesh.Sidecar{Native: true, Env: dns},
			podCase{annotations: proxyConfig(`ISTIO_META_DNS_CAPTURE: "true"`)},
		},
		{"annotations", mesh.Sidecar{
			Native: true,
		}, podCase{annotations: annotated(mesh.ExcludeInboundPorts, "9090",
			mesh.ExcludeOutboundPorts, "5432", mesh.IncludeRanges, "10.0.0.0/8", mesh.ExcludeRanges,
			"10.1.0.0/16",
			mesh.IncludeInboundPorts, "8080")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			injected := inject(t, istiod, test.pod)
			sample := mesh.Inject(test.pod.manifest(), test.sample)
			sample.Status = injected.Status
			want, got := parameters(t, test.pod, injected), parameters(t, test.pod, sample)
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool {
				return a == b
			})); diff != "" {
				t.Errorf("parameters after injection by istiod (-) and by package mesh (+):\n%s", diff)
			}
		})
	}
}

package injection_test

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/injection"
	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/decide"
)

// TestPluginRejectsInvalidAnnotations checks that the plugin rejects the values that istiod
// rejects, because istiod is not the only injector. The plugin also rejects values that istiod
// accepts and istio-init rejects.
func TestPluginRejectsInvalidAnnotations(t *testing.T) {
	netnstest.RequireRoot(t)
	tools, err := injection.FindTools(bin)
	if err != nil {
		t.Fatal(err)
	}
	istiod := start(t, tools, controlPlane{
		namespace: plainNamespace, Installation: injection.Installation{CNI: true},
	})
	for _, test := range []struct {
		annotation, value string
		accepted          bool // by istiod
	}{
		{annotation: mesh.ModeAnnotation, value: "tproxy"},
		{annotation: mesh.IncludeRanges, value: "10.0.0.0"},
		{annotation: mesh.ExcludeRanges, value: "*"},
		{annotation: mesh.IncludeInboundPorts, value: "80-90"},
		{annotation: mesh.ExcludeInboundPorts, value: "80a"},
		{annotation: mesh.ExcludeOutboundPorts, value: "65536"},
		{annotation: excludeInterfaces, value: "1eth"},
		{annotation: kubevirtInterfaces, value: "a b"},
		{annotation: rerouteInterfaces, value: "eth0/1"},
		{annotation: statusPort, value: "status"},
		{annotation: includeOutbound, value: "80a", accepted: true},
		{annotation: includeOutbound, value: "*", accepted: true},
	} {
		t.Run(test.annotation+": "+test.value, func(t *testing.T) {
			s := podCase{annotations: annotated(test.annotation, test.value)}
			_, err := istiod.Inject(t.Context(), s.manifest())
			if !test.accepted && (err == nil || !strings.Contains(err.Error(), test.annotation)) {
				t.Errorf("istiod: error %v, want one that names the annotation", err)
			}
			if test.accepted && err != nil {
				t.Errorf("istiod rejects the pod: %v", err)
			}
			pod := inject(t, istiod, podCase{})
			pod.Annotations[test.annotation] = test.value
			_, _, err = decide.Parameters(readAsPlugin(t, pod), addresses(s.pod),
				&decide.Settings{})
			if err == nil || !strings.Contains(err.Error(), test.annotation) {
				t.Errorf("plugin: error %v, want one that names the annotation", err)
			}
		})
	}
}

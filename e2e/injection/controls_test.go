package injection_test

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/e2e/injection"
	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// openShiftNamespace returns a namespace with the ranges of users and groups that OpenShift
// assigns.
func openShiftNamespace() corev1.Namespace {
	return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: injectedNamespace,
		Annotations: map[string]string{
			"openshift.io/sa.scc.uid-range":           "1000650000/10000",
			"openshift.io/sa.scc.supplemental-groups": "1000650000/10000",
		},
	}}
}

// openShiftUser is the last user of the namespace's range, which istiod assigns to proxies.
const openShiftUser = 1000659999

// A control is a control plane, and the pods that it injects.
type control struct {
	name string
	injection.Installation
	namespace corev1.Namespace
	subjects  []subject
}

var plainNamespace = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: injectedNamespace}}

var controls = []control{
	{name: "as installed by default", namespace: plainNamespace, subjects: ordinary},
	{
		name: "a revision", namespace: plainNamespace,
		Installation: injection.Installation{Revision: "canary"},
		subjects: []subject{
			{name: "a sidecar"},
			{
				name: "TPROXY", annotations: annotated(mesh.ModeAnnotation, "TPROXY"),
				deviations: tproxy,
			},
		},
	},
	{
		name: "OpenShift", namespace: openShiftNamespace(),
		Installation: injection.Installation{
			Values: map[string]any{"global": map[string]any{"platform": "openshift"}},
		},
		subjects: []subject{
			{name: "a sidecar", user: openShiftUser},
			{
				name: "a container among others", user: openShiftUser,
				annotations: annotated(nativeAnnotation, "false"),
			},
			// For TPROXY the injector runs the proxy as root, regardless of the namespace's users.
			{
				name: "TPROXY", annotations: annotated(mesh.ModeAnnotation, "TPROXY"),
				deviations: tproxy,
			},
		},
	},
	{
		name: "settings of the mesh", namespace: plainNamespace,
		Installation: injection.Installation{Values: map[string]any{
			"meshConfig": map[string]any{
				"proxyListenPort": 16001, "proxyInboundListenPort": 16006,
				"defaultConfig": map[string]any{
					"interceptionMode": "TPROXY",
					"proxyMetadata": map[string]any{
						"ISTIO_META_DNS_CAPTURE": "true", "CAPTURE_ALL_DNS": "true",
						"ISTIO_DUAL_STACK": "true",
					},
				},
			},
			"global": map[string]any{"logAsJson": true, "proxy": map[string]any{
				"includeIPRanges": "10.0.0.0/8,fd00::/8", "excludeIPRanges": "10.96.0.1/32",
				"excludeInboundPorts":  "9999",
				"includeOutboundPorts": "443", "excludeOutboundPorts": "5432", "statusPort": 15920,
			}},
		}},
		subjects: []subject{
			{name: "a sidecar", pod: istio.DualPod, deviations: tproxy, others: usualExcluded},
			{
				name: "REDIRECT", pod: istio.DualPod,
				annotations: annotated(mesh.ModeAnnotation, "REDIRECT"), others: usualExcluded,
			},
			{
				name: "annotations that outrank the mesh's", deviations: tproxy, others: none,
				annotations: annotated(mesh.IncludeRanges, "*", mesh.ExcludeOutboundPorts, "",
					statusPort, "15020"),
			},
		},
	},
}

// usualExcluded: the plugin excludes the usual status port in addition to the mesh's configured
// one.
var usualExcluded = []difference{usualStatusPortExcluded}

package injection_test

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/e2e/injection"
	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// openShiftNamespace returns a namespace with UID and GID ranges as OpenShift assigns them.
func openShiftNamespace() corev1.Namespace {
	return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: injectedNamespace,
		Annotations: map[string]string{
			"openshift.io/sa.scc.uid-range":           "1000650000/10000",
			"openshift.io/sa.scc.supplemental-groups": "1000650000/10000",
		},
	}}
}

// openShiftUser is the last UID of the namespace's range. istiod assigns it to proxies.
const openShiftUser = 1000659999

// A controlPlane is an installation of istiod with the pods that it injects.
type controlPlane struct {
	name string
	injection.Installation
	namespace corev1.Namespace
	pods      []podCase
}

var plainNamespace = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: injectedNamespace}}

var controlPlanes = []controlPlane{
	{name: "default installation", namespace: plainNamespace, pods: ordinary},
	{
		name: "a revision", namespace: plainNamespace,
		Installation: injection.Installation{Revision: "canary"},
		pods: []podCase{
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
		pods: []podCase{
			{name: "a sidecar", user: openShiftUser},
			{
				name: "regular container", user: openShiftUser,
				annotations: annotated(nativeAnnotation, "false"),
			},
			// In TPROXY mode, the injector runs the proxy as root, regardless of the namespace's
			// UID range.
			{
				name: "TPROXY", annotations: annotated(mesh.ModeAnnotation, "TPROXY"),
				deviations: tproxy,
			},
		},
	},
	{
		name: "mesh-wide settings", namespace: plainNamespace,
		Installation: injection.Installation{Values: map[string]any{
			"meshConfig": map[string]any{
				"proxyListenPort": 16001, "proxyInboundListenPort": 16006,
				"defaultConfig": map[string]any{
					"interceptionMode": "TPROXY",
					"proxyMetadata": map[string]any{
						"ISTIO_META_DNS_CAPTURE": "true", "CAPTURE_ALL_DNS": "true",
						"ISTIO_DUAL_STACK": "true", "ISTIO_EXCLUDE_INTERFACES": "ppp+,0tun",
					},
				},
			},
			"global": map[string]any{"logAsJson": true, "proxy": map[string]any{
				"includeIPRanges": "10.0.0.0/8,fd00::/8", "excludeIPRanges": "10.96.0.1/32",
				"excludeInboundPorts":  "9999",
				"includeOutboundPorts": "443", "excludeOutboundPorts": "5432", "statusPort": 15920,
			}},
		}},
		pods: []podCase{
			{
				name: "a sidecar", pod: istio.DualPod, variables: meshWideVariables,
				deviations: tproxy, others: withOtherStatusPort,
			},
			{
				name: "REDIRECT", pod: istio.DualPod, variables: meshWideVariables,
				annotations: annotated(mesh.ModeAnnotation, "REDIRECT"), others: withOtherStatusPort,
			},
			{
				name: "annotations that override mesh-wide settings", variables: meshWideVariables,
				deviations: tproxy, others: noDifferences,
				annotations: annotated(mesh.IncludeRanges, "*", mesh.ExcludeOutboundPorts, "",
					statusPort, "15020"),
			},
		},
	},
}

// meshWideVariables lists the variables in the mesh-wide settings that istio-init reads and
// istio-cni does not.
var meshWideVariables = []string{"CAPTURE_ALL_DNS", "ISTIO_EXCLUDE_INTERFACES"}

// withOtherStatusPort contains the difference in a pod with another status port: the plugin also
// excludes the default status port.
var withOtherStatusPort = []difference{defaultStatusPortExcluded}

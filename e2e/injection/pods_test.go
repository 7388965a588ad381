package injection_test

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

// Annotations and labels of Istio that package mesh does not define.
const (
	nativeAnnotation    = "sidecar.istio.io/nativeSidecar"
	templatesAnnotation = "inject.istio.io/templates"
	configAnnotation    = "proxy.istio.io/config"
	statusPort          = "status.sidecar.istio.io/port"
	includeOutbound     = "traffic.sidecar.istio.io/includeOutboundPorts"
	excludeInterfaces   = "traffic.sidecar.istio.io/excludeInterfaces"
	kubevirtInterfaces  = "traffic.sidecar.istio.io/kubevirtInterfaces"
	rerouteInterfaces   = "istio.io/reroute-virtual-interfaces"
)

// A podCase is a pod to inject, with the expected result.
type podCase struct {
	name        string
	annotations map[string]string
	labels      map[string]string
	change      func(p *corev1.Pod)
	pod         istio.Pod // the pod's addresses
	// skipped is the plugin's reason for not redirecting the pod; empty if the plugin redirects the
	// pod.
	skipped decide.Reason
	// user is the UID of the proxy; 0 means 1337.
	user uint32
	// variables lists the variables of the proxy that istio-init reads and istio-cni does not. The
	// plugin reports them in notes.
	variables []string
	// deviations lists the deviations from istio-init's rules. others lists the differences that
	// istio-cni has too; nil means usualDifferences.
	deviations []rules.DeviationID
	others     []difference
}

// manifest returns the pod before injection.
func (s podCase) manifest() *corev1.Pod {
	p := mesh.Pod(injectedNamespace, "web")
	maps.Copy(p.Annotations, s.annotations)
	maps.Copy(p.Labels, s.labels)
	if s.change != nil {
		s.change(p)
	}
	return p
}

func annotated(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// proxyConfig returns the annotation that sets environment variables of the proxy.
func proxyConfig(pairs string) map[string]string {
	return annotated(configAnnotation, "proxyMetadata: {"+pairs+"}")
}

// ordinary contains pods that need no special installation.
var ordinary = []podCase{
	{name: "a native sidecar"},
	{name: "regular container", annotations: annotated(nativeAnnotation, "false")},
	{name: "TPROXY", annotations: annotated(mesh.ModeAnnotation, "TPROXY"), deviations: tproxy},
	{
		name: "TPROXY with regular container", deviations: tproxy,
		annotations: annotated(mesh.ModeAnnotation, "TPROXY", nativeAnnotation, "false"),
	},
	{name: "IPv6 only", pod: istio.IPv6Pod},
	{name: "addresses of both families without dual stack", pod: istio.DualPod},
	{name: "dual stack", pod: istio.DualPod, annotations: proxyConfig(`ISTIO_DUAL_STACK: "true"`)},
	{
		name: "dual stack with TPROXY", pod: istio.DualPod, deviations: tproxy,
		annotations: annotated(configAnnotation, `proxyMetadata: {ISTIO_DUAL_STACK: "true"}`,
			mesh.ModeAnnotation, "TPROXY"),
	},
	{
		name:        "DNS capture",
		annotations: proxyConfig(`ISTIO_META_DNS_CAPTURE: "true", CAPTURE_ALL_DNS: "true"`),
		variables:   []string{"CAPTURE_ALL_DNS"},
	},
	{
		name: "DNS capture with dual stack", pod: istio.DualPod,
		annotations: proxyConfig(
			`ISTIO_META_DNS_CAPTURE: "true", CAPTURE_ALL_DNS: "true", ISTIO_DUAL_STACK: "true"`),
		variables: []string{"CAPTURE_ALL_DNS"},
	},
	{name: "invalid packets are dropped", annotations: proxyConfig(`INVALID_DROP: "true"`)},
	{
		name:        "DNS capture for the pod's own servers",
		annotations: proxyConfig(`ISTIO_META_DNS_CAPTURE: "true"`),
		others:      []difference{statusPortUncaptured, allDNSCaptured},
	},
	{
		name:        "owner groups",
		annotations: proxyConfig(`ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE: "1000,2000"`),
		variables:   []string{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"},
	},
	{
		name:        "another loopback prefix",
		annotations: proxyConfig(`ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR: "127.0.0.1/8"`),
		variables:   []string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"},
	},
	{
		name:        "excluded inbound ports",
		annotations: annotated(mesh.ExcludeInboundPorts, "9090, 7070"),
	},
	{
		name:        "included inbound ports",
		annotations: annotated(mesh.IncludeInboundPorts, "8080, 9090"),
	},
	{name: "no inbound ports", annotations: annotated(mesh.IncludeInboundPorts, "")},
	{
		name:        "excluded outbound ports",
		annotations: annotated(mesh.ExcludeOutboundPorts, "5432,6379"), others: noDifferences,
	},
	{
		name:        "empty list of excluded outbound ports",
		annotations: annotated(mesh.ExcludeOutboundPorts, ""), others: noDifferences,
	},
	{
		name: "included outbound ports and prefixes",
		annotations: annotated(includeOutbound, "443", mesh.IncludeRanges,
			"10.0.0.0/8,192.168.0.0/16"),
	},
	{name: "no outbound prefixes", annotations: annotated(mesh.IncludeRanges, "")},
	{
		name:        "excluded prefixes",
		annotations: annotated(mesh.ExcludeRanges, "10.96.0.1/32,169.254.169.254/32"),
	},
	{
		name: "another status port", annotations: annotated(statusPort, "15999"),
		others: []difference{statusPortUncaptured, defaultStatusPortExcluded},
	},
	{
		name: "no status port", annotations: annotated(statusPort, "0"),
		others: []difference{statusPortUncaptured, defaultStatusPortExcluded},
	},
	{name: "excluded interfaces", annotations: annotated(excludeInterfaces, "eth1,net1")},
	{name: "rerouted interfaces", annotations: annotated(rerouteInterfaces, "vmif0")},
	{name: "KubeVirt's interfaces", annotations: annotated(kubevirtInterfaces, "k6t-eth0")},
	{
		name:        "rerouted interfaces with TPROXY",
		annotations: annotated(rerouteInterfaces, "vmif0", mesh.ModeAnnotation, "TPROXY"),
		deviations:  []rules.DeviationID{rules.RerouteTProxy, rules.TunnelPortTProxy},
	},
	{
		name: "proxy with another user", user: 4001,
		others: []difference{statusPortUncaptured, groupOfTheProxy},
		change: func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
				Name: mesh.ProxyContainer, Image: "auto",
				SecurityContext: &corev1.SecurityContext{
					RunAsUser: new(int64(4001)), RunAsGroup: new(int64(4002)),
				},
			})
		},
	},
	{
		name: "no interception", annotations: annotated(mesh.ModeAnnotation, "NONE"),
		skipped: decide.InterceptionNone,
	},
	{
		name: "no interception with regular container", skipped: decide.InterceptionNone,
		annotations: annotated(mesh.ModeAnnotation, "NONE", nativeAnnotation, "false"),
	},
	{
		name: "a gateway", annotations: annotated(templatesAnnotation, "gateway"),
		skipped: decide.ProxyType,
	},
	{
		name: "gRPC without a proxy", annotations: annotated(templatesAnnotation, "grpc-agent"),
		skipped: decide.ProxyDisabled,
	},
	{
		name: "label that disables injection", labels: annotated(mesh.InjectKey, "false"),
		skipped: decide.NoProxyContainer,
	},
}

// tproxy lists the deviations of a pod that captures all inbound ports in TPROXY mode.
var tproxy = []rules.DeviationID{rules.TunnelPortTProxy}

// injectedNamespace is the namespace of the pods.
const injectedNamespace = "shop"

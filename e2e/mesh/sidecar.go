package mesh

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Names of the containers that Istio adds.
const (
	ProxyContainer      = "istio-proxy"
	ValidationContainer = "istio-validation"
)

// Istio's annotations for injection and redirection.
const (
	StatusAnnotation     = "sidecar.istio.io/status"
	InjectKey            = "sidecar.istio.io/inject" // also a label
	ModeAnnotation       = "sidecar.istio.io/interceptionMode"
	trafficPrefix        = "traffic.sidecar.istio.io/"
	IncludeRanges        = trafficPrefix + "includeOutboundIPRanges"
	ExcludeRanges        = trafficPrefix + "excludeOutboundIPRanges"
	IncludeInboundPorts  = trafficPrefix + "includeInboundPorts"
	ExcludeInboundPorts  = trafficPrefix + "excludeInboundPorts"
	ExcludeOutboundPorts = trafficPrefix + "excludeOutboundPorts"
)

// ProxyID is the UID and GID of the proxy.
const ProxyID = 1337

// Path and port of the proxy's readiness probe.
const (
	proxyReadyPath = "/healthz/ready"
	proxyReadyPort = 15021
)

// A Sidecar configures the injection of a proxy. The zero value is a regular container in REDIRECT
// mode.
type Sidecar struct {
	// Native makes the proxy a native sidecar: an init container with restartPolicy Always.
	Native bool
	// TProxy selects the mode TPROXY.
	TProxy bool
	// Env is added to the environment of the proxy and of istio-validation, such as
	// ISTIO_META_DNS_CAPTURE.
	Env map[string]string
}

// Inject changes a pod like Istio's injector with a CNI plugin: it adds the init container
// istio-validation, the proxy, and the annotation of an injected pod. As in Istio, the arguments of
// istio-validation repeat the pod's annotations.
func Inject(pod *corev1.Pod, s Sidecar) *corev1.Pod {
	pod.Annotations[StatusAnnotation] = `{"containers":["istio-proxy"],` +
		`"initContainers":["istio-validation"],"revision":"default"}`
	// Like istio-cni, the plugin redirects only pods whose proxy has the type sidecar.
	args := []string{"proxy", "sidecar"}
	if s.TProxy {
		pod.Annotations[ModeAnnotation] = "TPROXY"
		args = append(args, "-transparent")
	}
	proxy := asProxy(Container(ProxyContainer, args...))
	if s.TProxy {
		c := proxy.SecurityContext // like Istio's security context for TPROXY
		c.RunAsUser, c.RunAsNonRoot, c.AllowPrivilegeEscalation = new(int64(0)), new(bool), nil
		c.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
	}
	check := validation(pod)
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		variable := corev1.EnvVar{Name: key, Value: s.Env[key]}
		proxy.Env, check.Env = append(proxy.Env, variable), append(check.Env, variable)
	}
	proxy.ReadinessProbe = probe(proxyReadyPath, proxyReadyPort)
	added := []corev1.Container{check}
	if s.Native {
		proxy.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		proxy.StartupProbe = probe(proxyReadyPath, proxyReadyPort)
		added = append(added, proxy)
	} else {
		pod.Spec.Containers = append([]corev1.Container{proxy}, pod.Spec.Containers...)
	}
	pod.Spec.InitContainers = append(added, pod.Spec.InitContainers...)
	return pod
}

// validation returns the init container istio-validation, which runs the command rules.
func validation(pod *corev1.Pod) corev1.Container {
	annotation := func(key, defaultValue string) string {
		return cmp.Or(pod.Annotations[key], defaultValue)
	}
	excluded := strings.TrimSuffix("15090,15021,"+annotation(ExcludeInboundPorts, ""), ",") +
		",15020"
	c := asProxy(Container(ValidationContainer,
		"validate", "-p", "15001", "-z", "15006", "-u", "1337", "-m",
		annotation(ModeAnnotation, "REDIRECT"),
		"-i", annotation(IncludeRanges, "*"), "-x", annotation(ExcludeRanges, ""),
		"-b", annotation(IncludeInboundPorts, "*"), "-d", excluded))
	if ports := annotation(ExcludeOutboundPorts, ""); ports != "" {
		c.Args = append(c.Args, "-o", ports)
	}
	c.Args = append(c.Args, "--log_output_level=default:info", "--run-validation",
		"--skip-rule-apply")
	c.Command = []string{"rules"}
	return c
}

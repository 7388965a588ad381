package mesh

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The names of the containers that Istio adds.
const (
	ProxyContainer      = "istio-proxy"
	ValidationContainer = "istio-validation"
)

// Istio's annotations about what is captured.
const (
	StatusAnnotation     = "sidecar.istio.io/status"
	InjectKey            = "sidecar.istio.io/inject" // also a label
	ModeAnnotation       = "sidecar.istio.io/interceptionMode"
	traffic              = "traffic.sidecar.istio.io/"
	IncludeRanges        = traffic + "includeOutboundIPRanges"
	ExcludeRanges        = traffic + "excludeOutboundIPRanges"
	IncludeInboundPorts  = traffic + "includeInboundPorts"
	ExcludeInboundPorts  = traffic + "excludeInboundPorts"
	ExcludeOutboundPorts = traffic + "excludeOutboundPorts"
)

// ProxyID is the proxy's user and group.
const ProxyID = 1337

// The endpoint that reports whether the proxy is ready.
const (
	proxyReadyPath = "/healthz/ready"
	proxyReadyPort = 15021
)

// A Sidecar configures the injection of a proxy. The zero value is an ordinary container with
// REDIRECT.
type Sidecar struct {
	// Native makes the proxy an init container with restartPolicy Always, which runs before those
	// that follow.
	Native bool
	// TProxy selects the mode TPROXY.
	TProxy bool
	// Env is added to the environment of the proxy and the validation, for instance
	// ISTIO_META_DNS_CAPTURE.
	Env map[string]string
}

// Inject adds to a pod what Istio's injector adds when a CNI plugin redirects: an init container
// that checks the redirection, the proxy, and the annotation that marks the pod as injected. The
// arguments of the validation repeat the pod's annotations, as Istio's do.
func Inject(pod *corev1.Pod, s Sidecar) *corev1.Pod {
	pod.Annotations[StatusAnnotation] = `{"containers":["istio-proxy"],"initContainers":["istio-validation"],"revision":"default"}`
	// The plugin, like istio-cni, does not redirect pods whose proxy has another type.
	args := []string{"proxy", "sidecar"}
	security := unprivileged(ProxyID)
	if s.TProxy {
		pod.Annotations[ModeAnnotation] = "TPROXY"
		args = append(args, "-transparent")
		security = transparent()
	}
	proxy := Container(ProxyContainer, args...)
	proxy.SecurityContext = security
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

// transparent returns the security context of the proxy for TPROXY, as in Istio.
func transparent() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		RunAsUser: new(int64(0)), RunAsGroup: new(int64(ProxyID)), RunAsNonRoot: new(bool),
		ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{
			Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"},
		},
	}
}

// validation returns the init container istio-validation, with our command for the check.
func validation(pod *corev1.Pod) corev1.Container {
	annotation := func(key, without string) string { return cmp.Or(pod.Annotations[key], without) }
	excluded := strings.TrimSuffix("15090,15021,"+annotation(ExcludeInboundPorts, ""), ",") +
		",15020"
	c := Container(ValidationContainer,
		"validate", "-p", "15001", "-z", "15006", "-u", "1337", "-m",
		annotation(ModeAnnotation, "REDIRECT"),
		"-i", annotation(IncludeRanges, "*"), "-x", annotation(ExcludeRanges, ""),
		"-b", annotation(IncludeInboundPorts, "*"), "-d", excluded)
	if ports := annotation(ExcludeOutboundPorts, ""); ports != "" {
		c.Args = append(c.Args, "-o", ports)
	}
	c.Args = append(c.Args, "--log_output_level=default:info", "--run-validation",
		"--skip-rule-apply")
	c.Command = []string{"rules"}
	c.SecurityContext = unprivileged(ProxyID)
	return c
}

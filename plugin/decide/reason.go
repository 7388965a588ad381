package decide

// A Reason is the reason for a decision: a stable word for logs and metrics.
type Reason string

// The reasons, in the order in which they are checked.
const (
	// no pod: the runtime gave no namespace or no name
	NotKubernetes Reason = "not-kubernetes"
	// our own agent, which must start when everything else is broken
	NodeAgent         Reason = "node-agent"
	NamespaceExcluded Reason = "namespace-excluded" // the configuration excludes the namespace
	PodUnknown        Reason = "pod-unknown"        // undecided: the pod must be read
	AmbientPod        Reason = "ambient-pod"        // in ambient mode: redirected to ztunnel
	HostNetwork       Reason = "host-network"       // the pod is in the host's network namespace
	IstioInit         Reason = "istio-init"         // an init container programs the rules
	ProxyDisabled     Reason = "proxy-disabled"     // DISABLE_ENVOY
	NoProxyContainer  Reason = "no-proxy-container" // nothing to redirect to
	ProxyType         Reason = "proxy-type"         // a gateway or another proxy that is no sidecar
	OptOutLabel       Reason = "opt-out-label"      // the label sidecar.istio.io/inject is false
	// the annotation sidecar.istio.io/inject is, and there is no such label
	OptOutAnnotation Reason = "opt-out-annotation"
	NotInjected      Reason = "not-injected" // no sidecar.istio.io/status
	// the mode is NONE: applications address the proxy themselves
	InterceptionNone Reason = "interception-none"
	// undecided: a selector asks for labels of the namespace
	NamespaceUnknown Reason = "namespace-unknown"
	NotSelected      Reason = "not-selected" // no selector of the configuration matches
	MeshPod          Reason = "mesh-pod"     // redirected
)

// Reasons returns all reasons, in the order in which they are checked.
func Reasons() []Reason {
	return []Reason{
		NotKubernetes, NodeAgent, NamespaceExcluded, PodUnknown, AmbientPod, HostNetwork, IstioInit,
		ProxyDisabled, NoProxyContainer, ProxyType,
		OptOutLabel, OptOutAnnotation, NotInjected, InterceptionNone, NamespaceUnknown, NotSelected,
		MeshPod,
	}
}

// RulesOutIstioInit reports whether a pod that is left alone for this reason is known to have no
// istio-init: its containers were checked first. For the reasons of [Early] they were not.
func (r Reason) RulesOutIstioInit() bool {
	switch r {
	case ProxyDisabled, NoProxyContainer, ProxyType, OptOutLabel, OptOutAnnotation, NotSelected:
		return true
	}
	return false
}

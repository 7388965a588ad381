package decide

// A Reason is the reason for a decision: a stable word for logs and metrics.
type Reason string

// The reasons, in the order in which they are checked.
const (
	// the sandbox has no pod: the runtime passes no namespace or no name
	NotKubernetes Reason = "not-kubernetes"
	// a pod of Sluice's node agent, which must start even if everything else fails
	NodeAgent         Reason = "node-agent"
	NamespaceExcluded Reason = "namespace-excluded" // the configuration excludes the namespace
	PodUnknown        Reason = "pod-unknown"        // undecided: the pod must be read
	AmbientPod        Reason = "ambient-pod"        // in ambient mode: redirected to ztunnel
	HostNetwork       Reason = "host-network"       // the pod is in the host's network namespace
	IstioInit         Reason = "istio-init"         // a container istio-init installs the rules
	NoProxyContainer  Reason = "no-proxy-container" // no container has the name of the proxy container
	ProxyDisabled     Reason = "proxy-disabled"     // the variable DISABLE_ENVOY is true
	ProxyType         Reason = "proxy-type"         // a gateway or another proxy that is not a sidecar
	OptOutLabel       Reason = "opt-out-label"      // the label sidecar.istio.io/inject is false
	// the annotation sidecar.istio.io/inject is false, and the pod has no such label
	OptOutAnnotation Reason = "opt-out-annotation"
	NotInjected      Reason = "not-injected" // there is no annotation sidecar.istio.io/status
	// the mode is NONE: applications address the proxy themselves
	InterceptionNone Reason = "interception-none"
	// undecided: a selector needs the labels of the namespace
	NamespaceUnknown Reason = "namespace-unknown"
	NotSelected      Reason = "not-selected" // no selector of the configuration matches
	MeshPod          Reason = "mesh-pod"     // redirected
)

// Reasons returns all reasons, in the order in which they are checked.
func Reasons() []Reason {
	return []Reason{
		NotKubernetes, NodeAgent, NamespaceExcluded, PodUnknown, AmbientPod, HostNetwork, IstioInit,
		NoProxyContainer, ProxyDisabled, ProxyType,
		OptOutLabel, OptOutAnnotation, NotInjected, InterceptionNone, NamespaceUnknown, NotSelected,
		MeshPod,
	}
}

// ImpliesNoIstioInit reports whether a pod that is skipped for this reason has no istio-init
// container: [Decide] returns the reason only after it has found no such container. For every
// reason that [Early] may return, the result is false, because Early does not know the containers.
func (r Reason) ImpliesNoIstioInit() bool {
	switch r {
	case NoProxyContainer, ProxyDisabled, ProxyType, OptOutLabel, OptOutAnnotation, NotSelected:
		return true
	}
	return false
}

package decide

import (
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/parameter"
)

// Settings are the fields of the plugin's configuration for decisions. The zero value excludes no
// pod that the injector has prepared for redirection, and identifies no pod as the node agent's.
type Settings struct {
	// ExcludeNamespaces are the names of namespaces whose pods are not redirected.
	ExcludeNamespaces []string
	// AgentNamespace is the namespace of Sluice's node agent, and AgentDaemonSet the name of its
	// DaemonSet. The agent's pods always start without redirection. Without the namespace, no pod
	// is identified as the agent's. Without the name, only [AgentAnnotation] identifies its pods.
	AgentNamespace, AgentDaemonSet string
	// ProxyContainer is the name of the proxy's container; istio-proxy if empty.
	ProxyContainer string
	// ValidationContainer is the name of the init container whose arguments contain the settings
	// that the pod has no annotation for; istio-validation if empty.
	ValidationContainer string
	// Selectors choose among the pods that would be redirected: one of them must match. Without
	// selectors, all match.
	Selectors []Selector
	// Ambient contains the settings of ambient mode, or is nil if ambient mode is disabled.
	Ambient *AmbientSettings
	// Without lists the deviations from Istio that are turned off.
	Without []rules.DeviationID
	// Counters gives the rules of pods counters, unless an annotation says otherwise.
	Counters bool
}

// Names of annotations, labels and containers. Istio's annotations and labels are defined in
// istio.io/api/annotation and istio.io/api/label.
const (
	// AgentAnnotation marks the pods of Sluice's node agent; its value is "true". It is ignored
	// outside the agent's namespace.
	AgentAnnotation = "sluice-mesh.github.io/node-agent"

	initContainer = "istio-init"

	injectName       = "sidecar.istio.io/inject" // a label, and an annotation
	statusAnnotation = "sidecar.istio.io/status"
	modeAnnotation   = parameter.ModeAnnotation
)

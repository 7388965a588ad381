package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/parameter"
)

// An Attachment contains the information of the container runtime about a sandbox.
type Attachment struct {
	// Namespace and Name are K8S_POD_NAMESPACE and K8S_POD_NAME of CNI_ARGS. They are empty for a
	// sandbox without a Kubernetes pod.
	Namespace, Name string
	// Annotations are the annotations of the pod, if the runtime passes them
	// (io.kubernetes.cri.pod-annotations).
	Annotations map[string]string
}

// Input contains the information on which a decision is based.
type Input struct {
	Attachment
	// Pod is nil if it is unknown.
	Pod *Pod
	// Namespace is the Namespace object of the pod, nil if unknown. Only selectors need it.
	Namespace *Namespace
}

// An Outcome states what is done with a pod.
type Outcome uint8

// The outcomes. The zero value means that more input is needed.
const (
	Undecided Outcome = iota // more input is needed: see PodUnknown and NamespaceUnknown
	Skip                     // do not redirect the pod
	Redirect                 // redirect the pod with the result of Parameters
	Ambient                  // redirect the pod to ztunnel with the result of AmbientParameters
)

// String returns the outcome as a word.
func (o Outcome) String() string {
	switch o {
	case Skip:
		return "skip"
	case Redirect:
		return "redirect"
	case Ambient:
		return "ambient"
	}
	return "undecided"
}

// A Decision is an outcome and its reason.
type Decision struct {
	Outcome Outcome
	Reason  Reason
	// Message explains the reason in a lower-case sentence without a full stop.
	Message string
}

// String returns outcome, reason and message on one line.
func (d Decision) String() string {
	return fmt.Sprintf("%s (%s): %s", d.Outcome, d.Reason, d.Message)
}

// Early decides from the information of the runtime, without the pod. The outcome is [Skip] or
// [Undecided]. If it is [Skip] because of an annotation, [Decide] would return [Skip] too, for the
// same reason or for a reason that is checked earlier.
func Early(a Attachment, s *Settings) Decision {
	if d := decideWithoutPod(a, s); d.Outcome != Undecided {
		return d
	}
	if len(a.Annotations) > 0 {
		_, injected := a.Annotations[statusAnnotation]
		switch {
		case !injected && s.Ambient != nil:
			return noDecision // labels decide
		case !injected:
			return notInjected
		}
		if a.Annotations[modeAnnotation] == modeNone {
			return skip(InterceptionNone, "annotation %s is NONE", modeAnnotation)
		}
	}
	return noDecision
}

// Decide decides from the input. It returns [Undecided] only if the outcome depends on input that
// is missing.
func Decide(in Input, s *Settings) Decision {
	if len(in.Annotations) == 0 && in.Pod != nil {
		in.Annotations = in.Pod.Metadata.Annotations
	}
	if d := decideWithoutPod(in.Attachment, s); d.Outcome != Undecided {
		return d
	}
	if in.Pod == nil {
		return noDecision
	}
	if d := s.decideAmbient(&in); d != noDecision {
		return d
	}
	for _, decideStage := range []func(*Pod, *Settings) Decision{
		decideNetwork, decideProxy, decideOptOut, decideInjection,
	} {
		if d := decideStage(in.Pod, s); d.Outcome != Undecided {
			return d
		}
	}
	if len(s.Selectors) > 0 {
		switch matchSelectors(s.Selectors, in.Pod, in.Namespace) {
		case notSelected:
			return skip(NotSelected,
				"no selector of the configuration matches the labels of the pod and its namespace")
		case selectionNeedsNamespace:
			return namespaceUnknown
		}
	}
	return Decision{
		Redirect, MeshPod,
		fmt.Sprintf("a mesh pod: container %s is its proxy", s.proxyContainer()),
	}
}

// WithNamespace is like [Decide], but if the decision depends on the pod's namespace, it calls
// fetch with the name of the namespace. If fetch fails, it returns the error.
func WithNamespace(
	in Input, s *Settings, fetch func(name string) (*Namespace, error),
) (Decision, error) {
	d := Decide(in, s)
	if d.Reason != NamespaceUnknown {
		return d, nil
	}
	var err error
	if in.Namespace, err = fetch(in.Attachment.Namespace); err != nil {
		return d, err
	}
	return Decide(in, s), nil
}

// The decisions without details. A function that considers a part of the input returns noDecision
// if this part does not determine the outcome.
var (
	noDecision       = Decision{Undecided, PodUnknown, "the pod has not been read yet"}
	namespaceUnknown = Decision{
		Undecided, NamespaceUnknown,
		"a selector needs the labels of the pod's namespace, which are unknown",
	}
	notInjected = Decision{Skip, NotInjected, "there is no annotation " + statusAnnotation +
		": the pod was not injected"}
)

const modeNone = "NONE"

func skip(reason Reason, format string, args ...any) Decision {
	return Decision{Skip, reason, fmt.Sprintf(format, args...)}
}

// decideWithoutPod decides by the attachment alone.
func decideWithoutPod(a Attachment, s *Settings) Decision {
	switch {
	case a.Namespace == "" || a.Name == "":
		return skip(NotKubernetes, "the runtime names no Kubernetes pod")
	case s.isAgent(a):
		return skip(NodeAgent,
			"a pod of Sluice's node agent, which must start even if everything else fails")
	case slices.Contains(s.ExcludeNamespaces, a.Namespace):
		return skip(NamespaceExcluded, "the configuration excludes namespace %s", a.Namespace)
	}
	return noDecision
}

// isAgent reports whether the pod belongs to the node agent: it is in the agent's namespace, and
// has the annotation [AgentAnnotation] or a name that the DaemonSet gives its pods. Such a name is
// the name of the DaemonSet, a dash and a suffix without dashes.
func (s *Settings) isAgent(a Attachment) bool {
	if s.AgentNamespace == "" || a.Namespace != s.AgentNamespace {
		return false
	}
	suffix, found := strings.CutPrefix(a.Name, s.AgentDaemonSet+"-")
	isOfDaemonSet := s.AgentDaemonSet != "" && found && suffix != "" && !strings.Contains(suffix, "-")
	return isOfDaemonSet || a.Annotations[AgentAnnotation] == "true"
}

// decideNetwork decides by the pod's network namespace and istio-init.
func decideNetwork(pod *Pod, _ *Settings) Decision {
	switch {
	case pod.Spec.HostNetwork:
		return skip(HostNetwork, "the pod is in the host's network namespace")
	case pod.container(initContainer) != nil:
		return skip(IstioInit, "container %s installs the rules", initContainer)
	}
	return noDecision
}

// decideProxy decides by the container of the proxy.
func decideProxy(pod *Pod, s *Settings) Decision {
	proxy := pod.proxy(s)
	if proxy == nil {
		return skip(NoProxyContainer, "there is no container %s", s.proxyContainer())
	}
	if disabled := proxy.variable("DISABLE_ENVOY"); disabled != nil && isTrue(disabled.Value) {
		return skip(ProxyDisabled, "variable DISABLE_ENVOY of container %s is true", proxy.Name)
	}
	if kind := proxyType(proxy.Args); kind != "" && kind != "sidecar" {
		return skip(ProxyType, "container %s is a proxy of type %s, not a sidecar", proxy.Name,
			quote(kind))
	}
	return noDecision
}

// proxyType returns the type of the proxy: the first argument of pilot-agent's command proxy. It
// returns an empty string, which means sidecar, if the command has no argument, if its first
// argument is a flag, or if pilot-agent runs any other command.
func proxyType(args []string) string {
	if len(args) < 2 || args[0] != "proxy" || strings.HasPrefix(args[1], "-") {
		return ""
	}
	return args[1]
}

// decideOptOut decides by the label and the annotation that opt out of injection. As in istio-cni,
// the label takes precedence over the annotation, even if the label's value is invalid.
func decideOptOut(pod *Pod, _ *Settings) Decision {
	if value, labeled := pod.Metadata.Labels[injectName]; labeled {
		if isFalse(value) {
			return skip(OptOutLabel, "label %s is %s", injectName, value)
		}
		return noDecision
	}
	if value := pod.Metadata.Annotations[injectName]; isFalse(value) {
		return skip(OptOutAnnotation, "annotation %s is %s", injectName, value)
	}
	return noDecision
}

// decideInjection decides by what the injector has added to the pod.
func decideInjection(pod *Pod, s *Settings) Decision {
	if !pod.IsInjected() {
		return notInjected
	}
	sources := newSources(pod, s)
	if mode := sources.find(parameter.InterceptionMode()); mode.text == modeNone {
		return skip(InterceptionNone, "%s is NONE", mode.source)
	}
	return noDecision
}

func isTrue(text string) bool {
	value, err := rules.ParseBool(text)
	return err == nil && value
}

func isFalse(text string) bool {
	value, err := rules.ParseBool(text)
	return err == nil && !value
}

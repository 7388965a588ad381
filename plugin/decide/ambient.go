package decide

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/parameter"
)

// The label that selects pods and namespaces for ambient mode, and its values
// (istio.io/api/label.IoIstioDataplaneMode).
const (
	dataplaneLabel   = "istio.io/dataplane-mode"
	dataplaneAmbient = "ambient"
	dataplaneNone    = "none"
)

// The annotations of a pod in ambient mode (istio.io/api/annotation).
const (
	dnsCaptureAnnotation    = "ambient.istio.io/dns-capture"
	bypassInboundAnnotation = "ambient.istio.io/bypass-inbound-capture"
	rerouteAnnotation       = "istio.io/reroute-virtual-interfaces"
)

// AmbientSettings are the node's settings of Istio's ambient mode. Start with
// [DefaultAmbientSettings].
type AmbientSettings struct {
	// Selectors select the pods in ambient mode: one of them must match. Without selectors, no pod
	// is in ambient mode.
	Selectors []Selector
	// DNS captures the DNS queries of pods, unless their annotation says otherwise.
	DNS bool
	// IPv6 captures IPv6, whatever addresses a pod has.
	IPv6 bool
	// ProbeSourceIPv4 and ProbeSourceIPv6 are the source addresses of probes.
	ProbeSourceIPv4, ProbeSourceIPv6 netip.Addr
}

// DefaultAmbientSettings returns the settings of Istio's chart: DNS and IPv6 are captured. A pod is
// in ambient mode if it has the label istio.io/dataplane-mode=ambient, or if its namespace has the
// label and the pod does not have istio.io/dataplane-mode=none.
func DefaultAmbientSettings() AmbientSettings {
	ambient := &LabelSelector{MatchLabels: map[string]string{dataplaneLabel: dataplaneAmbient}}
	notNone := &LabelSelector{MatchExpressions: []LabelRequirement{
		{Key: dataplaneLabel, Operator: LabelNotIn, Values: []string{dataplaneNone}},
	}}
	return AmbientSettings{
		Selectors: []Selector{{Pods: ambient}, {Pods: notNone, Namespaces: ambient}},
		DNS:       true, IPv6: true,
		ProbeSourceIPv4: rules.DefaultProbeSourceIPv4(),
		ProbeSourceIPv6: rules.DefaultProbeSourceIPv6(),
	}
}

// decideAmbient decides whether the pod is in ambient mode. It returns noDecision if the pod is
// not, and namespaceUnknown if that depends on unknown labels of the namespace. As in istio-cni,
// this decision is made before the decisions about sidecars, and a pod with a sidecar is not in
// ambient mode.
func (s *Settings) decideAmbient(in *Input) Decision {
	if s.Ambient == nil || in.Pod.Spec.HostNetwork || in.Pod.IsInjected() {
		return noDecision
	}
	switch matchSelectors(s.Ambient.Selectors, in.Pod, in.Namespace) {
	case selected:
		return Decision{
			Ambient, AmbientPod,
			"a pod in ambient mode: an enablement selector matches its labels or its namespace's",
		}
	case selectionNeedsNamespace:
		return namespaceUnknown
	}
	return noDecision
}

// AmbientParameters returns the redirection of a pod that [Decide] puts into ambient mode. Without
// an error it is valid.
//
// The error is a [rules.Faults] that names the invalid annotations. As in Istio, an annotation that
// must be a Boolean is ignored if it has another value; a [Note] then reports the annotation.
func AmbientParameters(pod *Pod, s *Settings) (rules.Ambient, []Note, error) {
	r := &result{}
	a := rules.Ambient{
		DNS: s.Ambient.DNS, IPv6: s.Ambient.IPv6,
		ProbeSourceIPv4: s.Ambient.ProbeSourceIPv4, ProbeSourceIPv6: s.Ambient.ProbeSourceIPv6,
		Counters: s.Counters, Without: slices.Clone(s.Without),
	}
	r.setBool(pod, dnsCaptureAnnotation, &a.DNS)
	r.setBool(pod, bypassInboundAnnotation, &a.BypassInboundCapture)
	r.setBool(pod, parameter.CountersAnnotation, &a.Counters)
	a.RerouteInterfaces = r.rerouteInterfaces(pod)
	faults := rules.Faults(nil)
	if errors.As(a.Validate(), &faults) {
		r.faults = append(r.faults, faults...)
	}
	if len(r.faults) > 0 {
		return rules.Ambient{}, r.notes, r.faults
	}
	return a, r.notes, nil
}

// setBool sets value if the pod has the annotation, and adds a note if the annotation is not a
// Boolean.
func (r *result) setBool(pod *Pod, annotation string, value *bool) {
	text, hasAnnotation := pod.Metadata.Annotations[annotation]
	if !hasAnnotation {
		return
	}
	parsed, err := strconv.ParseBool(text)
	if err != nil {
		r.noteIgnored("annotation "+annotation, text, parameter.Bool.Allowed())
		return
	}
	*value = parsed
}

// rerouteInterfaces returns the names in the annotation. A "+" at the end makes a name a prefix, as
// in Istio's iptables backend. A "*" at the end is a fault, because it has different meanings in
// Istio's backends.
func (r *result) rerouteInterfaces(pod *Pod) []rules.InterfaceName {
	const source = "annotation " + rerouteAnnotation
	var interfaces []rules.InterfaceName
	var wrong []string
	for element := range strings.SplitSeq(pod.Metadata.Annotations[rerouteAnnotation], ",") {
		if element = strings.TrimSpace(element); element == "" {
			continue
		}
		names, err := rules.ParseInterfaces(element)
		if err == nil && !strings.HasSuffix(element, "*") {
			interfaces = append(interfaces, names...)
			continue
		}
		wrong = append(wrong, element)
	}
	r.addFaults(source, wrong, "the name of an interface, of at most 15 bytes without blanks; + at its"+
		" end stands for any rest")
	return interfaces
}

package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/parameter"
)

// sources contains the parts of a pod that specify parameters.
type sources struct {
	pod               *Pod
	proxy, validation *Container // nil where the pod has none
	arguments         parameter.Arguments
}

// newSources returns the parts of a pod that specify parameters.
func newSources(pod *Pod, s *Settings) sources {
	found := sources{
		pod: pod, proxy: pod.proxy(s),
		validation: pod.container(cmp.Or(s.ValidationContainer, "istio-validation")),
	}
	if found.validation != nil {
		found.arguments = parameter.ParseArguments(found.validation.Args)
	}
	return found
}

// variablesOfIstioCNI are the environment variables of the proxy that istio-cni reads.
var variablesOfIstioCNI = []string{"ISTIO_META_DNS_CAPTURE", "ISTIO_DUAL_STACK", "INVALID_DROP"}

// A statedValue is the value of a parameter in a source. It has no source if no source has a value.
type statedValue struct {
	text   string
	source string // for errors; empty if there is no value
	// isAnnotated is set if the source is an annotation.
	isAnnotated bool
	// variable is the name of the environment variable, if the source is one.
	variable string
	// unread is the source of a variable that would take precedence, but is ignored because its
	// value comes from another object.
	unread string
}

func (v statedValue) isFound() bool { return v.source != "" }

// find returns the value of a parameter from the source with the highest precedence. As in Istio,
// the values in the other sources are ignored, even if they are invalid.
func (s *sources) find(p *parameter.Parameter) statedValue {
	for _, name := range p.Annotations {
		if text, ok := s.pod.Metadata.Annotations[name]; ok {
			return statedValue{text: text, source: "annotation " + name, isAnnotated: true}
		}
	}
	if p.SecurityContext != "" {
		if id := s.identity(p.SecurityContext); id.isFound() {
			return id
		}
	}
	if text, ok := s.arguments.Values[p.Flag]; ok && p.Flag != "" {
		return statedValue{
			text:   text,
			source: fmt.Sprintf("argument %s of container %s", p.FlagName(), s.validation.Name),
		}
	}
	return s.variable(p)
}

// identity returns the user or group in the security context of the proxy, or else of the pod. Like
// istio-cni, it returns the default id of the proxy for 0. A proxy that runs as root, to bind low
// ports or to use TPROXY, is identified by its group.
func (s *sources) identity(name string) statedValue {
	source := "securityContext." + name + " of the pod"
	value := contextID(name, s.pod.Spec.SecurityContext)
	if s.proxy != nil {
		if own := contextID(name, s.proxy.SecurityContext); own != nil {
			value, source = own,
				fmt.Sprintf("securityContext.%s of container %s", name, s.proxy.Name)
		}
	}
	switch {
	case value == nil:
		return statedValue{}
	case *value == 0:
		return statedValue{text: strconv.Itoa(rules.DefaultProxyID), source: source}
	}
	return statedValue{text: strconv.FormatInt(*value, 10), source: source}
}

// contextID returns the field runAsUser or runAsGroup of a security context, which may be nil.
func contextID(name string, c *SecurityContext) *int64 {
	switch {
	case c == nil:
		return nil
	case name == "runAsGroup":
		return c.RunAsGroup
	}
	return c.RunAsUser
}

// variable returns the value of a variable of the proxy, or else of the validation container: the
// injector adds the same variables to both.
func (s *sources) variable(p *parameter.Parameter) statedValue {
	// An empty variable is an empty list if the parameter is a list, except of ids. Otherwise it
	// counts as missing.
	isList := p.IsList() && p.SecurityContext == ""
	var unread string
	for _, name := range slices.Backward(p.PodVariableNames()) { // the last one has precedence
		for _, c := range []*Container{s.proxy, s.validation} {
			v := c.variable(name)
			if v == nil {
				continue
			}
			source := fmt.Sprintf("variable %s of container %s", name, c.Name)
			switch {
			case v.ValueFrom != nil:
				unread = source
			case v.Value != "" || isList:
				return statedValue{text: v.Value, source: source, variable: name, unread: unread}
			}
		}
	}
	return statedValue{unread: unread}
}

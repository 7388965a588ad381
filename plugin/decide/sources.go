package decide

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/parameter"
)

// sources are the places in a pod where parameters are stated.
type sources struct {
	pod               *Pod
	proxy, validation *Container // nil where the pod has none
	arguments         parameter.Arguments
}

func sourcesOf(pod *Pod, s *Settings) sources {
	found := sources{pod: pod, proxy: pod.proxy(s), validation: pod.validation(s)}
	if found.validation != nil {
		found.arguments = parameter.ParseArguments(found.validation.Args)
	}
	return found
}

// given is a value as it was found.
type given struct {
	text   string
	source string // for errors; empty if there is no value
	// annotated reports that an annotation states it.
	annotated bool
	// unread is a variable that takes precedence but is ignored, because its value comes from
	// another object.
	unread string
}

func (g given) found() bool { return g.source != "" }

// find returns the value of a parameter from the source with the highest precedence. As in Istio,
// other sources are ignored, even if invalid.
func (s *sources) find(p *parameter.Parameter) given {
	for _, name := range p.Annotations {
		if text, ok := s.pod.Metadata.Annotations[name]; ok {
			return given{text: text, source: "annotation " + name, annotated: true}
		}
	}
	if p.SecurityContext != "" {
		if id := s.identity(p.SecurityContext); id.found() {
			return id
		}
	}
	if text, ok := s.arguments.Values[p.Flag]; ok && p.Flag != "" {
		return given{
			text:   text,
			source: fmt.Sprintf("argument %s of container %s", p.FlagName(), s.validation.Name),
		}
	}
	return s.variable(p)
}

// identity finds an id in the security context of the proxy, or else of the pod. As for istio-cni 0
// stands for the proxy's usual number: a proxy that runs as root to bind low ports or to use TPROXY
// is known by its group.
func (s *sources) identity(name string) given {
	source := "securityContext." + name + " of the pod"
	value := valueOf(name, s.pod.Spec.SecurityContext)
	if s.proxy != nil {
		if own := valueOf(name, s.proxy.SecurityContext); own != nil {
			value, source = own,
				fmt.Sprintf("securityContext.%s of container %s", name, s.proxy.Name)
		}
	}
	switch {
	case value == nil:
		return given{}
	case *value == 0:
		return given{text: strconv.Itoa(rules.DefaultProxyID), source: source}
	}
	return given{text: strconv.FormatInt(*value, 10), source: source}
}

func valueOf(name string, c *SecurityContext) *int64 {
	switch {
	case c == nil:
		return nil
	case name == "runAsGroup":
		return c.RunAsGroup
	}
	return c.RunAsUser
}

// variable finds a variable of the proxy, or else of the validation container: the injector gives
// the same to both.
func (s *sources) variable(p *parameter.Parameter) given {
	// An empty id is none.
	list := p.List() && p.SecurityContext == ""
	var unread string
	for _, name := range slices.Backward(p.PodVariableNames()) {
		for _, c := range []*Container{s.proxy, s.validation} {
			v := c.variable(name)
			if v == nil {
				continue
			}
			source := fmt.Sprintf("variable %s of container %s", name, c.Name)
			switch {
			case v.ValueFrom != nil:
				unread = source
			case v.Value != "" || list:
				return given{text: v.Value, source: source, unread: unread}
			}
		}
	}
	return given{unread: unread}
}

package parameter

import (
	"slices"
	"sync"

	"github.com/sluice-mesh/sluice/rules"
)

// A Parameter is one property of a redirection, and the names under which it can be stated.
type Parameter struct {
	// Field is the field of [rules.Redirect] that the parameter sets, or for a parameter of
	// [Ambient] the field of [rules.Ambient]; a [rules.Fault] names this field. Field is empty if
	// no Fault can be about the parameter.
	Field string
	// Kind is the type of the value.
	Kind Kind
	// Flag and Short are the long and the short name of the flag, or empty. The flags of [All] are
	// flags of istio-iptables.
	Flag, Short string
	// Variables are the environment variables. If several are set, the last takes precedence. The
	// flag takes precedence over all variables.
	Variables []string
	// PodVariables are the environment variables of the proxy container to which the injector
	// writes the value. nil means Variables.
	PodVariables []string
	// Annotations are the annotations of a pod. The first one that is present takes precedence.
	Annotations []string
	// SecurityContext is the field of a container's or a pod's securityContext, or empty.
	SecurityContext string
	// Config is the field of the CNI plugin's configuration, or empty.
	Config string
	// AgentVariable is the environment variable of the node agent that sets Config, or empty. Helm
	// is the key of the chart's values that sets AgentVariable.
	AgentVariable, Helm string
	// Repeat reports whether [Parameter.Set] adds the elements of its text, which are separated by
	// commas, to a list. If so, the flag can be given several times.
	Repeat bool
	// Placeholder represents the value in help. It is empty for a Boolean.
	Placeholder string
	// Default is the value without flag and variable, or empty.
	Default string
	// Ambient reports whether a parameter of [All] or [SluiceOnly] also has an effect in ambient
	// mode.
	Ambient bool
	// Section groups the parameters in help.
	Section Section
	// Help describes the parameter in a phrase.
	Help string

	set func(*Values, string, Names) error
}

// A Section is a topic of help.
type Section uint8

// The sections.
const (
	SectionProxy Section = iota
	SectionInbound
	SectionTProxy
	SectionOutbound
	SectionDNS
	SectionPod
	SectionMode
	SectionAmbient
	SectionSluice
	SectionBackend
)

// Names contains the lookups of numeric ids by the names of users and groups. Without a lookup,
// names are invalid.
type Names struct{ Users, Groups rules.Lookup }

// All returns the parameters of istio-iptables and of pods. The caller must not change them.
// [SluiceOnly] returns the parameters that Istio does not have.
func All() []Parameter { return istioParameters() }

// SluiceOnly returns the parameters that Istio does not have. The caller must not change them. The
// command rules has a flag for each of them. The configuration of the CNI plugin can set those with
// [Parameter.Config], and a pod can set those with [Parameter.Annotations].
func SluiceOnly() []Parameter { return sluiceParameters() }

// OfPods returns the parameters that a pod can set: all parameters of [All], and the parameters of
// [SluiceOnly] that have an annotation. The caller must not change them.
func OfPods() []Parameter { return settableByPods() }

// Ambient returns the parameters that only ambient mode has. Parameters of a sidecar that also have
// an effect in ambient mode are in [All] and [SluiceOnly]; their field [Parameter.Ambient] is true.
// The caller must not change them.
func Ambient() []Parameter { return ambientParameters() }

// Each list is built at the first use, because most programs that link this package never use it.
var (
	istioParameters = sync.OnceValue(func() []Parameter {
		return slices.Concat(proxyParameters(), inboundParameters(), outboundParameters(),
			podParameters())
	})
	sluiceParameters  = sync.OnceValue(buildSluiceParameters)
	ambientParameters = sync.OnceValue(buildAmbientParameters)
	settableByPods    = sync.OnceValue(func() []Parameter {
		annotated := slices.DeleteFunc(slices.Clone(SluiceOnly()), func(p Parameter) bool {
			return len(p.Annotations) == 0
		})
		return slices.Concat(All(), annotated)
	})
)

// InterceptionMode returns the parameter of the interception mode.
func InterceptionMode() *Parameter {
	all := All()
	return &all[slices.IndexFunc(all, func(p Parameter) bool { return p.Kind == Mode })]
}

// IsList reports whether the value is a list. If it is, an empty variable means an empty list;
// otherwise an empty variable counts as not set.
func (p *Parameter) IsList() bool { return p.Kind.isList() }

// PodVariableNames returns the variables of the proxy container that contain the value.
func (p *Parameter) PodVariableNames() []string {
	if p.PodVariables != nil {
		return p.PodVariables
	}
	return p.Variables
}

// DefaultText returns the default as text. If Default is empty, the text is "false" for a Boolean,
// and "none" for other kinds.
func (p *Parameter) DefaultText() string {
	switch {
	case p.Default != "":
		return p.Default
	case p.Kind == Bool:
		return "false"
	}
	return "none"
}

// FlagName returns the flag as errors name it: --envoy-port (-p).
func (p *Parameter) FlagName() string {
	if p.Short != "" {
		return "--" + p.Flag + " (-" + p.Short + ")"
	}
	return "--" + p.Flag
}

// Set parses the text in the syntax of istio-iptables and stores the value. If elements are
// invalid, the error has one line for each of them, and the values are unchanged.
func (p *Parameter) Set(v *Values, text string, n Names) error { return p.set(v, text, n) }

// setter returns a function that parses a text and stores the value in the field.
func setter[T any](
	parse func(string) (T, error), field func(*Values) *T,
) func(*Values, string, Names) error {
	return func(v *Values, text string, _ Names) error { return assign(field(v))(parse(text)) }
}

// assign returns a function that stores the result of a parser, unless the parser failed.
func assign[T any](field *T) func(T, error) error {
	return func(value T, err error) error {
		if err == nil {
			*field = value
		}
		return err
	}
}

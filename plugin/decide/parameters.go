package decide

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/parameter"
)

// Inbound ports that istio-cni never captures: the status port of Istio's agent, and Envoy's health
// port and its port for Prometheus.
const (
	statusPort     = 15020
	healthPort     = 15021
	prometheusPort = 15090
)

// result contains the parameters of a redirection, its notes, and the faults of invalid values.
type result struct {
	parameter.Values

	notes  []Note
	faults rules.Faults
	// origins contains the sources of the values that the pod specifies, by the field of Redirect.
	origins map[string]string
	// isAnnotated contains the fields that an annotation sets.
	isAnnotated map[string]bool
	// ofIstioInit contains the effective variables that istio-init reads and istio-cni does not.
	ofIstioInit []string
}

// Parameters returns the redirection of a pod that [Decide] redirects. addresses are the pod's
// addresses in any order. The addresses that [GlobalAddresses] keeps determine whether IPv6 is
// captured (see [rules.CapturesIPv6]).
//
// The error is a [rules.Faults] that lists all invalid values. [rules.Fault.Field] names the source
// of the value, such as an annotation, or an argument and its container. Values are truncated and
// quoted, so that each fault is a short line. With an error, the redirection is the zero value;
// without an error, it is valid.
func Parameters(pod *Pod, addresses []netip.Addr, s *Settings) (rules.Redirect, []Note, error) {
	sources := newSources(pod, s)
	r := &result{
		Values: parameter.Values{Redirect: defaults(s)}, origins: map[string]string{},
		isAnnotated: map[string]bool{},
	}
	parameters := parameter.OfPods()
	for i := range parameters {
		r.setParameter(&sources, &parameters[i])
	}
	if missing := sources.arguments.MissingValue; missing != "" {
		r.addFault(fmt.Sprintf("argument %s of container %s", missing, sources.validation.Name), `""`,
			"a value")
	}
	r.setDependentFields()
	r.setFamilies(addresses)
	r.validate()
	if len(r.faults) > 0 {
		return rules.Redirect{}, r.notes, r.faults
	}
	r.noteArguments(&sources)
	r.noteVariables()
	r.noteInitContainers(&sources)
	r.noteApplication(&sources)
	return r.Redirect, r.notes, nil
}

// defaults returns istio-cni's defaults: all inbound ports and all outbound addresses are captured.
// setDependentFields excludes the ports of Istio's agent and of Envoy.
func defaults(s *Settings) rules.Redirect {
	r := rules.DefaultRedirect()
	r.InboundPorts.All = true
	r.OutboundCIDRs.All = true
	r.DNS.All = true
	r.Without, r.Counters = slices.Clone(s.Without), s.Counters
	return r
}

// setParameter sets one parameter if the pod specifies it, and adds the faults of its value.
// Annotations have the syntax of the injector; arguments and variables have the syntax of
// istio-iptables. setParameter adds a note if a value is in a source that is not read, or contains
// names that cannot be resolved, or if it ignores an annotation.
func (r *result) setParameter(s *sources, p *parameter.Parameter) {
	value := s.find(p)
	if value.unread != "" {
		r.note(VariableUnread, "%s comes from a source that is not read, and has no effect",
			value.unread)
	}
	if !value.isFound() {
		return
	}
	if names := p.NamesIn(value.text); len(names) > 0 && !value.isAnnotated {
		r.note(NamesUnresolved, "%s has no effect, because it contains names of users or groups, "+
			"whose ids only the image of the container defines: %s", value.source, shortList(names))
		return
	}
	set, allowed := p.SetFromArgument, p.Kind.AllowedInArgument()
	if value.isAnnotated {
		set, allowed = p.SetFromAnnotation, p.Kind.Allowed()
	}
	wrong := set(&r.Values, value.text)
	if len(wrong) > 0 && p.Config != "" {
		// Istio does not have the parameter. The value in the plugin's configuration applies.
		r.noteIgnored(value.source, value.text, allowed)
		return
	}
	if value.variable != "" && value.text != p.DefaultText() &&
		!slices.Contains(variablesOfIstioCNI, value.variable) {
		r.ofIstioInit = append(r.ofIstioInit, value.variable)
	}
	r.origins[p.Field], r.isAnnotated[p.Field] = value.source, value.isAnnotated
	if p.Kind == parameter.Mode {
		allowed = "REDIRECT, TPROXY or NONE" // decideInjection handles NONE
	}
	r.addFaults(value.source, wrong, allowed)
}

// addFaults adds a fault for each of the first wrong elements of a list, and one for the others.
func (r *result) addFaults(source string, wrong []string, allowed string) {
	for _, element := range wrong[:min(len(wrong), maxListed)] {
		r.addFault(source, quote(element), allowed)
	}
	switch omitted := len(wrong) - maxListed; {
	case omitted == 1:
		r.addFault(source, "one more element", allowed)
	case omitted > 1:
		r.addFault(source, fmt.Sprintf("each of %d more elements", omitted), allowed)
	}
}

func (r *result) addFault(source, value, allowed string) {
	r.faults = append(r.faults, rules.Fault{Field: source, Value: value, Allowed: allowed})
}

// setDependentFields sets the fields that depend on several parameters.
func (r *result) setDependentFields() {
	// Only an annotation of the pod replaces istio-cni's default, which is the status port. Values
	// from other sources apply to the whole mesh, and are added to the default.
	if !r.isAnnotated["OutboundExcludePorts"] {
		r.Redirect.OutboundExcludePorts = rules.Normalize(append(rules.Singles[uint16](statusPort),
			r.Redirect.OutboundExcludePorts...))
	}
	excluded := rules.Singles[uint16](statusPort, healthPort, prometheusPort)
	if r.StatusPort != 0 {
		excluded = append(excluded, rules.Single(r.StatusPort))
	}
	r.Redirect.InboundExcludePorts = rules.Normalize(append(excluded,
		r.Redirect.InboundExcludePorts...))
	// An empty -u or -g counts as missing, as for istio-iptables.
	if len(r.Redirect.ProxyUIDs) == 0 {
		r.Redirect.ProxyUIDs = rules.Singles[uint32](rules.DefaultProxyID)
	}
	if len(r.Redirect.ProxyGIDs) == 0 {
		r.Redirect.ProxyGIDs = rules.Singles[uint32](rules.DefaultProxyID)
	}
	if r.Redirect.DNS.Capture && !r.Redirect.DNS.All {
		r.note(AllDNSCaptured,
			"CAPTURE_ALL_DNS is false, but the queries to all servers are captured, as by istio-cni: "+
				"the pod's own servers are not known when its rules are made")
	}
	r.Redirect.DNS.All = r.Redirect.DNS.Capture
}

// setFamilies determines the captured address families from the pod's addresses.
func (r *result) setFamilies(addresses []netip.Addr) {
	global := GlobalAddresses(addresses)
	if len(global) == 0 {
		r.addFault("addresses of the pod", fmt.Sprintf("a list of %d", len(addresses)),
			"at least one address that is neither loopback nor link-local")
		return
	}
	r.Redirect.IPv6 = rules.CapturesIPv6(global, r.DualStack)
	r.noteIPv6(global)
}

// GlobalAddresses returns the addresses that determine the address families of a pod, in the given
// order. It omits loopback, link-local and unspecified addresses. If no address remains,
// [Parameters] fails.
func GlobalAddresses(addresses []netip.Addr) []netip.Addr {
	var global []netip.Addr
	for _, a := range addresses {
		if a = a.Unmap(); rules.DecidesFamily(a) && !a.IsUnspecified() {
			global = append(global, a.WithZone(""))
		}
	}
	return global
}

// validate adds the faults of the complete redirection. Each fault names the source of the field.
func (r *result) validate() {
	var faults rules.Faults
	if !errors.As(r.Redirect.Validate(), &faults) {
		return
	}
	for _, f := range faults {
		r.addFault(cmp.Or(r.origins[f.Field], f.Field), f.Value, f.Allowed)
	}
}

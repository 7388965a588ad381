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

// The ports of the agent and of Envoy that istio-cni never captures inbound: the agent's status
// port, Envoy's health port and its port for Prometheus.
const (
	statusPort     = 15020
	healthPort     = 15021
	prometheusPort = 15090
)

// result contains the parameters of a redirection, and the errors.
type result struct {
	parameter.Values

	notes  []Note
	faults rules.Faults
	// origins contains the source of each field of the Redirect.
	origins map[string]string
	// annotated contains the fields that an annotation sets.
	annotated map[string]bool
}

// Parameters returns the redirection of a pod that [Decide] redirects. The addresses are the pod's,
// in the order of the CNI result; the first of the [Deciding] ones decides on IPv6.
//
// The error is a [rules.Faults] that lists everything that is wrong: as its Field it names the
// annotation, the argument or the variable and its container. Values are cut and quoted, so that
// each fault is a short line whatever the pod says. The redirection is then the zero value. Without
// an error it is valid.
func Parameters(pod *Pod, addresses []netip.Addr, s *Settings) (rules.Redirect, []Note, error) {
	found := sourcesOf(pod, s)
	r := &result{
		Values: parameter.Values{Redirect: defaults(s)}, origins: map[string]string{},
		annotated: map[string]bool{},
	}
	parameters := parameter.OfPods()
	for i := range parameters {
		r.take(&found, &parameters[i])
	}
	if missing := found.arguments.MissingValue; missing != "" {
		r.addFault(fmt.Sprintf("argument %s of container %s", missing, found.validation.Name), `""`,
			"a value")
	}
	r.complete()
	r.setFamilies(addresses)
	r.validate()
	if len(r.faults) > 0 {
		return rules.Redirect{}, r.notes, r.faults
	}
	r.noteArguments(&found)
	r.noteInitContainers(&found)
	return r.Redirect, r.notes, nil
}

// defaults returns istio-cni's defaults: all traffic is captured except requests to the agent's
// status port and Envoy's ports.
func defaults(s *Settings) rules.Redirect {
	r := rules.DefaultRedirect()
	r.InboundPorts.All = true
	r.OutboundCIDRs.All = true
	r.DNS.All = true
	r.Without, r.Counters = slices.Clone(s.Without), s.Counters
	return r
}

// take sets one parameter, if the pod states it.
func (r *result) take(found *sources, p *parameter.Parameter) {
	value := found.find(p)
	if value.unread != "" {
		r.note(VariableUnread, "%s comes from a source that is not read, and has no effect",
			value.unread)
	}
	if !value.found() {
		return
	}
	r.origins[p.Field], r.annotated[p.Field] = value.source, value.annotated
	wrong := p.SetOfPod(&r.Values, value.text)
	for _, element := range wrong[:min(len(wrong), maxListed)] {
		r.addFault(value.source, quote(element), p.Kind.Allowed())
	}
	if omitted := len(wrong) - maxListed; omitted > 0 {
		r.addFault(value.source, fmt.Sprintf("each of %d more elements", omitted), p.Kind.Allowed())
	}
}

func (r *result) addFault(source, value, want string) {
	r.faults = append(r.faults, rules.Fault{Field: source, Value: value, Allowed: want})
}

// complete sets the fields that depend on several parameters.
func (r *result) complete() {
	// Only the pod's own annotation replaces istio-cni's default; values for the whole mesh are
	// added to it.
	if !r.annotated["OutboundExcludePorts"] {
		r.Redirect.OutboundExcludePorts = rules.Normalize(append(rules.Singles[uint16](statusPort),
			r.Redirect.OutboundExcludePorts...))
	}
	excluded := rules.Singles[uint16](statusPort, healthPort, prometheusPort)
	if r.StatusPort != 0 {
		excluded = append(excluded, rules.Single(r.StatusPort))
	}
	r.Redirect.InboundExcludePorts = rules.Normalize(append(excluded,
		r.Redirect.InboundExcludePorts...))
	// An empty -u or -g is none, for istio-iptables too.
	if len(r.Redirect.ProxyUIDs) == 0 {
		r.Redirect.ProxyUIDs = rules.Singles[uint32](rules.DefaultProxyID)
	}
	if len(r.Redirect.ProxyGIDs) == 0 {
		r.Redirect.ProxyGIDs = rules.Singles[uint32](rules.DefaultProxyID)
	}
	if r.Redirect.DNS.Capture && !r.Redirect.DNS.All {
		r.note(AllDNSCaptured,
			"CAPTURE_ALL_DNS is false, but the queries to all servers are captured, as by istio-cni: "+
				"the pod's own are not known when its rules are made")
	}
	// The servers of the pod's resolv.conf are not known when the sandbox is made.
	r.Redirect.DNS.All = r.Redirect.DNS.Capture
}

// setFamilies determines the captured address families from the pod's addresses.
func (r *result) setFamilies(addresses []netip.Addr) {
	deciding := Deciding(addresses)
	if len(deciding) == 0 {
		r.addFault("addresses of the pod", fmt.Sprintf("a list of %d", len(addresses)),
			"one that is neither loopback nor link-local")
		return
	}
	r.Redirect.IPv6 = rules.CapturesIPv6(deciding, r.DualStack)
	r.noteFamily(deciding)
}

// Deciding returns the addresses that determine the families of a pod, in the given order:
// loopback, link-local and unspecified ones do not. Without any, [Parameters] fails.
func Deciding(addresses []netip.Addr) []netip.Addr {
	var deciding []netip.Addr
	for _, a := range addresses {
		if a = a.Unmap(); rules.DecidesFamily(a) && !a.IsUnspecified() {
			deciding = append(deciding, a.WithZone(""))
		}
	}
	return deciding
}

// validate adds the faults of the redirection as a whole, with the names of the inputs.
func (r *result) validate() {
	var faults rules.Faults
	if !errors.As(r.Redirect.Validate(), &faults) {
		return
	}
	for _, f := range faults {
		r.addFault(cmp.Or(r.origins[f.Field], f.Field), f.Value, f.Allowed)
	}
}

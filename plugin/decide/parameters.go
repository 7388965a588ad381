package decide

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// The ports of the agent and of Envoy that istio-cni never captures inbound: the agent's status
// port, Envoy's health port and its port for Prometheus.
const (
	statusPort     = 15020
	healthPort     = 15021
	prometheusPort = 15090
)

// result is what the parameters make.
type result struct {
	redirect   rules.Redirect
	dualStack  bool
	allDNS     bool
	statusPort uint16
	notes      []Note
	faults     rules.Faults
	// origins says, for each field of the Redirect, where its value comes from.
	origins map[string]string
	// annotated has the fields that an annotation states.
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
	r := &result{redirect: defaults(s), allDNS: true, origins: map[string]string{}, annotated: map[string]bool{}}
	parameters := table()
	for i := range parameters {
		r.take(&found, &parameters[i])
	}
	if bare := found.arguments.bare; bare != "" {
		r.fault(fmt.Sprintf("argument %s of container %s", bare, found.validation.Name), `""`, "a value")
	}
	r.complete()
	r.setFamilies(addresses)
	r.validate()
	if len(r.faults) > 0 {
		return rules.Redirect{}, r.notes, r.faults
	}
	r.noteArguments(&found)
	r.noteInitContainers(&found)
	return r.redirect, r.notes, nil
}

// defaults are those of istio-cni: all is captured, but for what asks the agent's status port.
func defaults(s *Settings) rules.Redirect {
	r := rules.DefaultRedirect()
	r.InboundPorts.All = true
	r.OutboundCIDRs.All = true
	r.Without = slices.Clone(s.Without)
	return r
}

// take sets one parameter, if the pod states it.
func (r *result) take(found *sources, p *parameter) {
	value := found.find(p)
	if value.unread != "" {
		r.note(VariableUnread, "%s comes from a source that is not read, and has no effect", value.unread)
	}
	if !value.found() {
		return
	}
	r.origins[p.field], r.annotated[p.field] = value.source, value.annotated
	wrong := p.set(r, value.text)
	for _, element := range wrong[:min(len(wrong), maxListed)] {
		r.fault(value.source, quote(element), p.want)
	}
	if more := len(wrong) - maxListed; more > 0 {
		r.fault(value.source, fmt.Sprintf("each of %d more elements", more), p.want)
	}
}

func (r *result) fault(source, value, want string) {
	r.faults = append(r.faults, rules.Fault{Field: source, Value: value, Allowed: want})
}

// complete adds what follows from several parameters.
func (r *result) complete() {
	// Only the pod's own annotation takes the place of istio-cni's default; what is stated for all
	// of the mesh comes beside it.
	if !r.annotated["OutboundExcludePorts"] {
		r.redirect.OutboundExcludePorts = rules.Normalise(append(rules.Singles[uint16](statusPort), r.redirect.OutboundExcludePorts...))
	}
	excluded := rules.Singles[uint16](statusPort, healthPort, prometheusPort)
	if r.statusPort != 0 {
		excluded = append(excluded, rules.Single(r.statusPort))
	}
	r.redirect.InboundExcludePorts = rules.Normalise(append(excluded, r.redirect.InboundExcludePorts...))
	// An empty -u or -g is none, for istio-iptables too.
	if len(r.redirect.ProxyUIDs) == 0 {
		r.redirect.ProxyUIDs = rules.Singles[uint32](rules.DefaultProxyID)
	}
	if len(r.redirect.ProxyGIDs) == 0 {
		r.redirect.ProxyGIDs = rules.Singles[uint32](rules.DefaultProxyID)
	}
	// Which servers the pod's resolv.conf will name is not known when the sandbox is made.
	r.redirect.DNS.All = r.redirect.DNS.Capture
	if r.redirect.DNS.Capture && !r.allDNS {
		r.note(AllDNSCaptured, "CAPTURE_ALL_DNS is false, but the queries to all servers are captured, as by istio-cni: "+
			"the pod's own are not known when its rules are made")
	}
}

// setFamilies finds out from the pod's addresses which families are captured.
func (r *result) setFamilies(addresses []netip.Addr) {
	deciding := Deciding(addresses)
	if len(deciding) == 0 {
		r.fault("addresses of the pod", fmt.Sprintf("a list of %d", len(addresses)), "one that is neither loopback nor link-local")
		return
	}
	r.redirect.IPv6 = rules.CapturesIPv6(deciding, r.dualStack)
	r.noteFamily(deciding)
}

// Deciding returns those of a pod's addresses that say which families it has, in their order:
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

// validate adds what is wrong with the redirection as a whole, by the names of the inputs.
func (r *result) validate() {
	var faults rules.Faults
	if !errors.As(r.redirect.Validate(), &faults) {
		return
	}
	for _, f := range faults {
		r.fault(cmp.Or(r.origins[f.Field], f.Field), f.Value, f.Allowed)
	}
}

package parameter

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// CountersAnnotation is the annotation of a pod that turns counters on or off for its rules.
const CountersAnnotation = "sluice-mesh.github.io/counters"

// buildSluiceParameters returns the parameters that Istio does not have.
func buildSluiceParameters() []Parameter {
	return []Parameter{
		{
			Field: "DNS.Servers", Kind: Server, Repeat: true,
			Flag:        "nameserver",
			Placeholder: "ADDRESS", Section: SectionDNS,
			Help: "nameserver of the pod; by default the nameservers of /etc/resolv.conf; " +
				"without any, DNS is captured only with --capture-all-dns",
			set: appender(rules.ParseServer, func(v *Values) *[]netip.Addr {
				return &v.Redirect.DNS.Servers
			}),
		},
		{
			Kind: PodAddress, Repeat: true,
			Flag:        "pod-ip",
			Placeholder: "ADDRESS", Section: SectionPod,
			Help: "address of the pod",
			set:  appender(parsePodAddress, func(v *Values) *[]netip.Addr { return &v.PodIPs }),
		},
		{
			Kind: Backend,
			Flag: "backend", Variables: []string{"BACKEND"},
			Config: "backend", AgentVariable: "SLUICE_BACKEND", Helm: "backend",
			Placeholder: "auto|nft|legacy", Default: "auto", Ambient: true, Section: SectionBackend,
			Help: "backend: nft (nf_tables), legacy (iptables-legacy), or auto, " +
				"the first of the two that the kernel supports",
			set: setter(parseBackend, func(v *Values) *string { return &v.Backend }),
		},
		{
			Kind:   Bool,
			Flag:   "strict-istio",
			Config: "strict_istio", AgentVariable: "SLUICE_STRICT_ISTIO", Helm: "strictIstio",
			Ambient: true, Section: SectionSluice,
			Help: "treat every packet as istio-init does: disables all deviations",
			set:  setter(rules.ParseBool, func(v *Values) *bool { return &v.StrictIstio }),
		},
		{
			Field: "Without", Kind: Deviation, Repeat: true,
			Flag:   "without",
			Config: "deviations_off", AgentVariable: "SLUICE_DEVIATIONS_OFF", Helm: "deviationsOff",
			Placeholder: "DEVIATION", Ambient: true, Section: SectionSluice,
			Help: "disable single deviations from Istio by id",
			set: appender(rules.ParseDeviationID, func(v *Values) *[]rules.DeviationID {
				return &v.Redirect.Without
			}),
		},
		{
			Kind:    Bool,
			Flag:    "keep-established",
			Section: SectionSluice,
			Help: "do not capture connections that were established before the rules; " +
				"for running pods only, because a connection whose conntrack entry was removed " +
				"also bypasses the proxy",
			set: setter(rules.ParseBool, func(v *Values) *bool { return &v.Redirect.KeepEstablished }),
		},
		{
			Kind: Bool,
			Flag: "counters", Annotations: []string{CountersAnnotation},
			Config: "counters", AgentVariable: "SLUICE_COUNTERS", Helm: "counters",
			Ambient: true, Section: SectionSluice,
			Help: "give each rule a counter in nf_tables; the rules of iptables-legacy always have counters",
			set:  setter(rules.ParseBool, func(v *Values) *bool { return &v.Redirect.Counters }),
		},
	}
}

// OfConfig returns the parameter with the field name in the configuration of the CNI plugin. It
// panics if no parameter has the field.
func OfConfig(field string) *Parameter {
	parameters := SluiceOnly()
	i := slices.IndexFunc(parameters, func(p Parameter) bool { return p.Config == field })
	if i < 0 {
		panic("parameter: no parameter has the field " + field)
	}
	return &parameters[i]
}

// parsePodAddress parses an address that can decide whether IPv6 is captured.
func parsePodAddress(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || !rules.DecidesFamily(a) || a.IsUnspecified() || a.IsMulticast() {
		return a, fmt.Errorf("%q is not an address of a pod: want %s", text, PodAddress.Allowed())
	}
	return a.Unmap(), nil
}

// parseBackend parses the name of a backend.
func parseBackend(text string) (string, error) {
	if !slices.Contains(Backend.Words(), text) {
		return "", fmt.Errorf("%q is not allowed: want %s", text, Backend.Allowed())
	}
	return text, nil
}

// appender returns a function that parses the elements of a text, which are separated by commas,
// and appends them to a list.
func appender[T any](
	parse func(string) (T, error), list func(*Values) *[]T,
) func(*Values, string, Names) error {
	return func(v *Values, text string, _ Names) error {
		var elements []T
		var faults []error
		for word := range strings.SplitSeq(text, ",") {
			element, err := parse(word)
			elements, faults = append(elements, element), append(faults, err)
		}
		err := errors.Join(faults...)
		if err == nil {
			*list(v) = append(*list(v), elements...)
		}
		return err
	}
}

package parameter

import (
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// buildAmbientParameters returns the parameters that only ambient mode has. Their variables are
// variables of istio-cni's node agent, and their annotations are Istio's. Of the variables,
// istio-cni's chart sets AMBIENT_DNS_CAPTURE and AMBIENT_IPV6. The defaults equal the defaults of
// the chart.
func buildAmbientParameters() []Parameter {
	return []Parameter{
		{
			Kind:    Bool,
			Flag:    "ambient",
			Section: SectionMode,
			Help:    "redirect to ztunnel, as istio-cni does in ambient mode, instead of to a sidecar",
			set:     setter(rules.ParseBool, func(v *Values) *bool { return &v.AmbientMode }),
		},
		{
			Kind: Bool,
			Flag: "ambient-dns-capture", Variables: []string{"AMBIENT_DNS_CAPTURE"},
			Annotations: []string{"ambient.istio.io/dns-capture"},
			Default:     "true", Section: SectionAmbient,
			Help: "with --ambient: capture DNS queries to any server",
			set:  setter(rules.ParseBool, func(v *Values) *bool { return &v.Ambient.DNS }),
		},
		{
			Kind: Bool,
			Flag: "ambient-ipv6", Variables: []string{"AMBIENT_IPV6"},
			Default: "true", Section: SectionAmbient,
			Help: "with --ambient: capture IPv6 in addition to IPv4, whatever addresses the pod has",
			set:  setter(rules.ParseBool, func(v *Values) *bool { return &v.Ambient.IPv6 }),
		},
		{
			Kind:        Bool,
			Flag:        "bypass-inbound-capture",
			Annotations: []string{"ambient.istio.io/bypass-inbound-capture"},
			Section:     SectionAmbient,
			Help:        "with --ambient: capture no inbound connections",
			set: setter(rules.ParseBool, func(v *Values) *bool {
				return &v.Ambient.BypassInboundCapture
			}),
		},
		{
			Field: "ProbeSourceIPv4", Kind: ProbeSourceIPv4,
			Flag: "host-probe-snat-ip", Variables: []string{"HOST_PROBE_SNAT_IP"},
			Placeholder: "ADDRESS", Default: rules.DefaultProbeSourceIPv4().String(),
			Section: SectionAmbient,
			Help:    "with --ambient: IPv4 source address of probes, whose connections are not captured",
			set: setter(parseAddress, func(v *Values) *netip.Addr {
				return &v.Ambient.ProbeSourceIPv4
			}),
		},
		{
			Field: "ProbeSourceIPv6", Kind: ProbeSourceIPv6,
			Flag: "host-probe-snat-ipv6", Variables: []string{"HOST_PROBE_SNAT_IPV6"},
			Placeholder: "ADDRESS", Default: rules.DefaultProbeSourceIPv6().String(),
			Section: SectionAmbient,
			Help:    "with --ambient: IPv6 source address of probes, whose connections are not captured",
			set: setter(parseAddress, func(v *Values) *netip.Addr {
				return &v.Ambient.ProbeSourceIPv6
			}),
		},
	}
}

// parseAddress parses any address: [rules.Ambient.Validate] checks it.
func parseAddress(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, fmt.Errorf("%q is not an IP address", text)
	}
	return a, nil
}

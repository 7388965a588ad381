package parameter

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// trafficPrefix is the prefix of the annotations that select captured traffic.
const trafficPrefix = "traffic.sidecar.istio.io/"

// ModeAnnotation is the annotation with the interception mode.
const ModeAnnotation = "sidecar.istio.io/interceptionMode"

// proxyParameters returns the parameters of the proxy.
func proxyParameters() []Parameter {
	return []Parameter{
		{
			Field: "ProxyPort", Kind: Port,
			Flag: "envoy-port", Short: "p",
			Placeholder: "PORT", Default: "15001", Section: SectionProxy,
			Help: "port where the proxy accepts outbound connections; has no environment variable",
			set:  setter(rules.ParsePort, func(v *Values) *uint16 { return &v.Redirect.ProxyPort }),
		},
		{
			Field: "InboundCapturePort", Kind: Port,
			Flag: "inbound-capture-port", Short: "z", Variables: []string{"INBOUND_CAPTURE_PORT"},
			Placeholder: "PORT", Default: "15006", Section: SectionProxy,
			Help: "port where the proxy accepts inbound connections",
			set: setter(rules.ParsePort, func(v *Values) *uint16 {
				return &v.Redirect.InboundCapturePort
			}),
		},
		{
			Field: "TunnelPort", Kind: Port,
			Flag: "inbound-tunnel-port", Short: "e", Variables: []string{"INBOUND_TUNNEL_PORT"},
			Placeholder: "PORT", Default: "15008", Section: SectionProxy,
			Help: "port where other proxies reach this proxy (HBONE); not captured",
			set:  setter(rules.ParsePort, func(v *Values) *uint16 { return &v.Redirect.TunnelPort }),
		},
		{
			Field: "ProxyUIDs", Kind: IDs,
			Flag: "proxy-uid", Short: "u", Variables: []string{"PROXY_UID"},
			SecurityContext: "runAsUser",
			Placeholder:     "USERS", Section: SectionProxy,
			Help: "users of the proxy, whose traffic is not captured: ids, ranges of ids, and names; " +
				"by default the user $ENVOY_USER, else 1337",
			set: func(v *Values, text string, n Names) error {
				return assign(&v.Redirect.ProxyUIDs)(rules.ParseIDs(text, n.Users))
			},
		},
		{
			Field: "ProxyGIDs", Kind: IDs,
			Flag: "proxy-gid", Short: "g", Variables: []string{"PROXY_GID"},
			SecurityContext: "runAsGroup",
			Placeholder:     "GROUPS", Section: SectionProxy,
			Help: "groups of the proxy, whose traffic is not captured; by default the ids of its users, " +
				"in pods 1337",
			set: func(v *Values, text string, n Names) error {
				return assign(&v.Redirect.ProxyGIDs)(rules.ParseIDs(text, n.Groups))
			},
		},
		{
			Kind:        UserName,
			Variables:   []string{"ENVOY_USER"},
			Placeholder: "USER", Default: "istio-proxy", Section: SectionProxy,
			Help: "user of the proxy if --proxy-uid is not given; has no effect in pods",
			set:  func(v *Values, text string, _ Names) error { v.EnvoyUser = text; return nil },
		},
	}
}

// inboundParameters returns the parameters of the capture of inbound connections.
func inboundParameters() []Parameter {
	return []Parameter{
		{
			Field: "Mode", Kind: Mode,
			Flag: "istio-inbound-interception-mode", Short: "m",
			Variables:    []string{"ISTIO_INBOUND_INTERCEPTION_MODE"},
			Annotations:  []string{ModeAnnotation},
			PodVariables: []string{"ISTIO_META_INTERCEPTION_MODE"},
			Placeholder:  "MODE", Default: "REDIRECT", Section: SectionInbound,
			Help: "how inbound connections are captured: REDIRECT or TPROXY",
			set:  setter(rules.ParseMode, func(v *Values) *rules.Mode { return &v.Redirect.Mode }),
		},
		{
			Field: "InboundPorts", Kind: PortSelection,
			Flag: "istio-inbound-ports", Short: "b", Variables: []string{"ISTIO_INBOUND_PORTS"},
			Annotations: []string{trafficPrefix + "includeInboundPorts"},
			Placeholder: "PORTS", Section: SectionInbound,
			Help: `ports whose inbound connections are captured: "*" for all, or ports and ranges of ports`,
			set: setter(rules.ParsePortSelection, func(v *Values) *rules.PortSelection {
				return &v.Redirect.InboundPorts
			}),
		},
		{
			Field: "InboundExcludePorts", Kind: Ports,
			Flag: "istio-local-exclude-ports", Short: "d",
			Variables:   []string{"ISTIO_LOCAL_EXCLUDE_PORTS"},
			Annotations: []string{trafficPrefix + "excludeInboundPorts"},
			Placeholder: "PORTS", Section: SectionInbound,
			Help: `inbound ports not captured; used only with --istio-inbound-ports "*"`,
			set: setter(rules.ParsePorts, func(v *Values) *[]rules.PortRange {
				return &v.Redirect.InboundExcludePorts
			}),
		},
		{
			Field: "TProxyMark", Kind: Mark,
			Flag: "istio-inbound-tproxy-mark", Short: "t",
			Variables:   []string{"ISTIO_INBOUND_TPROXY_MARK"},
			Placeholder: "MARK", Default: "1337", Section: SectionTProxy,
			Help: "mark of packets that TPROXY delivers locally, decimal or hexadecimal",
			set:  setter(rules.ParseMark, func(v *Values) *uint32 { return &v.Redirect.TProxyMark }),
		},
		{
			Field: "TProxyRouteTable", Kind: Mark,
			Flag: "istio-inbound-tproxy-route-table", Short: "r",
			Variables:   []string{"ISTIO_INBOUND_TPROXY_ROUTE_TABLE"},
			Placeholder: "TABLE", Default: "133", Section: SectionTProxy,
			Help: "routing table that delivers packets with the TPROXY mark locally",
			set: setter(rules.ParseMark, func(v *Values) *uint32 {
				return &v.Redirect.TProxyRouteTable
			}),
		},
		{
			Kind:        OptionalPort,
			Annotations: []string{"status.sidecar.istio.io/port"},
			Help:        "status port of the agent, not captured inbound; 0 for none",
			set:         setter(parseOptionalPort, func(v *Values) *uint16 { return &v.StatusPort }),
		},
	}
}

// parseOptionalPort parses a port, or 0 for none. It ignores blanks around the port.
func parseOptionalPort(text string) (uint16, error) {
	return rules.ParseOptionalPort(strings.TrimSpace(text))
}

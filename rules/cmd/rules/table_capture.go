package main

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// captureTable lists the parameters of istio-iptables that shape the ruleset. Names, letters, variables and defaults are those of
// istio.io/istio tools/istio-iptables/pkg/cmd/root.go and tools/common/config/config.go at
// v0.0.0-20260827124520-eed52ebb66ad.
func captureTable() []parameter {
	type r = *rules.Redirect
	return []parameter{
		{
			flag: "envoy-port", short: "p", value: "PORT", fallback: "15001", field: "ProxyPort", section: sectionProxy,
			help: "port where the proxy accepts outbound connections; has no variable",
			set:  redirect(rules.ParsePort, func(r r) *uint16 { return &r.ProxyPort }),
		},
		{
			flag: "inbound-capture-port", short: "z", variables: []string{"INBOUND_CAPTURE_PORT"},
			value: "PORT", fallback: "15006",
			field: "InboundCapturePort", section: sectionProxy,
			help: "port where the proxy accepts inbound connections",
			set:  redirect(rules.ParsePort, func(r r) *uint16 { return &r.InboundCapturePort }),
		},
		{
			flag: "inbound-tunnel-port", short: "e", variables: []string{"INBOUND_TUNNEL_PORT"}, value: "PORT", fallback: "15008",
			field: "TunnelPort", section: sectionProxy,
			help: "port where other proxies reach this one (HBONE); never captured",
			set:  redirect(rules.ParsePort, func(r r) *uint16 { return &r.TunnelPort }),
		},
		{
			flag: "proxy-uid", short: "u", variables: []string{"PROXY_UID"}, value: "USERS", list: true,
			field: "ProxyUIDs", section: sectionProxy,
			help: "users of the proxy, whose traffic is not captured: ids, ranges of ids, and names; by default the user $ENVOY_USER, else 1337",
			set: func(p *parameters, text string) error {
				return assign(&p.redirect.ProxyUIDs)(rules.ParseIDs(text, p.names.users))
			},
		},
		{
			flag: "proxy-gid", short: "g", variables: []string{"PROXY_GID"}, value: "GROUPS", list: true,
			field: "ProxyGIDs", section: sectionProxy,
			help: "groups of the proxy, whose traffic is not captured; by default the ids of its users",
			set: func(p *parameters, text string) error {
				return assign(&p.redirect.ProxyGIDs)(rules.ParseIDs(text, p.names.groups))
			},
		},
		{
			variables: []string{"ENVOY_USER"}, value: "USER", fallback: "istio-proxy", section: sectionProxy,
			help: "user of the proxy if --proxy-uid is not given",
			set:  word(func(p *parameters) *string { return &p.envoyUser }),
		},
		{
			flag: "istio-inbound-interception-mode", short: "m", variables: []string{"ISTIO_INBOUND_INTERCEPTION_MODE"},
			value:    "MODE",
			fallback: "REDIRECT", field: "Mode", section: sectionInbound,
			help: "how inbound connections are captured: REDIRECT or TPROXY",
			set:  redirect(rules.ParseMode, func(r r) *rules.Mode { return &r.Mode }),
		},
		{
			flag: "istio-inbound-ports", short: "b", variables: []string{"ISTIO_INBOUND_PORTS"}, value: "PORTS", list: true,
			field: "InboundPorts", section: sectionInbound,
			help: `ports whose inbound connections are captured: "*" for all, or ports and ranges of ports`,
			set:  redirect(rules.ParsePortSelection, func(r r) *rules.PortSelection { return &r.InboundPorts }),
		},
		{
			flag: "istio-local-exclude-ports", short: "d", variables: []string{"ISTIO_LOCAL_EXCLUDE_PORTS"},
			value: "PORTS", list: true,
			field: "InboundExcludePorts", section: sectionInbound,
			help: `inbound ports not captured; used only with --istio-inbound-ports "*"`,
			set:  redirect(rules.ParsePorts, func(r r) *[]rules.PortRange { return &r.InboundExcludePorts }),
		},
		{
			flag: "istio-inbound-tproxy-mark", short: "t", variables: []string{"ISTIO_INBOUND_TPROXY_MARK"}, value: "MARK",
			fallback: "1337", field: "TProxyMark", section: sectionTProxy,
			help: "mark of packets that TPROXY delivers locally, decimal or hexadecimal",
			set:  redirect(rules.ParseMark, func(r r) *uint32 { return &r.TProxyMark }),
		},
		{
			flag: "istio-inbound-tproxy-route-table", short: "r", variables: []string{"ISTIO_INBOUND_TPROXY_ROUTE_TABLE"},
			value:    "TABLE",
			fallback: "133", field: "TProxyRouteTable", section: sectionTProxy,
			help: "routing table that delivers these packets locally",
			set:  redirect(rules.ParseMark, func(r r) *uint32 { return &r.TProxyRouteTable }),
		},
		{
			flag: "istio-service-cidr", short: "i", variables: []string{"ISTIO_SERVICE_CIDR"}, value: "PREFIXES", list: true,
			field: "OutboundCIDRs", section: sectionOutbound,
			help: `destinations whose outbound connections are captured: "*" for all, or prefixes`,
			set:  redirect(rules.ParsePrefixSelection, func(r r) *rules.PrefixSelection { return &r.OutboundCIDRs }),
		},
		{
			flag: "istio-service-exclude-cidr", short: "x", variables: []string{"ISTIO_SERVICE_EXCLUDE_CIDR"},
			value: "PREFIXES", list: true,
			field: "OutboundExcludeCIDRs", section: sectionOutbound,
			help: "destinations not captured, except for DNS",
			set:  redirect(rules.ParsePrefixes, func(r r) *[]netip.Prefix { return &r.OutboundExcludeCIDRs }),
		},
		{
			flag: "istio-outbound-ports", short: "q", variables: []string{"ISTIO_OUTBOUND_PORTS"}, value: "PORTS", list: true,
			field: "OutboundPorts", section: sectionOutbound,
			help: "outbound ports captured for every destination",
			set:  redirect(rules.ParsePorts, func(r r) *[]rules.PortRange { return &r.OutboundPorts }),
		},
		{
			flag: "istio-local-outbound-ports-exclude", short: "o", variables: []string{"ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE"},
			value: "PORTS", list: true, field: "OutboundExcludePorts", section: sectionOutbound,
			help: "outbound ports never captured, TCP and UDP; -o text and -o json stand for --output",
			set:  redirect(rules.ParsePorts, func(r r) *[]rules.PortRange { return &r.OutboundExcludePorts }),
		},
		{
			variables: []string{"ISTIO_OUTBOUND_OWNER_GROUPS"}, value: "GROUPS", fallback: "*", list: true,
			field: "OwnerGroups", section: sectionOutbound,
			help: `groups whose outbound connections are captured: "*" for all, or up to 64 ids and names; empty for none`,
			set: func(p *parameters, text string) error {
				return assign(&p.redirect.OwnerGroups)(rules.ParseGroupSelection(text, p.names.groups))
			},
		},
		{
			variables: []string{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"}, value: "GROUPS", list: true,
			field: "OwnerGroupsExclude", section: sectionOutbound,
			help: "groups not captured; used only if all groups are captured",
			set: func(p *parameters, text string) error {
				return assign(&p.redirect.OwnerGroupsExclude)(rules.ParseIDs(text, p.names.groups))
			},
		},
		{
			variables: []string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"}, value: "PREFIX", fallback: "127.0.0.1/32",
			field: "LoopbackCIDR", section: sectionOutbound,
			help: "IPv4 destinations that count as loopback",
			set:  redirect(rules.ParseLoopbackCIDR, func(r r) *netip.Prefix { return &r.LoopbackCIDR }),
		},
		{
			flag: "redirect-dns", variables: []string{"REDIRECT_DNS", "ISTIO_META_DNS_CAPTURE"}, section: sectionDNS,
			help: "capture DNS queries to the nameservers of the pod",
			set:  redirect(rules.ParseBool, func(r r) *bool { return &r.DNS.Capture }),
		},
		{
			flag: "capture-all-dns", variables: []string{"CAPTURE_ALL_DNS"}, section: sectionDNS,
			help: "with --redirect-dns: capture queries to any server",
			set:  redirect(rules.ParseBool, func(r r) *bool { return &r.DNS.All }),
		},
		{
			flag: "istio-exclude-interfaces", short: "c", variables: []string{"ISTIO_EXCLUDE_INTERFACES"},
			value: "NAMES", list: true,
			field: "ExcludeInterfaces", section: sectionPod,
			help: `interfaces not captured in either direction; "eth+" and "eth*" match every name with this prefix`,
			set:  redirect(rules.ParseInterfaces, func(r r) *[]rules.InterfaceName { return &r.ExcludeInterfaces }),
		},
		{
			flag: "kube-virt-interfaces", short: "k", variables: []string{"KUBE_VIRT_INTERFACES"}, value: "NAMES", list: true,
			field: "RerouteInterfaces", section: sectionPod,
			help: "interfaces of virtual machines in the pod: packets from them are captured as outbound",
			set:  redirect(rules.ParseInterfaces, func(r r) *[]rules.InterfaceName { return &r.RerouteInterfaces }),
		},
		{
			flag: "drop-invalid", variables: []string{"DROP_INVALID", "INVALID_DROP"}, section: sectionPod,
			help: "drop packets that conntrack calls invalid",
			set:  redirect(rules.ParseBool, func(r r) *bool { return &r.DropInvalid }),
		},
		{
			flag: "dual-stack", variables: []string{"DUAL_STACK", "ISTIO_DUAL_STACK"}, section: sectionPod,
			help: "capture IPv6 too if the pod has an IPv6 address; otherwise the family of its first address decides",
			set:  truth(func(p *parameters) *bool { return &p.dualStack }),
		},
	}
}

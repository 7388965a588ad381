package parameter

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// outboundParameters returns the parameters of the capture of outbound connections.
func outboundParameters() []Parameter {
	return []Parameter{
		{
			Field: "OutboundCIDRs", Kind: PrefixSelection,
			Flag: "istio-service-cidr", Short: "i", Variables: []string{"ISTIO_SERVICE_CIDR"},
			Annotations: []string{trafficPrefix + "includeOutboundIPRanges"},
			Placeholder: "PREFIXES", Section: SectionOutbound,
			Help: `destinations whose outbound connections are captured: "*" for all, or prefixes`,
			set: setter(rules.ParsePrefixSelection, func(v *Values) *rules.PrefixSelection {
				return &v.Redirect.OutboundCIDRs
			}),
		},
		{
			Field: "OutboundExcludeCIDRs", Kind: Prefixes,
			Flag: "istio-service-exclude-cidr", Short: "x",
			Variables:   []string{"ISTIO_SERVICE_EXCLUDE_CIDR"},
			Annotations: []string{trafficPrefix + "excludeOutboundIPRanges"},
			Placeholder: "PREFIXES", Section: SectionOutbound,
			Help: "destinations whose outbound connections are not captured, except DNS queries",
			set: setter(rules.ParsePrefixes, func(v *Values) *[]netip.Prefix {
				return &v.Redirect.OutboundExcludeCIDRs
			}),
		},
		{
			Field: "OutboundPorts", Kind: Ports,
			Flag: "istio-outbound-ports", Short: "q", Variables: []string{"ISTIO_OUTBOUND_PORTS"},
			Annotations: []string{trafficPrefix + "includeOutboundPorts"},
			Placeholder: "PORTS", Section: SectionOutbound,
			Help: "outbound ports captured for every destination",
			set: setter(rules.ParsePorts, func(v *Values) *[]rules.PortRange {
				return &v.Redirect.OutboundPorts
			}),
		},
		{
			Field: "OutboundExcludePorts", Kind: Ports,
			Flag: "istio-local-outbound-ports-exclude", Short: "o",
			Variables:   []string{"ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE"},
			Annotations: []string{trafficPrefix + "excludeOutboundPorts"},
			Placeholder: "PORTS", Section: SectionOutbound,
			Help: "outbound ports never captured, TCP and UDP; -o text and -o json stand for --output",
			set: setter(rules.ParsePorts, func(v *Values) *[]rules.PortRange {
				return &v.Redirect.OutboundExcludePorts
			}),
		},
		{
			Field: "OwnerGroups", Kind: GroupSelection,
			Variables:   []string{"ISTIO_OUTBOUND_OWNER_GROUPS"},
			Placeholder: "GROUPS", Default: "*", Section: SectionOutbound,
			Help: `groups whose outbound connections are captured: "*" for all, ` +
				`or up to 64 ids and names; empty for none`,
			set: func(v *Values, text string, n Names) error {
				return assign(&v.Redirect.OwnerGroups)(rules.ParseGroupSelection(text, n.Groups))
			},
		},
		{
			Field: "OwnerGroupsExclude", Kind: IDs,
			Variables:   []string{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"},
			Placeholder: "GROUPS", Section: SectionOutbound,
			Help: "groups not captured; used only if all groups are captured",
			set: func(v *Values, text string, n Names) error {
				return assign(&v.Redirect.OwnerGroupsExclude)(rules.ParseIDs(text, n.Groups))
			},
		},
		{
			Field: "LoopbackCIDR", Kind: LoopbackPrefix,
			Variables:   []string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"},
			Placeholder: "PREFIX", Default: "127.0.0.1/32", Section: SectionOutbound,
			Help: "IPv4 destinations that count as loopback",
			set: setter(rules.ParseLoopbackCIDR, func(v *Values) *netip.Prefix {
				return &v.Redirect.LoopbackCIDR
			}),
		},
	}
}

// podParameters returns the parameters of the capture of DNS, and the parameters that describe the
// pod.
func podParameters() []Parameter {
	return []Parameter{
		{
			Kind: Bool,
			Flag: "redirect-dns", Variables: []string{"REDIRECT_DNS", "ISTIO_META_DNS_CAPTURE"},
			Section: SectionDNS,
			Help:    "capture DNS queries to the nameservers of the pod",
			set:     setter(rules.ParseBool, func(v *Values) *bool { return &v.Redirect.DNS.Capture }),
		},
		{
			Kind: Bool,
			Flag: "capture-all-dns", Variables: []string{"CAPTURE_ALL_DNS"},
			Section: SectionDNS,
			Help:    "with --redirect-dns: capture queries to any server",
			set:     setter(rules.ParseBool, func(v *Values) *bool { return &v.Redirect.DNS.All }),
		},
		{
			Field: "ExcludeInterfaces", Kind: Interfaces,
			Flag: "istio-exclude-interfaces", Short: "c",
			Variables:   []string{"ISTIO_EXCLUDE_INTERFACES"},
			Annotations: []string{trafficPrefix + "excludeInterfaces"},
			Placeholder: "NAMES", Section: SectionPod,
			Help: `interfaces not captured in either direction; ` +
				`"eth+" and "eth*" match every name with this prefix`,
			set: setter(rules.ParseInterfaces, func(v *Values) *[]rules.InterfaceName {
				return &v.Redirect.ExcludeInterfaces
			}),
		},
		{
			Field: "RerouteInterfaces", Kind: Interfaces,
			Flag: "kube-virt-interfaces", Short: "k", Variables: []string{"KUBE_VIRT_INTERFACES"},
			Annotations: []string{
				"istio.io/reroute-virtual-interfaces", trafficPrefix + "kubevirtInterfaces",
			},
			Placeholder: "NAMES", Ambient: true, Section: SectionPod,
			Help: "interfaces of virtual machines in the pod, whose TCP connections are captured as outbound",
			set: setter(rules.ParseInterfaces, func(v *Values) *[]rules.InterfaceName {
				return &v.Redirect.RerouteInterfaces
			}),
		},
		{
			Kind: Bool,
			Flag: "drop-invalid", Variables: []string{"DROP_INVALID", "INVALID_DROP"},
			Section: SectionPod,
			Help:    "drop packets in conntrack state INVALID",
			set:     setter(rules.ParseBool, func(v *Values) *bool { return &v.Redirect.DropInvalid }),
		},
		{
			Kind: Bool,
			Flag: "dual-stack", Variables: []string{"DUAL_STACK", "ISTIO_DUAL_STACK"},
			Section: SectionPod,
			Help: "capture IPv6 too if the pod has an IPv6 address; " +
				"without this flag, only if it has no IPv4 address",
			set: setter(rules.ParseBool, func(v *Values) *bool { return &v.DualStack }),
		},
	}
}

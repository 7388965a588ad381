package decide

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-mesh/sluice/rules"
)

// A parameter is one property of the redirection, and where it is looked for: the first of its
// annotations that the pod has, else the ids of the security context, else the flag of the
// validation container, else the last of its variables that is set.
type parameter struct {
	// field is the field of rules.Redirect to which a fault of its validation belongs.
	field       string
	annotations []string
	identity    *identity
	flag        flag
	variables   []string
	list        bool // an empty variable means an empty list; for others it is not set
	// want says what is allowed, for errors.
	want string
	// set puts the value into the result, or returns the elements of the text that are wrong.
	set func(r *result, text string) []string
}

// An identity is an id in a security context, and its name there.
type identity struct {
	name string
	of   func(*SecurityContext) *int64
}

// redirect sets a field of the Redirect.
func redirect[T any](parse func(string) (T, []string), field func(*rules.Redirect) *T) func(*result, string) []string {
	return property(parse, func(r *result) *T { return field(&r.redirect) })
}

// property sets any field of the result, unless something in the text is wrong.
func property[T any](parse func(string) (T, []string), field func(*result) *T) func(*result, string) []string {
	return func(r *result, text string) []string {
		value, wrong := parse(text)
		if len(wrong) == 0 {
			*field(r) = value
		}
		return wrong
	}
}

const traffic = "traffic.sidecar.istio.io/"

// table lists all parameters. Annotations and their order are those of istio.io/istio
// cni/pkg/plugin/sidecar_redirect.go, flags and variables those of
// tools/istio-iptables/pkg/cmd/root.go, at v0.0.0-20260827124520-eed52ebb66ad.
//
// It is made when it is needed: most programs that link this package end without.
func table() []parameter {
	made.Do(func() { made.table = slices.Concat(proxyTable(), inboundTable(), outboundTable(), podTable()) })
	return made.table
}

var made struct {
	sync.Once
	table []parameter
}

func proxyTable() []parameter {
	return []parameter{
		{
			field: "ProxyPort", flag: flag{"envoy-port", "p", false}, want: portWant,
			set: redirect(single(rules.ParsePort), func(r *rules.Redirect) *uint16 { return &r.ProxyPort }),
		},
		{
			field: "InboundCapturePort", flag: flag{"inbound-capture-port", "z", false}, variables: []string{"INBOUND_CAPTURE_PORT"},
			want: portWant, set: redirect(single(rules.ParsePort), func(r *rules.Redirect) *uint16 { return &r.InboundCapturePort }),
		},
		{
			field: "TunnelPort", flag: flag{"inbound-tunnel-port", "e", false}, variables: []string{"INBOUND_TUNNEL_PORT"},
			want: portWant, set: redirect(single(rules.ParsePort), func(r *rules.Redirect) *uint16 { return &r.TunnelPort }),
		},
		{
			field: "ProxyUIDs", identity: &identity{"runAsUser", func(c *SecurityContext) *int64 { return c.RunAsUser }},
			flag: flag{"proxy-uid", "u", false}, variables: []string{"PROXY_UID"}, want: idsWant,
			set: redirect(parseIDs, func(r *rules.Redirect) *[]rules.IDRange { return &r.ProxyUIDs }),
		},
		{
			field: "ProxyGIDs", identity: &identity{"runAsGroup", func(c *SecurityContext) *int64 { return c.RunAsGroup }},
			flag: flag{"proxy-gid", "g", false}, variables: []string{"PROXY_GID"}, want: idsWant,
			set: redirect(parseIDs, func(r *rules.Redirect) *[]rules.IDRange { return &r.ProxyGIDs }),
		},
	}
}

// modeParameter has a name since decisions look at it too. The variable is where the injector
// states the mode in any case.
func modeParameter() parameter {
	return parameter{
		field: "Mode", annotations: []string{modeAnnotation}, flag: flag{"istio-inbound-interception-mode", "m", false},
		variables: []string{"ISTIO_META_INTERCEPTION_MODE"}, want: modeWant,
		set: redirect(parseMode, func(r *rules.Redirect) *rules.Mode { return &r.Mode }),
	}
}

func inboundTable() []parameter {
	return []parameter{
		modeParameter(),
		{
			field: "TProxyMark", flag: flag{"istio-inbound-tproxy-mark", "t", false}, variables: []string{"ISTIO_INBOUND_TPROXY_MARK"},
			want: markWant, set: redirect(single(rules.ParseMark), func(r *rules.Redirect) *uint32 { return &r.TProxyMark }),
		},
		{
			field: "TProxyRouteTable", flag: flag{"istio-inbound-tproxy-route-table", "r", false},
			variables: []string{"ISTIO_INBOUND_TPROXY_ROUTE_TABLE"}, want: markWant,
			set: redirect(single(rules.ParseMark), func(r *rules.Redirect) *uint32 { return &r.TProxyRouteTable }),
		},
		{
			field: "InboundPorts", annotations: []string{traffic + "includeInboundPorts"},
			flag: flag{"istio-inbound-ports", "b", false}, variables: []string{"ISTIO_INBOUND_PORTS"}, list: true,
			want: portsOrAllWant,
			set:  redirect(parsePortSelection, func(r *rules.Redirect) *rules.PortSelection { return &r.InboundPorts }),
		},
		{
			field: "InboundExcludePorts", annotations: []string{traffic + "excludeInboundPorts"},
			flag: flag{"istio-local-exclude-ports", "d", false}, variables: []string{"ISTIO_LOCAL_EXCLUDE_PORTS"}, list: true,
			want: portsWant,
			set:  redirect(parsePorts, func(r *rules.Redirect) *[]rules.PortRange { return &r.InboundExcludePorts }),
		},
		{
			annotations: []string{"status.sidecar.istio.io/port"}, want: portOrZeroWant,
			set: property(parseStatusPort, func(r *result) *uint16 { return &r.statusPort }),
		},
	}
}

func outboundTable() []parameter {
	return []parameter{
		{
			field: "OutboundCIDRs", annotations: []string{traffic + "includeOutboundIPRanges"},
			flag: flag{"istio-service-cidr", "i", false}, variables: []string{"ISTIO_SERVICE_CIDR"}, list: true,
			want: cidrsOrAllWant,
			set:  redirect(parsePrefixSelection, func(r *rules.Redirect) *rules.PrefixSelection { return &r.OutboundCIDRs }),
		},
		{
			field: "OutboundExcludeCIDRs", annotations: []string{traffic + "excludeOutboundIPRanges"},
			flag: flag{"istio-service-exclude-cidr", "x", false}, variables: []string{"ISTIO_SERVICE_EXCLUDE_CIDR"}, list: true,
			want: cidrsWant,
			set:  redirect(parsePrefixes, func(r *rules.Redirect) *[]netip.Prefix { return &r.OutboundExcludeCIDRs }),
		},
		{
			field: "OutboundPorts", annotations: []string{traffic + "includeOutboundPorts"},
			flag: flag{"istio-outbound-ports", "q", false}, variables: []string{"ISTIO_OUTBOUND_PORTS"}, list: true,
			want: portsWant,
			set:  redirect(parsePorts, func(r *rules.Redirect) *[]rules.PortRange { return &r.OutboundPorts }),
		},
		{
			field: "OutboundExcludePorts", annotations: []string{traffic + "excludeOutboundPorts"},
			flag:      flag{"istio-local-outbound-ports-exclude", "o", false},
			variables: []string{"ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE"}, list: true,
			want: portsWant,
			set:  redirect(parsePorts, func(r *rules.Redirect) *[]rules.PortRange { return &r.OutboundExcludePorts }),
		},
		{
			field: "OwnerGroups", variables: []string{"ISTIO_OUTBOUND_OWNER_GROUPS"}, list: true, want: groupsOrAllWant,
			set: redirect(parseGroupSelection, func(r *rules.Redirect) *rules.GroupSelection { return &r.OwnerGroups }),
		},
		{
			field: "OwnerGroupsExclude", variables: []string{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"}, list: true, want: idsWant,
			set: redirect(parseIDs, func(r *rules.Redirect) *[]rules.IDRange { return &r.OwnerGroupsExclude }),
		},
		{
			field: "LoopbackCIDR", variables: []string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"}, want: loopbackWant,
			set: redirect(single(rules.ParseLoopbackCIDR), func(r *rules.Redirect) *netip.Prefix { return &r.LoopbackCIDR }),
		},
	}
}

func podTable() []parameter {
	return []parameter{
		{
			field: "ExcludeInterfaces", annotations: []string{traffic + "excludeInterfaces"},
			flag: flag{"istio-exclude-interfaces", "c", false}, variables: []string{"ISTIO_EXCLUDE_INTERFACES"}, list: true,
			want: interfacesWant,
			set:  redirect(parseInterfaces, func(r *rules.Redirect) *[]rules.InterfaceName { return &r.ExcludeInterfaces }),
		},
		{
			field: "RerouteInterfaces", annotations: []string{"istio.io/reroute-virtual-interfaces", traffic + "kubevirtInterfaces"},
			flag: flag{"kube-virt-interfaces", "k", false}, variables: []string{"KUBE_VIRT_INTERFACES"}, list: true,
			want: interfacesWant,
			set:  redirect(parseInterfaces, func(r *rules.Redirect) *[]rules.InterfaceName { return &r.RerouteInterfaces }),
		},
		{
			flag: flag{"redirect-dns", "", true}, variables: []string{"REDIRECT_DNS", "ISTIO_META_DNS_CAPTURE"}, want: truthWant,
			set: redirect(single(rules.ParseBool), func(r *rules.Redirect) *bool { return &r.DNS.Capture }),
		},
		{
			flag: flag{"capture-all-dns", "", true}, variables: []string{"CAPTURE_ALL_DNS"}, want: truthWant,
			set: property(single(rules.ParseBool), func(r *result) *bool { return &r.allDNS }),
		},
		{
			flag: flag{"drop-invalid", "", true}, variables: []string{"DROP_INVALID", "INVALID_DROP"}, want: truthWant,
			set: redirect(single(rules.ParseBool), func(r *rules.Redirect) *bool { return &r.DropInvalid }),
		},
		{
			flag: flag{"dual-stack", "", true}, variables: []string{"DUAL_STACK", "ISTIO_DUAL_STACK"}, want: truthWant,
			set: property(single(rules.ParseBool), func(r *result) *bool { return &r.dualStack }),
		},
	}
}

package rules

import (
	"net/netip"
)

// A Redirect is the parameters of a pod's redirection. Start from [DefaultRedirect]: the zero value
// is not valid.
type Redirect struct {
	// Mode is how inbound connections are captured. Outbound ones are redirected in either mode.
	Mode Mode
	// ProxyPort receives outbound connections, InboundCapturePort inbound ones; 1 to 65535.
	ProxyPort, InboundCapturePort uint16
	// TunnelPort is where other proxies reach this one (HBONE); it is never captured; 1 to 65535.
	TunnelPort uint16
	// ProxyUIDs and ProxyGIDs are the proxy's own users and groups, whose traffic is not captured
	// again. At least one each. The first user is special: Istio treats only its connections to the
	// own pod as inbound.
	ProxyUIDs, ProxyGIDs []IDRange
	// TProxyMark marks packets that are to be local in TPROXY mode, TProxyRouteTable is the routing
	// table that makes them so.
	TProxyMark, TProxyRouteTable uint32

	// InboundPorts are the ports of which inbound connections are captured.
	InboundPorts PortSelection
	// InboundExcludePorts are not captured; used only if InboundPorts is all, as in Istio.
	InboundExcludePorts []PortRange

	// OutboundCIDRs are the destinations of which outbound connections are captured.
	OutboundCIDRs PrefixSelection
	// OutboundExcludeCIDRs are destinations not captured; they outrank both inclusions, but not
	// DNS.
	OutboundExcludeCIDRs []netip.Prefix
	// OutboundPorts are captured whatever the destination's address.
	OutboundPorts []PortRange
	// OutboundExcludePorts are never captured; they outrank all else, DNS too.
	OutboundExcludePorts []PortRange
	// OwnerGroups are the groups whose outbound connections are captured; at most MaxOwnerGroups.
	OwnerGroups GroupSelection
	// OwnerGroupsExclude are not captured; used only if OwnerGroups is all, as in Istio.
	OwnerGroupsExclude []IDRange

	// ExcludeInterfaces are left alone, in both directions.
	ExcludeInterfaces []InterfaceName
	// RerouteInterfaces lead to machines inside the pod (KubeVirt): what arrives there is captured
	// as outbound.
	RerouteInterfaces []InterfaceName

	// LoopbackCIDR is what counts as the loopback destination in IPv4: within 127.0.0.0/8.
	LoopbackCIDR netip.Prefix
	DNS          DNS
	// DropInvalid drops packets that conntrack finds invalid, of every protocol.
	DropInvalid bool
	// IPv6 reports that the pod's IPv6 is captured too; otherwise it is left alone. IPv4 always is,
	// as in Istio.
	IPv6 bool

	// KeepEstablished leaves connections alone that are older than the rules: only the first packet
	// of a connection, a SYN, is captured. For live pods only. It lets a connection pass the proxy
	// after a conntrack flush.
	KeepEstablished bool
	// Without lists the deviations from Istio that are turned off.
	Without []DeviationID
}

// CapturesNothing reports whether no connection of the application, in or out, and no DNS query is
// captured.
func (r *Redirect) CapturesNothing() bool {
	inbound := r.InboundPorts.All || len(r.InboundPorts.Ports) > 0
	outbound := r.OutboundCIDRs.All || len(r.OutboundCIDRs.Prefixes) > 0 || len(r.OutboundPorts) > 0
	noGroup := !r.OwnerGroups.All && len(r.OwnerGroups.IDs) == 0
	return !inbound && (!outbound || noGroup) && !r.DNS.active()
}

// Mode is how inbound connections are captured.
type Mode string

// The modes.
const (
	ModeRedirect Mode = "REDIRECT" // by destination NAT: the proxy sees the pod's address and asks for the original port
	ModeTProxy   Mode = "TPROXY"   // by a transparent socket: source and destination stay
)

// PortSelection is all ports, those listed, or none.
type PortSelection struct {
	All   bool
	Ports []PortRange
}

// PrefixSelection is all addresses, those listed, or none.
type PrefixSelection struct {
	All bool
	// Prefixes may have host bits set: whether one is a loopback prefix is decided, as in Istio, by
	// the address as given.
	Prefixes []netip.Prefix
}

// GroupSelection is all groups, those listed, or none.
type GroupSelection struct {
	All bool
	IDs []IDRange
}

// DNS says which queries go to the agent beside the proxy.
type DNS struct {
	Capture bool
	// All captures queries to any server; else only those to Servers are. Without either, nothing
	// is captured.
	All     bool
	Servers []netip.Addr
}

// active reports whether there is anything to capture.
func (d DNS) active() bool { return d.Capture && (d.All || len(d.Servers) > 0) }

// DefaultRedirect returns what istio-iptables does without any argument: capture is set up, but for
// no port and no address.
func DefaultRedirect() Redirect {
	return Redirect{
		Mode:               ModeRedirect,
		ProxyPort:          DefaultProxyPort,
		InboundCapturePort: DefaultInboundCapturePort,
		TunnelPort:         DefaultTunnelPort,
		ProxyUIDs:          Singles[uint32](DefaultProxyID),
		ProxyGIDs:          Singles[uint32](DefaultProxyID),
		TProxyMark:         DefaultTProxyMark,
		TProxyRouteTable:   DefaultTProxyRouteTable,
		OwnerGroups:        GroupSelection{All: true},
		LoopbackCIDR:       DefaultLoopbackCIDR(),
	}
}

package rules

import (
	"net/netip"
)

// A Redirect contains the parameters of a pod's redirection. Start with [DefaultRedirect]: the zero
// value is invalid.
type Redirect struct {
	// Mode is the interception mode of inbound connections. Outbound connections are redirected in
	// both modes.
	Mode Mode
	// ProxyPort receives outbound connections, InboundCapturePort inbound ones; 1 to 65535.
	ProxyPort, InboundCapturePort uint16
	// TunnelPort is the port for connections from other proxies (HBONE); 1 to 65535. Connections to
	// it are not captured as inbound, except in TPROXY mode without [TunnelPortTProxy].
	TunnelPort uint16
	// ProxyUIDs and ProxyGIDs are the users and groups of the proxy; at least one each. Their
	// traffic is not captured, except that their connections to the pod itself are treated as
	// inbound. As in Istio, in REDIRECT mode this exception usually applies only to the first user.
	ProxyUIDs, ProxyGIDs []IDRange
	// In TPROXY mode TProxyMark marks packets to be delivered locally, and TProxyRouteTable is the
	// routing table for these packets. In this mode TProxyMark must not be 0 or [SelfCallMark], and
	// TProxyRouteTable must not be 0 or one of the kernel's own tables, 253 to 255.
	TProxyMark, TProxyRouteTable uint32

	// InboundPorts are the destination ports of captured inbound connections.
	InboundPorts PortSelection
	// InboundExcludePorts are not captured. As in Istio, they have an effect only with
	// InboundPorts.All.
	InboundExcludePorts []PortRange

	// OutboundCIDRs are the destinations of captured outbound connections.
	OutboundCIDRs PrefixSelection
	// OutboundExcludeCIDRs are destinations that are not captured, except for DNS. They take
	// precedence over OutboundCIDRs and OutboundPorts.
	OutboundExcludeCIDRs []netip.Prefix
	// OutboundPorts are captured for all destination addresses.
	OutboundPorts []PortRange
	// OutboundExcludePorts are not captured. They take precedence over all other parameters of
	// outbound connections, including DNS, except RerouteInterfaces.
	OutboundExcludePorts []PortRange
	// OwnerGroups are the groups whose outbound connections are captured; at most MaxOwnerGroups.
	OwnerGroups GroupSelection
	// OwnerGroupsExclude are not captured. As in Istio, they have an effect only with
	// OwnerGroups.All.
	OwnerGroupsExclude []IDRange

	// ExcludeInterfaces are not captured in either direction.
	ExcludeInterfaces []InterfaceName
	// RerouteInterfaces are interfaces of virtual machines in the pod (KubeVirt): TCP connections
	// to OutboundCIDRs that arrive on them are captured as outbound. As in Istio, neither the other
	// parameters of outbound connections nor the exclusions apply to these connections.
	RerouteInterfaces []InterfaceName

	// LoopbackCIDR contains the IPv4 destinations that are treated as loopback; it is within
	// 127.0.0.0/8.
	LoopbackCIDR netip.Prefix
	DNS          DNS
	// DropInvalid drops incoming packets that conntrack considers invalid, of every protocol.
	DropInvalid bool
	// IPv6 reports whether IPv6 is captured in addition to IPv4.
	IPv6 bool

	// KeepEstablished captures only new connections (TCP SYN), and not connections older than the
	// rules. For running pods only: after a conntrack flush, connections can bypass the proxy.
	KeepEstablished bool
	// Counters gives each rule a counter in nftables. Rules of iptables always have counters.
	Counters bool
	// Without contains the disabled deviations.
	Without []DeviationID
}

// CapturesNothing reports whether no inbound connection, no connection of the application or of a
// virtual machine, and no DNS query is captured.
func (r *Redirect) CapturesNothing() bool {
	hasDestinations := r.OutboundCIDRs.All || len(r.OutboundCIDRs.Prefixes) > 0
	capturesApplication := (r.OwnerGroups.All || len(r.OwnerGroups.IDs) > 0) &&
		(hasDestinations || len(r.OutboundPorts) > 0 || r.DNS.active())
	capturesMachines := len(r.RerouteInterfaces) > 0 && hasDestinations
	return !r.capturesInbound() && !capturesApplication && !capturesMachines
}

// capturesInbound reports whether any inbound connection is captured.
func (r *Redirect) capturesInbound() bool {
	return r.InboundPorts.All || len(r.InboundPorts.Ports) > 0
}

// Mode is the interception mode of inbound connections.
type Mode string

// The modes.
const (
	// ModeRedirect translates the destination of connections: the proxy asks the kernel for the
	// original destination.
	ModeRedirect Mode = "REDIRECT"
	// ModeTProxy assigns connections to a transparent socket: source and destination are unchanged.
	ModeTProxy Mode = "TPROXY"
)

// PortSelection is all ports, the listed ports, or none.
type PortSelection struct {
	All   bool
	Ports []PortRange
}

// PrefixSelection is all addresses, the listed prefixes, or none.
type PrefixSelection struct {
	All bool
	// Prefixes may have host bits set: as in Istio, the address decides whether a prefix is a
	// loopback prefix.
	Prefixes []netip.Prefix
}

// GroupSelection is all groups, the listed groups, or none.
type GroupSelection struct {
	All bool
	IDs []IDRange
}

// DNS selects the queries that are redirected to the sidecar's DNS proxy.
type DNS struct {
	// Capture enables the redirection of queries.
	Capture bool
	// All selects queries to all servers. Without All, only queries to Servers are captured: none
	// if Servers is empty.
	All     bool
	Servers []netip.Addr
}

// active reports whether any query is captured.
func (d DNS) active() bool { return d.Capture && (d.All || len(d.Servers) > 0) }

// DefaultRedirect returns the parameters of istio-iptables without arguments: no port and no
// address is captured.
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

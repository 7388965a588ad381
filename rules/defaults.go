package rules

import "net/netip"

// Istio's constants and defaults. Sources: istio.io/istio tools/istio-iptables/pkg/constants and
// pkg/config, at v0.0.0-20260827124520-eed52ebb66ad; the help of istio-iptables lists the
// environment variables and flags.
const (
	// DefaultProxyPort is the port of Envoy's virtualOutbound listener, which receives captured
	// outbound connections (--envoy-port).
	DefaultProxyPort = 15001
	// DefaultInboundCapturePort is the port of Envoy's virtualInbound listener, which receives
	// captured inbound connections (--inbound-capture-port).
	DefaultInboundCapturePort = 15006
	DefaultTunnelPort         = 15008 // HBONE, not captured as inbound (--inbound-tunnel-port)
	DefaultProxyID            = 1337  // uid and gid of istio-proxy (--proxy-uid, --proxy-gid)
	DefaultTProxyMark         = 1337  // 0x539 (--istio-inbound-tproxy-mark)
	DefaultTProxyRouteTable   = 133   // (--istio-inbound-tproxy-route-table)

	// DNSPort is the port of the sidecar's DNS proxy, over UDP and TCP. Not configurable in Istio.
	DNSPort = 15053
	// SelfCallMark, in TPROXY mode, marks connections of the proxy to its own pod, which are
	// captured as inbound. Not configurable in Istio.
	SelfCallMark = 1338

	// ProxyDNSZone is the conntrack zone of DNS over UDP between the proxy and its upstream
	// servers, and AppDNSZone the zone of DNS over UDP between the application and the proxy. The
	// zones differ because packets of both kinds may have the same addresses and ports.
	ProxyDNSZone = 1
	AppDNSZone   = 2

	// MaxOwnerGroups is Istio's maximum number of owner groups (ISTIO_OUTBOUND_OWNER_GROUPS).
	MaxOwnerGroups = 64
)

// Sluice's constants.
const (
	// TableName is the name of Sluice's nftables table, of family inet.
	TableName = "sluice"
	// PolicyPriority is the priority of Sluice's policy rules. They precede the rule of the main
	// table (32766) and the source rules of multi-homed pods, because marked packets must be local
	// whatever their source.
	PolicyPriority = 133
)

// loopback is the interface of packets from the host to itself.
const loopback = "lo"

// domainPort is the port of DNS servers.
const domainPort = 53

// DefaultLoopbackCIDR returns the default of [Redirect.LoopbackCIDR]
// (ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR): 127.0.0.1/32. The IPv6 loopback destination is always
// ::1/128.
func DefaultLoopbackCIDR() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 32)
}

// loopbackCIDRv6 returns the IPv6 loopback destination.
func loopbackCIDRv6() netip.Prefix { return netip.PrefixFrom(netip.IPv6Loopback(), 128) }

// PassthroughIPv4 returns the source address of the proxy's IPv4 connections to the application:
// 127.0.0.6.
func PassthroughIPv4() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 6}) }

// PassthroughIPv6 returns the source address of the proxy's IPv6 connections to the application:
// ::6.
func PassthroughIPv6() netip.Addr { return netip.AddrFrom16([16]byte{15: 6}) }

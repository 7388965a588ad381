package rules

import "net/netip"

// Istio's fixed numbers and defaults. Sources: istio.io/istio tools/istio-iptables/pkg/constants
// and pkg/config, at v0.0.0-20260827124520-eed52ebb66ad; the environment variables and flags that
// set them are in the command's help.
const (
	DefaultProxyPort          = 15001 // outbound capture: Envoy's virtualOutbound listener (--envoy-port)
	DefaultInboundCapturePort = 15006 // inbound capture: Envoy's virtualInbound listener (--inbound-capture-port)
	DefaultTunnelPort         = 15008 // HBONE, never redirected (--inbound-tunnel-port)
	DefaultProxyID            = 1337  // uid and gid of istio-proxy (--proxy-uid, --proxy-gid)
	DefaultTProxyMark         = 1337  // 0x539 (--istio-inbound-tproxy-mark)
	DefaultTProxyRouteTable   = 133   // (--istio-inbound-tproxy-route-table)

	// DNSPort is where the agent beside the proxy answers DNS, over UDP and TCP. Not configurable
	// in Istio.
	DNSPort = 15053
	// SelfCallMark marks, in TPROXY mode, the proxy's connections to its own pod, which are then
	// taken as inbound. Not configurable in Istio.
	SelfCallMark = 1338

	// ProxyDNSZone is the conntrack zone of DNS over UDP between the proxy and its upstream
	// servers, AppDNSZone that between the application and the proxy. Both flows may have the same
	// addresses and ports.
	ProxyDNSZone = 1
	AppDNSZone   = 2

	// MaxOwnerGroups is how many owner groups Istio accepts (ISTIO_OUTBOUND_OWNER_GROUPS).
	MaxOwnerGroups = 64

	// TableName is the name of our nftables table, of family inet.
	TableName = "sluice"
	// PolicyPriority is the fixed priority of our policy rules. It comes before the main table
	// (32766) and before the source rules that multi-homed pods have, since a marked packet must be
	// local whatever its source.
	PolicyPriority = 133
)

const domainPort = 53

// DefaultLoopbackCIDR is what counts as loopback destination in IPv4
// (ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR): 127.0.0.1/32. In IPv6 it is always ::1/128.
func DefaultLoopbackCIDR() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 32)
}

func loopbackCIDRv6() netip.Prefix { return netip.PrefixFrom(netip.IPv6Loopback(), 128) }

// PassthroughIPv4 is the source address of the proxy's IPv4 connections to the application:
// 127.0.0.6.
func PassthroughIPv4() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 6}) }

// PassthroughIPv6 is the source address of the proxy's IPv6 connections to the application: ::6.
func PassthroughIPv6() netip.Addr { return netip.AddrFrom16([16]byte{15: 6}) }

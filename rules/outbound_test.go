package rules_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

func TestOutboundParameters(t *testing.T) {
	runParameterTests(t, []parameterTest{
		{"other ports of the proxy", func(r *rules.Redirect) {
			r.ProxyPort, r.TunnelPort = 12345, 12347
		}, []row{
			{
				"the given capture port is used", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000",
				rules.Outcome{Redirect: 12345},
			},
			{
				"a connection to the tunnel port of another pod is captured",
				"out tcp 10.244.1.5:1 > 10.9.9.9:12347 uid 1000",
				rules.Outcome{Redirect: 12345},
			},
			{
				"the proxy's call to its own tunnel port is not captured",
				"out tcp 10.244.1.5:1 > 10.244.1.5:12347 uid 1337", uncaptured,
			},
			{
				"the proxy's call to its own default tunnel port is captured",
				"out tcp 10.244.1.5:1 > 10.244.1.5:15008 uid 1337", toInbound,
			},
		}},
		{"a list of prefixes", func(r *rules.Redirect) {
			r.OutboundCIDRs = prefixSelection("10.1.2.3/8,fd00:9::/64,10.0.0.0/9,11.0.0.0/8")
		}, []row{
			{
				"the first address of a prefix with host bits",
				"out tcp 10.244.1.5:1 > 10.0.0.0:80 uid 1000", toOutbound,
			},
			{
				"the last address of two adjacent prefixes",
				"out tcp 10.244.1.5:1 > 11.255.255.255:80 uid 1000", toOutbound,
			},
			{
				"the address before a prefix", "out tcp 10.244.1.5:1 > 9.255.255.255:80 uid 1000",
				uncaptured,
			},
			{
				"the address after a prefix", "out tcp 10.244.1.5:1 > 12.0.0.0:80 uid 1000",
				uncaptured,
			},
			{"an IPv6 address", "out tcp [fd00::5]:1 > [fd00:9::9]:80 uid 1000", toOutbound},
			{"another IPv6 address", "out tcp [fd00::5]:1 > [fd00:9:0:1::]:80 uid 1000", uncaptured},
		}},
		{"no prefix, but ports", func(r *rules.Redirect) {
			r.OutboundCIDRs.All = false
			r.OutboundPorts = ports("80,8000-9000")
		}, []row{
			{"an included port", "out tcp 10.244.1.5:1 > 192.0.2.1:80 uid 1000", toOutbound},
			{
				"a port of an included range, in IPv6",
				"out tcp [fd00::5]:1 > [fd00:9::9]:8500 uid 1000", toOutbound,
			},
			{"another port", "out tcp 10.244.1.5:1 > 192.0.2.1:81 uid 1000", uncaptured},
			{"UDP is not included", "out udp 10.244.1.5:1 > 192.0.2.1:80 uid 1000", uncaptured},
			{
				"an included port of the loopback address is not captured",
				"out tcp 10.244.1.5:1 > 127.0.0.1:80 dev eth0 uid 1000", uncaptured,
			},
		}},
		{"excluded prefixes", func(r *rules.Redirect) {
			r.OutboundExcludeCIDRs = prefixSelection(
				"169.254.169.254/32,fd00:ec2::254/128,10.10.0.0/16").Prefixes
			r.OutboundPorts = ports("443")
		}, []row{
			{
				"an excluded address", "out tcp 10.244.1.5:1 > 169.254.169.254:80 uid 1000",
				uncaptured,
			},
			{
				"exclusion takes precedence over included ports",
				"out tcp 10.244.1.5:1 > 10.10.1.1:443 uid 1000", uncaptured,
			},
			{
				"the address next to an excluded one",
				"out tcp 10.244.1.5:1 > 169.254.169.253:80 uid 1000",
				toOutbound,
			},
			{
				"an excluded IPv6 address", "out tcp [fd00::5]:1 > [fd00:ec2::254]:80 uid 1000",
				uncaptured,
			},
			{
				"another IPv6 address", "out tcp [fd00::5]:1 > [fd00:ec2::255]:80 uid 1000",
				toOutbound,
			},
		}},
		{"excluded ports", func(r *rules.Redirect) {
			r.OutboundExcludePorts = ports("5432,443")
			r.OutboundPorts = ports("443")
		}, []row{
			{"an excluded port", "out tcp 10.244.1.5:1 > 10.9.9.9:5432 uid 1000", uncaptured},
			{
				"exclusion takes precedence over inclusion",
				"out tcp 10.244.1.5:1 > 10.9.9.9:443 uid 1000",
				uncaptured,
			},
			{
				"the proxy's call to an excluded port of its own pod",
				"out tcp 10.244.1.5:1 > 10.244.1.5:5432 uid 1337", uncaptured,
			},
			{"another port", "out tcp 10.244.1.5:1 > 10.9.9.9:5433 uid 1000", toOutbound},
		}},
		{"several users and groups of the proxy", func(r *rules.Redirect) {
			r.ProxyUIDs, r.ProxyGIDs = ids("1338,1337"), ids("1400,1401-1409")
		}, []row{
			{
				"connections of a user other than the first are not captured",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1337 gid 5", uncaptured,
			},
			{
				"connections of a group in a range are not captured",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 5 gid 1405", uncaptured,
			},
			{
				"the first user's calls to its own pod are inbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1338 gid 5", toInbound,
			},
			{
				"calls of other users to the pod are not captured, as in Istio",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337 gid 5", uncaptured,
			},
			{
				"calls of the groups to the pod are not captured",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 5 gid 1400", uncaptured,
			},
			{
				"the default group is not a group of the proxy",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 5 gid 1337", toOutbound,
			},
		}},
		{"an included loopback prefix", func(r *rules.Redirect) {
			r.OutboundCIDRs = prefixSelection("127.0.0.0/8,10.0.0.0/8")
			r.ProxyUIDs = ids("1337,1338")
		}, []row{
			{
				"the application's calls to its own pod are outbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1000", toOutbound,
			},
			{
				"the application's calls to a loopback address are outbound",
				"out tcp 127.0.0.1:1 > 127.0.0.2:80 uid 1000",
				toOutbound,
			},
			{
				"the application's calls to 127.0.0.1 are not captured",
				"out tcp 127.0.0.1:1 > 127.0.0.1:80 uid 1000", uncaptured,
			},
			{
				"calls of every proxy user to the pod are inbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1338 gid 5", toInbound,
			},
			{
				"calls of every group to the pod are inbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 5 gid 1337", toInbound,
			},
			{
				"calls to the tunnel port are not captured",
				"out tcp 10.244.1.5:1 > 10.244.1.5:15008 uid 5 gid 1337", uncaptured,
			},
			{
				"calls of every proxy user to the pod are inbound in IPv6, without an included IPv6 prefix",
				"out tcp [fd00::5]:1 > [fd00::5]:80 uid 1338 gid 5", toInbound,
			},
		}},
		{"an included IPv6 loopback address", func(r *rules.Redirect) {
			r.OutboundCIDRs = prefixSelection("::1/128,10.0.0.0/8")
		}, []row{
			{
				"the application's IPv4 calls to its own pod are outbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1000", toOutbound,
			},
			{
				"calls to the included loopback address are not captured",
				"out tcp [::1]:1 > [::1]:80 uid 1000", uncaptured,
			},
		}},
		{"a wide loopback prefix", func(r *rules.Redirect) {
			r.LoopbackCIDR = netip.MustParsePrefix("127.0.0.1/8")
		}, []row{
			{
				"the proxy's calls to any loopback address are not captured",
				"out tcp 127.0.0.1:1 > 127.0.0.2:80 uid 1337", uncaptured,
			},
			{
				"the proxy's calls to the pod's address are inbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337", toInbound,
			},
			{
				"calls to a loopback address through another interface are not captured",
				"out tcp 10.244.1.5:1 > 127.9.9.9:80 dev eth0 uid 1000", uncaptured,
			},
		}},
		{"included owner groups", func(r *rules.Redirect) {
			r.OwnerGroups = rules.GroupSelection{IDs: ids("202,300-309")}
			r.OwnerGroupsExclude = ids("202")
		}, []row{
			{
				"an included group that is also excluded: exclusions apply only to all groups",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 gid 202", toOutbound,
			},
			{
				"a group of an included range",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 gid 305", toOutbound,
			},
			{"another group", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 gid 203", uncaptured},
			{
				"a packet without a socket has no group",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 no-socket", uncaptured,
			},
			{
				"the proxy's calls to its own pod do not depend on groups",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337", toInbound,
			},
			{
				"inbound connections do not depend on groups", "in tcp 10.1.1.1:1 > 10.244.1.5:80",
				toInbound,
			},
		}},
		{"excluded owner groups", func(r *rules.Redirect) {
			r.OwnerGroupsExclude = ids("202,300-309")
		}, []row{
			{"an excluded group", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 gid 202", uncaptured},
			{
				"a group of an excluded range",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 gid 309", uncaptured,
			},
			{"another group", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 gid 310", toOutbound},
			{"a packet without a socket", "out tcp 10.244.1.5:1 > 10.9.9.9:80 no-socket", toOutbound},
		}},
		{"no owner group", func(r *rules.Redirect) {
			r.OwnerGroups = rules.GroupSelection{}
		}, []row{
			{
				"no outbound connection is captured", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000",
				uncaptured,
			},
			{"inbound connections are captured", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toInbound},
		}},
		{"mapped prefixes", func(r *rules.Redirect) {
			r.OutboundCIDRs = prefixSelection("::ffff:10.0.0.0/104,::ffff:0:0/90")
			r.OutboundExcludeCIDRs = prefixSelection("::ffff:10.9.0.0/112").Prefixes
		}, []row{
			{
				"an included prefix means the IPv4 prefix",
				"out tcp 10.244.1.5:1 > 10.1.1.1:80 uid 1000", toOutbound,
			},
			{
				"an excluded prefix means the IPv4 prefix",
				"out tcp 10.244.1.5:1 > 10.9.1.1:80 uid 1000", uncaptured,
			},
			{
				"a wider prefix remains IPv6", "out tcp 10.244.1.5:1 > 192.0.2.1:80 uid 1000",
				uncaptured,
			},
		}},
		{"the widest mapped prefix", func(r *rules.Redirect) {
			r.OutboundCIDRs = prefixSelection("::ffff:0:0/96")
		}, []row{
			{
				"every IPv4 address is included", "out tcp 10.244.1.5:1 > 192.0.2.1:80 uid 1000",
				toOutbound,
			},
			{
				"an IPv6 address is not included",
				"out tcp [fd00::5]:1 > [fd00:9::9]:80 uid 1000", uncaptured,
			},
		}},
		{"mapped prefixes as with istio-init", func(r *rules.Redirect) {
			r.OutboundCIDRs = prefixSelection("::ffff:10.0.0.0/104")
			r.Without = []rules.DeviationID{rules.MappedCIDR}
		}, []row{
			{"an IPv4 packet does not match", "out tcp 10.244.1.5:1 > 10.1.1.1:80 uid 1000", uncaptured},
			{
				"an IPv6 packet, which no host sends, matches",
				"out tcp [::ffff:10.244.1.5]:1 > [::ffff:10.1.1.1]:80 uid 1000", toOutbound,
			},
			{
				"an IPv6 packet to an address outside the prefix does not match",
				"out tcp [::ffff:10.244.1.5]:1 > [::ffff:11.1.1.1]:80 uid 1000", uncaptured,
			},
		}},
		{"a packet without a socket", func(*rules.Redirect) {}, []row{
			{
				"it is not captured on lo, as with xtables",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 no-socket", uncaptured,
			},
			{
				"it is captured on other interfaces",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 no-socket", toOutbound,
			},
		}},
		{"keeping established connections", func(r *rules.Redirect) {
			r.KeepEstablished = true
			r.OutboundPorts = ports("443")
			r.DNS = rules.DNS{Capture: true, All: true}
		}, []row{
			{"a new connection", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000", toOutbound},
			{
				"an existing connection without a conntrack entry",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 flags ack", uncaptured,
			},
			{
				"an existing connection to an included port",
				"out tcp 10.244.1.5:1 > 10.9.9.9:443 uid 1000 flags ack", uncaptured,
			},
			{
				"an existing connection to a DNS server",
				"out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000 flags ack", uncaptured,
			},
			{
				"the proxy's existing connection to its own pod",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337 flags ack", uncaptured,
			},
			{
				"a new TCP query", "out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000",
				toAgent,
			},
			{
				"a UDP query", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000",
				toAgentInZone,
			},
		}},
	}, ipv6)
}

func TestExclusionsAndDNSHaveThePrecedenceOfIstio(t *testing.T) {
	dns := func(r *rules.Redirect) { r.DNS = rules.DNS{Capture: true, All: true} }
	runParameterTests(t, []parameterTest{
		{"an excluded port takes precedence over DNS", func(r *rules.Redirect) {
			r.OutboundExcludePorts = ports("53")
		}, []row{
			{"over TCP", "out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", uncaptured},
			{
				"over UDP, in the zone", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000",
				appZoneOnly,
			},
		}},
		{"other excluded ports do not take precedence over DNS", func(r *rules.Redirect) {
			r.OutboundExcludePorts = ports("52,54-100")
		}, []row{
			{"over TCP", "out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", toAgent},
			{"over UDP", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", toAgentInZone},
		}},
		{"an excluded interface takes precedence over DNS", func(r *rules.Redirect) {
			r.ExcludeInterfaces = interfaceNames("net1")
		}, []row{
			{"over TCP", "out tcp 10.244.1.5:1 > 10.96.0.10:53 dev net1 uid 1000", uncaptured},
			{
				"over UDP, in the zone",
				"out udp 10.244.1.5:1 > 10.96.0.10:53 dev net1 uid 1000", appZoneOnly,
			},
		}},
		{"an excluded owner group takes precedence over DNS", func(r *rules.Redirect) {
			r.OwnerGroupsExclude = ids("202")
		}, []row{
			{"over TCP", "out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000 gid 202", uncaptured},
			{
				"over UDP, in the zone",
				"out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000 gid 202", appZoneOnly,
			},
		}},
		{"DNS takes precedence over an excluded prefix", func(r *rules.Redirect) {
			r.OutboundExcludeCIDRs = prefixSelection("10.96.0.0/16").Prefixes
		}, []row{
			{"over TCP", "out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", toAgent},
			{"over UDP", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", toAgentInZone},
			{
				"at other ports the exclusion applies",
				"out tcp 10.244.1.5:1 > 10.96.0.10:80 uid 1000", uncaptured,
			},
		}},
	}, dns)
}

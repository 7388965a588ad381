package rules_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

func TestOutboundParameters(t *testing.T) {
	runParameterTests(t, []parameterTest{
		{"another port", func(r *rules.Redirect) {
			r.ProxyPort, r.TunnelPort = 12345, 12347
		}, []row{
			{
				"the capture port is the one given", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000",
				rules.Outcome{Redirect: 12345},
			},
			{
				"to the tunnel port of another pod, too",
				"out tcp 10.244.1.5:1 > 10.9.9.9:12347 uid 1000",
				rules.Outcome{Redirect: 12345},
			},
			{
				"the proxy calls its own tunnel port",
				"out tcp 10.244.1.5:1 > 10.244.1.5:12347 uid 1337", leftAlone,
			},
			{
				"the default tunnel port is no longer special",
				"out tcp 10.244.1.5:1 > 10.244.1.5:15008 uid 1337", toInbound,
			},
		}},
		{"a list of prefixes", func(r *rules.Redirect) {
			r.OutboundCIDRs = prefixSelection("10.1.2.3/8,fd00:9::/64,10.0.0.0/9,11.0.0.0/8")
		}, []row{
			{
				"the first address of one with host bits",
				"out tcp 10.244.1.5:1 > 10.0.0.0:80 uid 1000", toOutbound,
			},
			{
				"the last address of two side by side",
				"out tcp 10.244.1.5:1 > 11.255.255.255:80 uid 1000", toOutbound,
			},
			{"the address before", "out tcp 10.244.1.5:1 > 9.255.255.255:80 uid 1000", leftAlone},
			{"the address behind", "out tcp 10.244.1.5:1 > 12.0.0.0:80 uid 1000", leftAlone},
			{"an IPv6 address", "out tcp [fd00::5]:1 > [fd00:9::9]:80 uid 1000", toOutbound},
			{"another IPv6 address", "out tcp [fd00::5]:1 > [fd00:9:0:1::]:80 uid 1000", leftAlone},
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
			{"another port", "out tcp 10.244.1.5:1 > 192.0.2.1:81 uid 1000", leftAlone},
			{"UDP is not included", "out udp 10.244.1.5:1 > 192.0.2.1:80 uid 1000", leftAlone},
			{
				"the loopback address is not included",
				"out tcp 10.244.1.5:1 > 127.0.0.1:80 dev eth0 uid 1000", leftAlone,
			},
		}},
		{"excluded prefixes", func(r *rules.Redirect) {
			r.OutboundExcludeCIDRs = prefixSelection(
				"169.254.169.254/32,fd00:ec2::254/128,10.10.0.0/16").Prefixes
			r.OutboundPorts = ports("443")
		}, []row{
			{
				"an excluded address", "out tcp 10.244.1.5:1 > 169.254.169.254:80 uid 1000",
				leftAlone,
			},
			{
				"exclusion outranks included ports",
				"out tcp 10.244.1.5:1 > 10.10.1.1:443 uid 1000", leftAlone,
			},
			{
				"the address beside it", "out tcp 10.244.1.5:1 > 169.254.169.253:80 uid 1000",
				toOutbound,
			},
			{
				"an excluded IPv6 address", "out tcp [fd00::5]:1 > [fd00:ec2::254]:80 uid 1000",
				leftAlone,
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
			{"an excluded port", "out tcp 10.244.1.5:1 > 10.9.9.9:5432 uid 1000", leftAlone},
			{
				"exclusion outranks inclusion", "out tcp 10.244.1.5:1 > 10.9.9.9:443 uid 1000",
				leftAlone,
			},
			{
				"even the proxy's call to its own pod",
				"out tcp 10.244.1.5:1 > 10.244.1.5:5432 uid 1337", leftAlone,
			},
			{"another port", "out tcp 10.244.1.5:1 > 10.9.9.9:5433 uid 1000", toOutbound},
		}},
		{"several users and groups of the proxy", func(r *rules.Redirect) {
			r.ProxyUIDs, r.ProxyGIDs = ids("1338,1337"), ids("1400,1401-1409")
		}, []row{
			{
				"each user's connections are left alone",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1337 gid 5", leftAlone,
			},
			{"each group's, too", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 5 gid 1405", leftAlone},
			{
				"the first user's calls to the own pod are inbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1338 gid 5", toInbound,
			},
			{
				"those of the other users are not, in Istio neither",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337 gid 5", leftAlone,
			},
			{
				"nor are those of the groups",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 5 gid 1400", leftAlone,
			},
			{
				"the default group means nothing",
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
				"also to a loopback address", "out tcp 127.0.0.1:1 > 127.0.0.2:80 uid 1000",
				toOutbound,
			},
			{"but to the one", "out tcp 127.0.0.1:1 > 127.0.0.1:80 uid 1000", leftAlone},
			{
				"every user of the proxy reaches its pod as inbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1338 gid 5", toInbound,
			},
			{"every group, too", "out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 5 gid 1337", toInbound},
			{
				"but not at the tunnel port",
				"out tcp 10.244.1.5:1 > 10.244.1.5:15008 uid 5 gid 1337", leftAlone,
			},
			{
				"IPv6 follows, though no IPv6 prefix is included",
				"out tcp [fd00::5]:1 > [fd00::5]:80 uid 1338 gid 5", toInbound,
			},
		}},
		{"an included IPv6 loopback address", func(r *rules.Redirect) {
			r.OutboundCIDRs = prefixSelection("::1/128,10.0.0.0/8")
		}, []row{
			{"IPv4 follows", "out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1000", toOutbound},
			{
				"the address itself is loopback all the same",
				"out tcp [::1]:1 > [::1]:80 uid 1000", leftAlone,
			},
		}},
		{"a wide loopback prefix", func(r *rules.Redirect) {
			r.LoopbackCIDR = netip.MustParsePrefix("127.0.0.1/8")
		}, []row{
			{
				"the proxy's calls to any loopback address are left alone",
				"out tcp 127.0.0.1:1 > 127.0.0.2:80 uid 1337", leftAlone,
			},
			{
				"its calls to the pod's address are inbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337", toInbound,
			},
			{
				"a loopback address by another interface",
				"out tcp 10.244.1.5:1 > 127.9.9.9:80 dev eth0 uid 1000", leftAlone,
			},
		}},
		{"included owner groups", func(r *rules.Redirect) {
			r.OwnerGroups = rules.GroupSelection{IDs: ids("202,300-309")}
			r.OwnerGroupsExclude = ids("202")
		}, []row{
			{
				"an included group, though excluded too: exclusions count only with all groups",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 gid 202", toOutbound,
			},
			{
				"a group of an included range",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 gid 305", toOutbound,
			},
			{"another group", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 gid 203", leftAlone},
			{
				"a packet without socket has no group",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 no-socket", leftAlone,
			},
			{
				"the proxy's calls to its own pod do not depend on it",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337", toInbound,
			},
			{"nor does inbound", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toInbound},
		}},
		{"excluded owner groups", func(r *rules.Redirect) {
			r.OwnerGroupsExclude = ids("202,300-309")
		}, []row{
			{"an excluded group", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 gid 202", leftAlone},
			{
				"a group of an excluded range",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 gid 309", leftAlone,
			},
			{"another group", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 gid 310", toOutbound},
			{"a packet without socket", "out tcp 10.244.1.5:1 > 10.9.9.9:80 no-socket", toOutbound},
		}},
		{"no owner group", func(r *rules.Redirect) {
			r.OwnerGroups = rules.GroupSelection{}
		}, []row{
			{
				"nothing outbound is captured", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000",
				leftAlone,
			},
			{"inbound is", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toInbound},
		}},
		{"mapped prefixes", func(r *rules.Redirect) {
			r.OutboundCIDRs = prefixSelection("::ffff:10.0.0.0/104,::ffff:0:0/90")
			r.OutboundExcludeCIDRs = prefixSelection("::ffff:10.9.0.0/112").Prefixes
		}, []row{
			{
				"an included one means the IPv4 prefix",
				"out tcp 10.244.1.5:1 > 10.1.1.1:80 uid 1000", toOutbound,
			},
			{"an excluded one, too", "out tcp 10.244.1.5:1 > 10.9.1.1:80 uid 1000", leftAlone},
			{"a wider one remains IPv6", "out tcp 10.244.1.5:1 > 192.0.2.1:80 uid 1000", leftAlone},
		}},
		{"the widest mapped prefix", func(r *rules.Redirect) {
			r.OutboundCIDRs = prefixSelection("::ffff:0:0/96")
		}, []row{
			{"means all of IPv4", "out tcp 10.244.1.5:1 > 192.0.2.1:80 uid 1000", toOutbound},
			{"and nothing of IPv6", "out tcp [fd00::5]:1 > [fd00:9::9]:80 uid 1000", leftAlone},
		}},
		{"mapped prefixes as istio-init has them", func(r *rules.Redirect) {
			r.OutboundCIDRs = prefixSelection("::ffff:10.0.0.0/104")
			r.Without = []rules.DeviationID{rules.MappedCIDR}
		}, []row{
			{"do not mean IPv4", "out tcp 10.244.1.5:1 > 10.1.1.1:80 uid 1000", leftAlone},
			{
				"but packets that no host sends",
				"out tcp [::ffff:10.244.1.5]:1 > [::ffff:10.1.1.1]:80 uid 1000", toOutbound,
			},
			{
				"and only within the prefix",
				"out tcp [::ffff:10.244.1.5]:1 > [::ffff:11.1.1.1]:80 uid 1000", leftAlone,
			},
		}},
		{"a packet without socket", func(*rules.Redirect) {}, []row{
			{
				"over lo is left alone, as with xtables",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 no-socket", leftAlone,
			},
			{"elsewhere is captured", "out tcp 10.244.1.5:1 > 10.9.9.9:80 no-socket", toOutbound},
		}},
		{"keeping established connections", func(r *rules.Redirect) {
			r.KeepEstablished = true
			r.OutboundPorts = ports("443")
			r.DNS = rules.DNS{Capture: true, All: true}
		}, []row{
			{"a connection that begins", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000", toOutbound},
			{
				"one that conntrack learns of only now",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 flags ack", leftAlone,
			},
			{
				"the same to an included port",
				"out tcp 10.244.1.5:1 > 10.9.9.9:443 uid 1000 flags ack", leftAlone,
			},
			{
				"the same to a DNS server",
				"out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000 flags ack", leftAlone,
			},
			{
				"the proxy's old connection to its own pod",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337 flags ack", leftAlone,
			},
			{
				"a query by TCP that begins", "out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000",
				toAgent,
			},
			{
				"a query by UDP has no beginning", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000",
				toAgentInZone,
			},
		}},
	}, ipv6)
}

func TestExclusionsAndDNSOutrankEachOtherInIstiosOrder(t *testing.T) {
	dns := func(r *rules.Redirect) { r.DNS = rules.DNS{Capture: true, All: true} }
	runParameterTests(t, []parameterTest{
		{"an excluded port outranks DNS", func(r *rules.Redirect) {
			r.OutboundExcludePorts = ports("53")
		}, []row{
			{"over TCP", "out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", leftAlone},
			{
				"over UDP, though its zone is set", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000",
				aloneAppZone,
			},
		}},
		{"other excluded ports do not", func(r *rules.Redirect) {
			r.OutboundExcludePorts = ports("52,54-100")
		}, []row{
			{"over TCP", "out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", toAgent},
			{"over UDP", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", toAgentInZone},
		}},
		{"an excluded interface outranks DNS", func(r *rules.Redirect) {
			r.ExcludeInterfaces = interfaceNames("net1")
		}, []row{
			{"over TCP", "out tcp 10.244.1.5:1 > 10.96.0.10:53 dev net1 uid 1000", leftAlone},
			{
				"over UDP, though its zone is set",
				"out udp 10.244.1.5:1 > 10.96.0.10:53 dev net1 uid 1000", aloneAppZone,
			},
		}},
		{"an owner group outranks DNS", func(r *rules.Redirect) {
			r.OwnerGroupsExclude = ids("202")
		}, []row{
			{"over TCP", "out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000 gid 202", leftAlone},
			{
				"over UDP, though its zone is set",
				"out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000 gid 202", aloneAppZone,
			},
		}},
		{"DNS outranks an excluded prefix", func(r *rules.Redirect) {
			r.OutboundExcludeCIDRs = prefixSelection("10.96.0.0/16").Prefixes
		}, []row{
			{"over TCP", "out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", toAgent},
			{"over UDP", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", toAgentInZone},
			{"not for other ports", "out tcp 10.244.1.5:1 > 10.96.0.10:80 uid 1000", leftAlone},
		}},
	}, dns)
}

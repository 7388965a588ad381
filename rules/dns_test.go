package rules_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// servers returns a change that captures the queries to the given servers.
func servers(texts ...string) func(*rules.Redirect) {
	return func(r *rules.Redirect) {
		r.DNS.Capture = true
		for _, text := range texts {
			r.DNS.Servers = append(r.DNS.Servers, netip.MustParseAddr(text))
		}
	}
}

func TestDNSParameters(t *testing.T) {
	all := func(r *rules.Redirect) { r.DNS = rules.DNS{Capture: true, All: true} }
	const (
		appQuery   = "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000"
		proxyQuery = "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1337"
	)
	runParameterTests(t, []parameterTest{
		{"no capture", func(*rules.Redirect) {}, []row{
			{"a query over UDP is not captured", appQuery, uncaptured},
			{
				"a query over TCP is an outbound connection",
				"out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", toOutbound,
			},
		}},
		{"all queries without capture", func(r *rules.Redirect) {
			r.DNS.All = true
		}, []row{{"a query", appQuery, uncaptured}}},
		{"servers without capture", func(r *rules.Redirect) {
			servers("10.96.0.10")(r)
			r.DNS.Capture = false
		}, []row{{"a query", appQuery, uncaptured}}},
		{"capture without servers", func(r *rules.Redirect) {
			r.DNS.Capture = true
		}, []row{
			{"a query", appQuery, uncaptured},
			{"the proxy's query has no zone", proxyQuery, uncaptured},
			{
				"the proxy's query over TCP to its own pod is inbound without DNS capture",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 1337", toInbound,
			},
		}},
		{"capture of all queries", all, []row{
			{"the application's query over UDP", appQuery, toAgentInZone},
			{
				"an IPv6 query over UDP", "out udp [fd00::5]:1 > [fd00:10:96::a]:53 uid 1000",
				toAgentInZone,
			},
			{"a query over TCP", "out tcp 10.244.1.5:1 > 192.0.2.1:53 uid 1000", toAgent},
			{
				"a query to any server", "out udp 10.244.1.5:1 > 192.0.2.1:53 uid 1000",
				toAgentInZone,
			},
			{
				"a query to a loopback address", "out udp 127.0.0.1:1 > 127.0.0.53:53 uid 1000",
				toAgentInZone,
			},
			{
				"a query to 127.0.0.1", "out udp 127.0.0.1:1 > 127.0.0.1:53 uid 1000",
				toAgentInZone,
			},
			{
				"a query over TCP to 127.0.0.1", "out tcp 127.0.0.1:1 > 127.0.0.1:53 uid 1000",
				toAgent,
			},
			{
				"a query without a socket", "out udp 10.244.1.5:1 > 10.96.0.10:53 no-socket",
				toAgentInZone,
			},
			{"the proxy's query is in its own zone", proxyQuery, proxyZoneOnly},
			{
				"a query of the proxy's group is in the proxy's zone",
				"out udp 10.244.1.5:1 > 10.96.0.10:53 uid 0 gid 1337", proxyZoneOnly,
			},
			{
				"the proxy's query over TCP is not captured",
				"out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1337",
				uncaptured,
			},
			{
				"an answer to the proxy is in its zone", "in udp 10.96.0.10:53 > 10.244.1.5:1",
				proxyZoneOnly,
			},
			{
				"an answer of the agent is in the application's zone",
				"out udp 127.0.0.1:15053 > 10.244.1.5:1 uid 1337 dev lo", appZoneOnly,
			},
			{
				"a query from the agent's port is in the proxy's zone: the first rule decides",
				"out udp 10.244.1.5:15053 > 10.96.0.10:53 uid 1337", proxyZoneOnly,
			},
			{
				"a packet of another user from port 15053 is not an answer",
				"out udp 10.244.1.5:15053 > 10.9.9.9:80 uid 1000", uncaptured,
			},
			{"other ports are not DNS", "out udp 10.244.1.5:1 > 10.96.0.10:54 uid 1000", uncaptured},
			{
				"a query that another pod sends to the pod is not captured",
				"in udp 10.1.1.1:1 > 10.244.1.5:53", uncaptured,
			},
		}},
		{"DNS over lo", all, []row{
			{
				"the proxy's call to its own pod is inbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337", toInbound,
			},
			{
				"the proxy's call to port 53 is not captured",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 1337",
				uncaptured,
			},
			{
				"a group's call to port 53 is inbound, because Istio exempts only the tunnel port",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 0 gid 1337", toInbound,
			},
			{
				"a group's call to the loopback address is not captured",
				"out tcp 127.0.0.1:1 > 127.0.0.1:53 uid 0 gid 1337", uncaptured,
			},
			{
				"a group's call to another port is not captured",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 0 gid 1337",
				uncaptured,
			},
			{
				"the application's call to its own pod is not captured",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1000", uncaptured,
			},
		}},
		{"DNS over lo with the tunnel port 53", func(r *rules.Redirect) {
			all(r)
			r.TunnelPort = 53
		}, []row{
			{
				"a group's call to port 53 is not captured",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 0 gid 1337", uncaptured,
			},
			{
				"the proxy's call to port 53 is not captured",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 1337", uncaptured,
			},
		}},
		{"DNS over lo with an included loopback prefix", func(r *rules.Redirect) {
			all(r)
			r.OutboundCIDRs = prefixSelection("127.0.0.0/8")
		}, []row{
			{
				"a group's call to port 53 of its own pod is inbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 0 gid 1337", toInbound,
			},
			{
				"a group's call to another port is inbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 0 gid 1337",
				toInbound,
			},
			{
				"the proxy's call to port 53 is not captured",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 1337", uncaptured,
			},
			{
				"the application's call to port 53 goes to the agent",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 1000", toAgent,
			},
		}},
		{"servers of both families", servers("10.96.0.10", "fd00:10:96::a", "10.96.0.10",
			"127.0.0.53"), []row{
			{"a query to a server", appQuery, toAgentInZone},
			{
				"a query to an IPv6 server", "out udp [fd00::5]:1 > [fd00:10:96::a]:53 uid 1000",
				toAgentInZone,
			},
			{
				"a query to a server over TCP", "out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000",
				toAgent,
			},
			{
				"a query to a server at a loopback address",
				"out udp 127.0.0.1:1 > 127.0.0.53:53 uid 1000", toAgentInZone,
			},
			{
				"a query to another server over UDP",
				"out udp 10.244.1.5:1 > 192.0.2.1:53 uid 1000", uncaptured,
			},
			{
				"a query to another server over TCP is an outbound connection",
				"out tcp 10.244.1.5:1 > 192.0.2.1:53 uid 1000", toOutbound,
			},
			{
				"a query over TCP to another server on lo is an outbound connection",
				"out tcp 127.0.0.1:1 > 127.0.0.54:53 uid 1000", toOutbound,
			},
			{
				"the proxy's query to any server is in its zone",
				"out udp 10.244.1.5:1 > 192.0.2.1:53 uid 1337", proxyZoneOnly,
			},
			{"an answer of a server", "in udp [fd00:10:96::a]:53 > [fd00::5]:1", proxyZoneOnly},
			{"an answer of another server", "in udp 192.0.2.1:53 > 10.244.1.5:1", uncaptured},
			{
				"another port of a server is an outbound connection",
				"out tcp 10.244.1.5:1 > 10.96.0.10:54 uid 1000", toOutbound,
			},
		}},
		{
			"an IPv4-mapped server", servers("::ffff:10.96.0.10"),
			[]row{{"the server is an IPv4 server", appQuery, toAgentInZone}},
		},
		{"captured owner groups", func(r *rules.Redirect) {
			all(r)
			r.OwnerGroups = rules.GroupSelection{IDs: ids("202")}
		}, []row{
			{
				"a captured group's query", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000 gid 202",
				toAgentInZone,
			},
			{
				"another group's query is not captured, but is in the application's zone", appQuery,
				appZoneOnly,
			},
		}},
		{"several users and groups", func(r *rules.Redirect) {
			all(r)
			r.ProxyUIDs, r.ProxyGIDs = ids("3,4"), ids("1,2")
		}, []row{
			{
				"each user's query is a query of the proxy",
				"out udp 10.244.1.5:1 > 10.96.0.10:53 uid 4 gid 9", proxyZoneOnly,
			},
			{
				"each group's query is a query of the proxy",
				"out udp 10.244.1.5:1 > 10.96.0.10:53 uid 9 gid 2", proxyZoneOnly,
			},
			{
				"a group's call to port 53 of its own pod is inbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 9 gid 2", toInbound,
			},
		}},
	}, ipv6)
}

func TestDNSServersOfAMissingFamily(t *testing.T) {
	checkRows(t, compile(t, typical(servers("fd00:10:96::a"))), []row{
		{
			"IPv4 queries are not captured", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000",
			uncaptured,
		},
		{
			"IPv6 queries are not captured",
			"out udp [fd00::5]:1 > [fd00:10:96::a]:53 uid 1000", uncaptured,
		},
		{
			"the proxy's queries are in its zone, as in Istio",
			"out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1337", proxyZoneOnly,
		},
		{
			"answers to the proxy are in the default zone, as in Istio",
			"in udp 10.96.0.10:53 > 10.244.1.5:1", uncaptured,
		},
		{
			"queries over TCP are outbound connections",
			"out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", toOutbound,
		},
	})
}

package rules_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// servers captures the queries to some servers.
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
	const appQuery, proxyQuery = "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1337"
	runParameterTests(t, []parameterTest{
		{"no capture", func(*rules.Redirect) {}, []row{
			{"a query over UDP is left alone", appQuery, leftAlone},
			{
				"a query over TCP is an outbound connection",
				"out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", toOutbound,
			},
		}},
		{"all queries without capture have no effect", func(r *rules.Redirect) {
			r.DNS.All = true
		}, []row{{"a query", appQuery, leftAlone}}},
		{"servers without capture have no effect", func(r *rules.Redirect) {
			servers("10.96.0.10")(r)
			r.DNS.Capture = false
		}, []row{{"a query", appQuery, leftAlone}}},
		{"capture without any server has no effect", func(r *rules.Redirect) {
			r.DNS.Capture = true
		}, []row{
			{"a query", appQuery, leftAlone},
			{"the proxy's query has no zone", proxyQuery, leftAlone},
			{
				"the proxy's query over TCP to its own pod is inbound, since DNS is off",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 1337", toInbound,
			},
		}},
		{"capture of all queries", all, []row{
			{"the application's, over UDP", appQuery, toAgentInZone},
			{"in IPv6", "out udp [fd00::5]:1 > [fd00:10:96::a]:53 uid 1000", toAgentInZone},
			{"over TCP", "out tcp 10.244.1.5:1 > 192.0.2.1:53 uid 1000", toAgent},
			{"to any server", "out udp 10.244.1.5:1 > 192.0.2.1:53 uid 1000", toAgentInZone},
			{
				"to a loopback address", "out udp 127.0.0.1:1 > 127.0.0.53:53 uid 1000",
				toAgentInZone,
			},
			{
				"to the loopback address itself", "out udp 127.0.0.1:1 > 127.0.0.1:53 uid 1000",
				toAgentInZone,
			},
			{
				"over TCP to the loopback address", "out tcp 127.0.0.1:1 > 127.0.0.1:53 uid 1000",
				toAgent,
			},
			{
				"of packets without socket", "out udp 10.244.1.5:1 > 10.96.0.10:53 no-socket",
				toAgentInZone,
			},
			{"not the proxy's, which have a zone of their own", proxyQuery, aloneProxy},
			{
				"not those of the proxy's group",
				"out udp 10.244.1.5:1 > 10.96.0.10:53 uid 0 gid 1337", aloneProxy,
			},
			{
				"not the proxy's over TCP", "out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1337",
				leftAlone,
			},
			{
				"answers to the proxy are in its zone", "in udp 10.96.0.10:53 > 10.244.1.5:1",
				aloneProxy,
			},
			{
				"answers of the agent are in the application's",
				"out udp 127.0.0.1:15053 > 10.244.1.5:1 uid 1337 dev lo", aloneAppZone,
			},
			{
				"a query from the agent's port is a query: the first rule decides",
				"out udp 10.244.1.5:15053 > 10.96.0.10:53 uid 1337", aloneProxy,
			},
			{
				"port 15053 of another user is no answer",
				"out udp 10.244.1.5:15053 > 10.9.9.9:80 uid 1000", leftAlone,
			},
			{"other ports are not DNS", "out udp 10.244.1.5:1 > 10.96.0.10:54 uid 1000", leftAlone},
			{
				"queries to the pod are none of its own", "in udp 10.1.1.1:1 > 10.244.1.5:53",
				leftAlone,
			},
		}},
		{"DNS over lo", all, []row{
			{
				"the proxy's call to its own pod is inbound but for port 53",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337", toInbound,
			},
			{
				"at port 53 it is left alone", "out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 1337",
				leftAlone,
			},
			{
				"a group's call at port 53 is inbound, since Istio exempts only the tunnel port there",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 0 gid 1337", toInbound,
			},
			{
				"but not to the loopback address",
				"out tcp 127.0.0.1:1 > 127.0.0.1:53 uid 0 gid 1337", leftAlone,
			},
			{
				"nor at other ports", "out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 0 gid 1337",
				leftAlone,
			},
			{
				"the application's calls are left alone",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1000", leftAlone,
			},
		}},
		{"DNS over lo with a tunnel port that is DNS's", func(r *rules.Redirect) {
			all(r)
			r.TunnelPort = 53
		}, []row{
			{
				"a group's call at port 53 is left alone",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 0 gid 1337", leftAlone,
			},
			{"the proxy's, too", "out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 1337", leftAlone},
		}},
		{"DNS over lo with an included loopback prefix", func(r *rules.Redirect) {
			all(r)
			r.OutboundCIDRs = prefixSelection("127.0.0.0/8")
		}, []row{
			{
				"a group's call at port 53 of the own pod is inbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 0 gid 1337", toInbound,
			},
			{
				"at other ports, too", "out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 0 gid 1337",
				toInbound,
			},
			{
				"the proxy's at port 53 is left alone",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 1337", leftAlone,
			},
			{
				"the application's goes to the agent",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 1000", toAgent,
			},
		}},
		{"servers of both families", servers("10.96.0.10", "fd00:10:96::a", "10.96.0.10",
			"127.0.0.53"), []row{
			{"a query to one", appQuery, toAgentInZone},
			{
				"a query to one in IPv6", "out udp [fd00::5]:1 > [fd00:10:96::a]:53 uid 1000",
				toAgentInZone,
			},
			{"a query to one over TCP", "out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", toAgent},
			{
				"a query to one at a loopback address",
				"out udp 127.0.0.1:1 > 127.0.0.53:53 uid 1000", toAgentInZone,
			},
			{
				"a query to another server over UDP",
				"out udp 10.244.1.5:1 > 192.0.2.1:53 uid 1000", leftAlone,
			},
			{
				"a query to another server over TCP is an outbound connection",
				"out tcp 10.244.1.5:1 > 192.0.2.1:53 uid 1000", toOutbound,
			},
			{"also over lo", "out tcp 127.0.0.1:1 > 127.0.0.54:53 uid 1000", toOutbound},
			{
				"the proxy's query to any server is in its zone",
				"out udp 10.244.1.5:1 > 192.0.2.1:53 uid 1337", aloneProxy,
			},
			{"an answer of one", "in udp [fd00:10:96::a]:53 > [fd00::5]:1", aloneProxy},
			{"an answer of another server", "in udp 192.0.2.1:53 > 10.244.1.5:1", leftAlone},
			{
				"another port of one is an outbound connection",
				"out tcp 10.244.1.5:1 > 10.96.0.10:54 uid 1000", toOutbound,
			},
		}},
		{
			"a mapped server", servers("::ffff:10.96.0.10"),
			[]row{{"is an IPv4 server", appQuery, toAgentInZone}},
		},
		{"captured owner groups", func(r *rules.Redirect) {
			all(r)
			r.OwnerGroups = rules.GroupSelection{IDs: ids("202")}
		}, []row{
			{
				"a captured group's query", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000 gid 202",
				toAgentInZone,
			},
			{"another group's is left alone, though its zone is set", appQuery, aloneAppZone},
		}},
		{"several users and groups", func(r *rules.Redirect) {
			all(r)
			r.ProxyUIDs, r.ProxyGIDs = ids("3,4"), ids("1,2")
		}, []row{
			{
				"each user's queries are the proxy's",
				"out udp 10.244.1.5:1 > 10.96.0.10:53 uid 4 gid 9", aloneProxy,
			},
			{"each group's, too", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 9 gid 2", aloneProxy},
			{
				"a group's call at port 53 of the own pod is inbound",
				"out tcp 10.244.1.5:1 > 10.244.1.5:53 uid 9 gid 2", toInbound,
			},
		}},
	}, ipv6)
}

func TestDNSServersOfAFamilyThatThePodLacks(t *testing.T) {
	checkRows(t, compile(t, typical(servers("fd00:10:96::a"))), []row{
		{
			"queries are left alone in IPv4", "out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1000",
			leftAlone,
		},
		{
			"and in IPv6, which the pod has not",
			"out udp [fd00::5]:1 > [fd00:10:96::a]:53 uid 1000", leftAlone,
		},
		{
			"the proxy's still have their zone, as in Istio",
			"out udp 10.244.1.5:1 > 10.96.0.10:53 uid 1337", aloneProxy,
		},
		{"answers to them have not, as in Istio", "in udp 10.96.0.10:53 > 10.244.1.5:1", leftAlone},
		{
			"queries over TCP are outbound connections",
			"out tcp 10.244.1.5:1 > 10.96.0.10:53 uid 1000", toOutbound,
		},
	})
}

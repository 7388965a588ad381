package rules_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// A parameterTest is a change of the parameters and its effect on packets.
type parameterTest struct {
	name   string
	change func(*rules.Redirect)
	rows   []row
}

// runParameterTests applies each change to the typical parameters.
func runParameterTests(t *testing.T, tests []parameterTest, common ...func(*rules.Redirect)) {
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			checkRows(t, compile(t, typical(append(common, tc.change)...)), tc.rows)
		})
	}
}

func TestInboundParametersInRedirectMode(t *testing.T) {
	runParameterTests(t, []parameterTest{
		{"other ports of the proxy", func(r *rules.Redirect) {
			r.InboundCapturePort, r.TunnelPort = 12346, 12347
		}, []row{
			{
				"the given capture port is used", "in tcp 10.1.1.1:1 > 10.244.1.5:80",
				rules.Outcome{Redirect: 12346},
			},
			{
				"the given tunnel port is not captured", "in tcp 10.1.1.1:1 > 10.244.1.5:12347",
				uncaptured,
			},
			{
				"the default tunnel port is captured",
				"in tcp 10.1.1.1:1 > 10.244.1.5:15008",
				rules.Outcome{Redirect: 12346},
			},
		}},
		{"states of connections", func(*rules.Redirect) {}, []row{
			{"a new connection", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toInbound},
			{
				"a related connection", "in tcp 10.1.1.1:1 > 10.244.1.5:80 state related flags syn",
				toInbound,
			},
			{
				"an established connection is not redirected",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 state established", uncaptured,
			},
			{
				"an invalid packet is not redirected",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 state invalid",
				uncaptured,
			},
			{
				"a new connection without SYN, such as after a flush of conntrack, is redirected",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags ack", toInbound,
			},
		}},
		{"a list of ports", func(r *rules.Redirect) {
			r.InboundPorts = rules.PortSelection{Ports: ports("80,443,8000-9000,15008")}
			r.InboundExcludePorts = ports("443")
		}, []row{
			{"a listed port", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toInbound},
			{"a port within a listed range", "in tcp 10.1.1.1:1 > 10.244.1.5:8500", toInbound},
			{
				"a listed port that is also excluded: exclusions have no effect on a list",
				"in tcp 10.1.1.1:1 > 10.244.1.5:443", toInbound,
			},
			{"a port that is not listed", "in tcp 10.1.1.1:1 > 10.244.1.5:81", uncaptured},
			{"the listed tunnel port", "in tcp 10.1.1.1:1 > 10.244.1.5:15008", uncaptured},
		}},
		{"no ports", func(r *rules.Redirect) { r.InboundPorts.All = false }, []row{
			{
				"an inbound connection is not captured", "in tcp 10.1.1.1:1 > 10.244.1.5:80",
				uncaptured,
			},
			{
				"the proxy's call to its own pod is captured",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337", toInbound,
			},
		}},
		{"excluded ports", func(r *rules.Redirect) {
			r.InboundExcludePorts = ports("8000-9000,80")
		}, []row{
			{"an excluded port", "in tcp 10.1.1.1:1 > 10.244.1.5:80", uncaptured},
			{"the first of an excluded range", "in tcp 10.1.1.1:1 > 10.244.1.5:8000", uncaptured},
			{"the last of an excluded range", "in tcp 10.1.1.1:1 > 10.244.1.5:9000", uncaptured},
			{"the port after an excluded range", "in tcp 10.1.1.1:1 > 10.244.1.5:9001", toInbound},
			{
				"the health port, which is not excluded here",
				"in tcp 10.1.1.1:1 > 10.244.1.5:15021", toInbound,
			},
		}},
		{"excluded interfaces", func(r *rules.Redirect) {
			r.ExcludeInterfaces = interfaceNames("net1,veth+")
		}, []row{
			{
				"a packet that arrives on an excluded interface", "in tcp 10.1.1.1:1 > 10.244.1.5:80 dev net1",
				uncaptured,
			},
			{
				"a packet that arrives on an interface with an excluded prefix",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 dev veth7",
				uncaptured,
			},
			{
				"a packet that leaves through an excluded interface",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 dev net1 uid 1000",
				uncaptured,
			},
			{
				"a packet that leaves through an interface with an excluded prefix",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 dev veth7 uid 1000", uncaptured,
			},
			{
				"a longer interface name", "in tcp 10.1.1.1:1 > 10.244.1.5:80 dev net10",
				toInbound,
			},
			{"another interface", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000", toOutbound},
		}},
		{"rerouted interfaces", func(r *rules.Redirect) {
			r.RerouteInterfaces = interfaceNames("eth1,tap+,net1")
			r.ExcludeInterfaces = interfaceNames("net1")
			r.OutboundCIDRs = prefixSelection("10.0.0.0/8,fd00::/8")
			r.OutboundExcludeCIDRs = prefixSelection("10.9.0.0/16").Prefixes
			r.OutboundExcludePorts = ports("80")
		}, []row{
			{
				"an included destination is outbound", "in tcp 10.1.1.1:1 > 10.2.2.2:443 dev eth1",
				toOutbound,
			},
			{
				"an included destination from an interface with a rerouted prefix",
				"in tcp 10.1.1.1:1 > 10.2.2.2:443 dev tap0", toOutbound,
			},
			{
				"an included IPv6 destination", "in tcp [fd00::9]:1 > [fd00::1]:443 dev eth1",
				toOutbound,
			},
			{
				"an excluded destination is outbound, because exclusions do not apply to this traffic",
				"in tcp 10.1.1.1:1 > 10.9.2.2:443 dev eth1", toOutbound,
			},
			{
				"an excluded port is outbound", "in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1",
				toOutbound,
			},
			{
				"a packet from an excluded interface is outbound",
				"in tcp 10.1.1.1:1 > 10.2.2.2:443 dev net1", toOutbound,
			},
			{
				"other destinations are not captured", "in tcp 10.1.1.1:1 > 192.0.2.1:443 dev eth1",
				uncaptured,
			},
			{"UDP is not captured", "in udp 10.1.1.1:1 > 10.2.2.2:443 dev eth1", uncaptured},
			{
				"packets from other interfaces are inbound", "in tcp 10.1.1.1:1 > 10.2.2.2:443 dev eth0",
				toInbound,
			},
		}},
		{"rerouted interfaces, all destinations", func(r *rules.Redirect) {
			r.RerouteInterfaces = interfaceNames("eth1")
		}, []row{
			{
				"every destination is outbound", "in tcp 10.1.1.1:1 > 192.0.2.1:443 dev eth1",
				toOutbound,
			},
			{"UDP is not captured", "in udp 10.1.1.1:1 > 192.0.2.1:443 dev eth1", uncaptured},
		}},
		{"rerouted interfaces, no destination", func(r *rules.Redirect) {
			r.RerouteInterfaces = interfaceNames("eth1")
			r.OutboundCIDRs.All = false
		}, []row{
			{
				"a connection is neither outbound nor inbound",
				"in tcp 10.1.1.1:1 > 10.2.2.2:443 dev eth1", uncaptured,
			},
		}},
		{"dropping invalid packets", func(r *rules.Redirect) {
			r.DropInvalid = true
			r.ExcludeInterfaces = interfaceNames("net1")
		}, []row{
			{
				"an invalid TCP packet", "in tcp 10.1.1.1:1 > 10.244.1.5:80 state invalid",
				dropped,
			},
			{
				"an invalid UDP packet", "in udp 10.1.1.1:1 > 10.244.1.5:80 state invalid",
				dropped,
			},
			{
				"an invalid ICMPv6 packet", "in ipv6-icmp fd00::9 > fd00::5 state invalid",
				dropped,
			},
			{
				"an invalid packet on an excluded interface",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 dev net1 state invalid", dropped,
			},
			{
				"an invalid packet to the pod itself",
				"out tcp 127.0.0.1:1 > 127.0.0.1:80 uid 1000 state invalid", dropped,
			},
			{
				"an outgoing invalid packet is not dropped",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 state invalid",
				uncaptured,
			},
			{
				"an untracked packet is not dropped",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 state untracked", uncaptured,
			},
			{"a new connection is not dropped", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toInbound},
		}},
		{"keeping established connections", func(r *rules.Redirect) {
			r.KeepEstablished = true
			r.RerouteInterfaces = interfaceNames("eth1")
		}, []row{
			{"a new connection", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toInbound},
			{
				"an existing connection without a conntrack entry",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags ack", uncaptured,
			},
			{
				"an answer without a conntrack entry",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags syn,ack", uncaptured,
			},
			{
				"an existing connection from a rerouted interface",
				"in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1 flags ack", uncaptured,
			},
			{
				"a new connection from a rerouted interface",
				"in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1", toOutbound,
			},
		}},
	}, ipv6)
}

func TestInboundParametersInTProxyMode(t *testing.T) {
	marked := func(o rules.Outcome, mark, conntrackMark uint32) rules.Outcome {
		o.Mark, o.ConntrackMark = mark, conntrackMark
		return o
	}
	runParameterTests(t, []parameterTest{
		{"states of connections", func(*rules.Redirect) {}, []row{
			{
				"a new connection goes to the listener", "in tcp 10.1.1.1:1 > 10.244.1.5:80",
				toTransparent,
			},
			{
				"a new connection without a listener is dropped, as with istio-init",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 no-listener", dropped,
			},
			{
				"an excluded port is reachable without a listener",
				"in tcp 10.1.1.1:1 > 10.244.1.5:15021 no-listener", uncaptured,
			},
			{
				"an established connection goes to its socket",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 state established", marked(uncaptured, 0x539, 0),
			},
			{
				"a related connection goes to its socket",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 state related", marked(uncaptured, 0x539, 0),
			},
			{
				"an invalid packet goes to the listener",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 state invalid", toTransparent,
			},
			{"UDP is not captured", "in udp 10.1.1.1:1 > 10.244.1.5:80", uncaptured},
			{
				"a packet to the loopback address does not go to the listener",
				"in tcp 127.0.0.1:1 > 127.0.0.1:80 dev lo mark 0x53a", marked(uncaptured, 0x53a, 0),
			},
			{
				"an established connection to an excluded port is not captured",
				"in tcp 10.1.1.1:1 > 10.244.1.5:15021 state established", uncaptured,
			},
		}},
		{"the proxy's connections from the client's address", func(*rules.Redirect) {}, []row{
			{
				"the mark is saved in the connection",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 dev lo mark 0x539",
				marked(uncaptured, 0x539, 0x539),
			},
			{
				"the proxy's packet goes to the application",
				"out tcp 10.1.1.1:1 > 10.244.1.5:80 dev lo uid 0 gid 1337 mark 0x539",
				marked(uncaptured, 0x539, 0x539),
			},
			{
				"the application's answer returns to the proxy instead of the client",
				"out tcp 10.244.1.5:80 > 10.1.1.1:1 uid 1000 ctmark 0x539 state established",
				marked(rerouted, 0x539, 0x539),
			},
			{
				"another connection mark has no effect",
				"out tcp 10.244.1.5:80 > 10.1.1.1:1 uid 1000 ctmark 0x538 state established",
				marked(uncaptured, 0, 0x538),
			},
			{
				"a connection mark has no effect for UDP",
				"out udp 10.244.1.5:80 > 10.1.1.1:1 uid 1000 ctmark 0x539 state established",
				marked(uncaptured, 0, 0x539),
			},
			{
				"the mark of an invalid packet is not saved",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 dev lo mark 0x539 state invalid",
				marked(uncaptured, 0x539, 0),
			},
		}},
		{"within the pod", func(*rules.Redirect) {}, []row{
			{
				"the application calls itself", "in tcp 10.244.1.5:1 > 10.244.1.5:80 dev lo",
				uncaptured,
			},
			{
				"the proxy calls the application from 127.0.0.6",
				"in tcp 127.0.0.6:1 > 10.244.1.5:80 dev lo mark 0x53a", marked(uncaptured, 0x53a, 0),
			},
			{
				"the proxy calls the application from ::6",
				"in tcp [::6]:1 > [fd00::5]:80 dev lo mark 0x53a",
				marked(uncaptured, 0x53a, 0),
			},
			{
				"a packet from 127.0.0.6 on another interface",
				"in tcp 127.0.0.6:1 > 10.244.1.5:80 dev eth0 mark 0x53a",
				toTransparent,
			},
			{
				"the proxy calls its own pod",
				"in tcp 10.244.1.5:1 > 10.244.1.5:80 dev lo mark 0x53a", toTransparent,
			},
		}},
		{"another mark, port and table", func(r *rules.Redirect) {
			r.TProxyMark, r.TProxyRouteTable, r.InboundCapturePort = 7, 8, 12346
		}, []row{
			{
				"the parameters' port and mark are used", "in tcp 10.1.1.1:1 > 10.244.1.5:80",
				rules.Outcome{TProxy: 12346, Mark: 7},
			},
			{
				"a packet of the application with this connection mark returns to the proxy",
				"out tcp 10.244.1.5:80 > 10.1.1.1:1 ctmark 7 state established",
				marked(rerouted, 7, 7),
			},
		}},
		{"a list of ports", func(r *rules.Redirect) {
			r.InboundPorts = rules.PortSelection{Ports: ports("80,15008")}
			r.InboundExcludePorts = ports("80")
		}, []row{
			{"a listed port that is also excluded", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toTransparent},
			{
				"a listed port without a listener", "in tcp 10.1.1.1:1 > 10.244.1.5:80 no-listener",
				dropped,
			},
			{"another port", "in tcp 10.1.1.1:1 > 10.244.1.5:81", uncaptured},
			{
				"another port without a listener", "in tcp 10.1.1.1:1 > 10.244.1.5:81 no-listener",
				uncaptured,
			},
			{
				"an established connection to another port",
				"in tcp 10.1.1.1:1 > 10.244.1.5:81 state established",
				uncaptured,
			},
			{"the listed tunnel port", "in tcp 10.1.1.1:1 > 10.244.1.5:15008", uncaptured},
		}},
		{"no ports", func(r *rules.Redirect) { r.InboundPorts.All = false }, []row{
			{
				"an inbound connection is not captured", "in tcp 10.1.1.1:1 > 10.244.1.5:80",
				uncaptured,
			},
			{
				"marks are saved", "in tcp 10.1.1.1:1 > 10.244.1.5:80 mark 0x539",
				marked(uncaptured, 0x539, 0x539),
			},
			{
				"the proxy's calls to its own pod are redirected",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337",
				selfCallToInbound,
			},
		}},
		{"excluded interfaces", func(r *rules.Redirect) {
			r.ExcludeInterfaces = interfaceNames("net1,veth+")
			r.DropInvalid = true
		}, []row{
			{
				"a packet that arrives on an excluded interface", "in tcp 10.1.1.1:1 > 10.244.1.5:80 dev net1",
				uncaptured,
			},
			{
				"an established connection",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 dev veth1 state established",
				uncaptured,
			},
			{
				"marks are not saved", "in tcp 10.1.1.1:1 > 10.244.1.5:80 dev net1 mark 0x539",
				marked(uncaptured, 0x539, 0),
			},
			{
				"marks are not restored",
				"out tcp 10.244.1.5:80 > 10.1.1.1:1 dev net1 ctmark 0x539 state established",
				marked(uncaptured, 0, 0x539),
			},
			{
				"an invalid packet is not dropped, unlike in REDIRECT mode",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 dev net1 state invalid", uncaptured,
			},
			{
				"an invalid packet on another interface is dropped",
				"in udp 10.1.1.1:1 > 10.244.1.5:80 state invalid", dropped,
			},
		}},
		{"rerouted interfaces", func(r *rules.Redirect) {
			r.RerouteInterfaces = interfaceNames("eth1")
		}, []row{
			{
				"packets from a rerouted interface are outbound",
				"in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1", toOutbound,
			},
			{
				"packets are outbound even without an inbound listener",
				"in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1 no-listener", toOutbound,
			},
			{
				"the tunnel port is outbound", "in tcp 10.1.1.1:1 > 10.2.2.2:15008 dev eth1",
				toOutbound,
			},
			{
				"an established connection",
				"in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1 state established",
				uncaptured,
			},
		}},
		{"rerouted interfaces as with istio-init", func(r *rules.Redirect) {
			r.RerouteInterfaces = interfaceNames("eth1")
			r.Without = []rules.DeviationID{rules.RerouteTProxy}
		}, []row{
			{
				"packets are inbound, and are redirected to the outbound port",
				"in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1",
				rules.Outcome{Redirect: 15001, TProxy: 15006, Mark: 0x539},
			},
			{
				"packets are dropped without an inbound listener",
				"in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1 no-listener", dropped,
			},
			{
				"the tunnel port is a separate deviation",
				"in tcp 10.1.1.1:1 > 10.2.2.2:15008 dev eth1", toOutbound,
			},
		}},
		{"keeping established connections", func(r *rules.Redirect) {
			r.KeepEstablished = true
		}, []row{
			{"a new connection", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toTransparent},
			{
				"a new connection without a listener",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 no-listener", dropped,
			},
			{
				"an existing connection without a conntrack entry",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags ack", uncaptured,
			},
			{
				"an existing connection without a conntrack entry or listener",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags ack no-listener", uncaptured,
			},
			{
				"an established connection goes to its socket",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 state established", marked(uncaptured, 0x539, 0),
			},
		}},
	}, ipv6, tproxyMode)
}

package rules_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// A parameterTest shows the effect of parameters on packets.
type parameterTest struct {
	says   string
	change func(*rules.Redirect)
	rows   []row
}

// runParameterTests applies each change to the typical parameters.
func runParameterTests(t *testing.T, tests []parameterTest, common ...func(*rules.Redirect)) {
	for _, tc := range tests {
		t.Run(tc.says, func(t *testing.T) {
			checkRows(t, compile(t, typical(append(common, tc.change)...)), tc.rows)
		})
	}
}

func TestInboundParametersInRedirectMode(t *testing.T) {
	runParameterTests(t, []parameterTest{
		{"other ports", func(r *rules.Redirect) {
			r.InboundCapturePort, r.TunnelPort = 12346, 12347
		}, []row{
			{
				"the capture port is the one given", "in tcp 10.1.1.1:1 > 10.244.1.5:80",
				rules.Outcome{Redirect: 12346},
			},
			{"the tunnel port is the one given", "in tcp 10.1.1.1:1 > 10.244.1.5:12347", leftAlone},
			{
				"the default tunnel port is no longer special",
				"in tcp 10.1.1.1:1 > 10.244.1.5:15008",
				rules.Outcome{Redirect: 12346},
			},
		}},
		{"only new connections are mapped", func(*rules.Redirect) {}, []row{
			{"a new one", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toInbound},
			{
				"a related one", "in tcp 10.1.1.1:1 > 10.244.1.5:80 state related flags syn",
				toInbound,
			},
			{
				"an established one keeps what it has",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 state established", leftAlone,
			},
			{
				"an invalid packet has none", "in tcp 10.1.1.1:1 > 10.244.1.5:80 state invalid",
				leftAlone,
			},
			{
				"a new one need not begin with a SYN: none passes the proxy after a flush",
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
				"a listed port that is also excluded: exclusions count only with all ports",
				"in tcp 10.1.1.1:1 > 10.244.1.5:443", toInbound,
			},
			{"a port that is not listed", "in tcp 10.1.1.1:1 > 10.244.1.5:81", leftAlone},
			{"the tunnel port, though listed", "in tcp 10.1.1.1:1 > 10.244.1.5:15008", leftAlone},
		}},
		{"no ports", func(r *rules.Redirect) { r.InboundPorts.All = false }, []row{
			{"nothing is captured", "in tcp 10.1.1.1:1 > 10.244.1.5:80", leftAlone},
			{
				"except what the proxy sends to its own pod",
				"out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337", toInbound,
			},
		}},
		{"excluded ports", func(r *rules.Redirect) {
			r.InboundExcludePorts = ports("8000-9000,80")
		}, []row{
			{"an excluded port", "in tcp 10.1.1.1:1 > 10.244.1.5:80", leftAlone},
			{"the first of an excluded range", "in tcp 10.1.1.1:1 > 10.244.1.5:8000", leftAlone},
			{"the last of an excluded range", "in tcp 10.1.1.1:1 > 10.244.1.5:9000", leftAlone},
			{"the port behind it", "in tcp 10.1.1.1:1 > 10.244.1.5:9001", toInbound},
			{
				"the health port, which the caller has to exclude",
				"in tcp 10.1.1.1:1 > 10.244.1.5:15021", toInbound,
			},
		}},
		{"excluded interfaces", func(r *rules.Redirect) {
			r.ExcludeInterfaces = interfaceNames("net1,veth+")
		}, []row{
			{"what arrives there", "in tcp 10.1.1.1:1 > 10.244.1.5:80 dev net1", leftAlone},
			{
				"what arrives at one of a prefix", "in tcp 10.1.1.1:1 > 10.244.1.5:80 dev veth7",
				leftAlone,
			},
			{
				"what leaves there", "out tcp 10.244.1.5:1 > 10.9.9.9:80 dev net1 uid 1000",
				leftAlone,
			},
			{
				"what leaves by one of a prefix",
				"out tcp 10.244.1.5:1 > 10.9.9.9:80 dev veth7 uid 1000", leftAlone,
			},
			{
				"a name that only begins so", "in tcp 10.1.1.1:1 > 10.244.1.5:80 dev net10",
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
			{"also from one of a prefix", "in tcp 10.1.1.1:1 > 10.2.2.2:443 dev tap0", toOutbound},
			{"also in IPv6", "in tcp [fd00::9]:1 > [fd00::1]:443 dev eth1", toOutbound},
			{
				"also an excluded destination: exclusions are not for this traffic",
				"in tcp 10.1.1.1:1 > 10.9.2.2:443 dev eth1", toOutbound,
			},
			{"also an excluded port", "in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1", toOutbound},
			{
				"also if the interface is excluded too",
				"in tcp 10.1.1.1:1 > 10.2.2.2:443 dev net1", toOutbound,
			},
			{
				"other destinations are left alone", "in tcp 10.1.1.1:1 > 192.0.2.1:443 dev eth1",
				leftAlone,
			},
			{"UDP is left alone", "in udp 10.1.1.1:1 > 10.2.2.2:443 dev eth1", leftAlone},
			{
				"other interfaces are inbound", "in tcp 10.1.1.1:1 > 10.2.2.2:443 dev eth0",
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
			{"UDP is left alone", "in udp 10.1.1.1:1 > 192.0.2.1:443 dev eth1", leftAlone},
		}},
		{"rerouted interfaces, no destination", func(r *rules.Redirect) {
			r.RerouteInterfaces = interfaceNames("eth1")
			r.OutboundCIDRs.All = false
		}, []row{
			{
				"nothing is captured, nor is it inbound",
				"in tcp 10.1.1.1:1 > 10.2.2.2:443 dev eth1", leftAlone,
			},
		}},
		{"dropping invalid packets", func(r *rules.Redirect) {
			r.DropInvalid = true
			r.ExcludeInterfaces = interfaceNames("net1")
		}, []row{
			{
				"an invalid TCP packet", "in tcp 10.1.1.1:1 > 10.244.1.5:80 state invalid",
				droppedHere,
			},
			{
				"an invalid UDP packet", "in udp 10.1.1.1:1 > 10.244.1.5:80 state invalid",
				droppedHere,
			},
			{
				"an invalid ICMPv6 packet", "in ipv6-icmp fd00::9 > fd00::5 state invalid",
				droppedHere,
			},
			{
				"also where the interface is excluded",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 dev net1 state invalid", droppedHere,
			},
			{
				"also on the way to itself",
				"out tcp 127.0.0.1:1 > 127.0.0.1:80 uid 1000 state invalid", droppedHere,
			},
			{
				"not what leaves", "out tcp 10.244.1.5:1 > 10.9.9.9:80 uid 1000 state invalid",
				leftAlone,
			},
			{
				"not what conntrack does not track",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 state untracked", leftAlone,
			},
			{"not new connections", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toInbound},
		}},
		{"keeping established connections", func(r *rules.Redirect) {
			r.KeepEstablished = true
			r.RerouteInterfaces = interfaceNames("eth1")
		}, []row{
			{"a connection that begins", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toInbound},
			{
				"a connection that conntrack learns of only now",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags ack", leftAlone,
			},
			{
				"an answer that conntrack learns of only now",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags syn,ack", leftAlone,
			},
			{
				"the same from a rerouted interface",
				"in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1 flags ack", leftAlone,
			},
			{
				"a connection that begins at a rerouted interface",
				"in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1", toOutbound,
			},
		}},
	}, ipv6)
}

func TestInboundParametersInTProxyMode(t *testing.T) {
	marked := func(f rules.Outcome, mark, connection uint32) rules.Outcome {
		f.Mark, f.ConntrackMark = mark, connection
		return f
	}
	runParameterTests(t, []parameterTest{
		{"the way of connections", func(*rules.Redirect) {}, []row{
			{
				"one that begins goes to the listener", "in tcp 10.1.1.1:1 > 10.244.1.5:80",
				toTransparent,
			},
			{
				"where none listens it is dropped, as istio-init's",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 no-listener", droppedHere,
			},
			{
				"where none listens an excluded port is reached",
				"in tcp 10.1.1.1:1 > 10.244.1.5:15021 no-listener", leftAlone,
			},
			{
				"an established one goes to its socket",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 state established", marked(leftAlone, 0x539, 0),
			},
			{
				"a related one goes to its socket",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 state related", marked(leftAlone, 0x539, 0),
			},
			{
				"an invalid packet goes to the listener",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 state invalid", toTransparent,
			},
			{"UDP is left alone", "in udp 10.1.1.1:1 > 10.244.1.5:80", leftAlone},
			{
				"to the loopback address there is no listener",
				"in tcp 127.0.0.1:1 > 127.0.0.1:80 dev lo mark 0x53a", marked(leftAlone, 0x53a, 0),
			},
			{
				"an established excluded port is left alone",
				"in tcp 10.1.1.1:1 > 10.244.1.5:15021 state established", leftAlone,
			},
		}},
		{"the proxy's connections in the client's name", func(*rules.Redirect) {}, []row{
			{
				"the connection remembers the mark",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 dev lo mark 0x539",
				marked(leftAlone, 0x539, 0x539),
			},
			{
				"the proxy's packet goes to the application",
				"out tcp 10.1.1.1:1 > 10.244.1.5:80 dev lo uid 0 gid 1337 mark 0x539",
				marked(leftAlone, 0x539, 0x539),
			},
			{
				"the application's answer comes back to the proxy instead of the client",
				"out tcp 10.244.1.5:80 > 10.1.1.1:1 uid 1000 ctmark 0x539 state established",
				marked(ledBack, 0x539, 0x539),
			},
			{
				"another connection's mark means nothing",
				"out tcp 10.244.1.5:80 > 10.1.1.1:1 uid 1000 ctmark 0x538 state established",
				marked(leftAlone, 0, 0x538),
			},
			{
				"nor does it in UDP",
				"out udp 10.244.1.5:80 > 10.1.1.1:1 uid 1000 ctmark 0x539 state established",
				marked(leftAlone, 0, 0x539),
			},
			{
				"an invalid packet has no connection to remember it",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 dev lo mark 0x539 state invalid",
				marked(leftAlone, 0x539, 0),
			},
		}},
		{"within the pod", func(*rules.Redirect) {}, []row{
			{
				"the application calls itself", "in tcp 10.244.1.5:1 > 10.244.1.5:80 dev lo",
				leftAlone,
			},
			{
				"the proxy calls the application in its own name",
				"in tcp 127.0.0.6:1 > 10.244.1.5:80 dev lo mark 0x53a", marked(leftAlone, 0x53a, 0),
			},
			{
				"the same in IPv6", "in tcp [::6]:1 > [fd00::5]:80 dev lo mark 0x53a",
				marked(leftAlone, 0x53a, 0),
			},
			{
				"only over lo", "in tcp 127.0.0.6:1 > 10.244.1.5:80 dev eth0 mark 0x53a",
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
				"the listener", "in tcp 10.1.1.1:1 > 10.244.1.5:80",
				rules.Outcome{TProxy: 12346, Mark: 7},
			},
			{
				"an answer is routed back by the mark",
				"out tcp 10.244.1.5:80 > 10.1.1.1:1 ctmark 7 state established",
				marked(ledBack, 7, 7),
			},
		}},
		{"a list of ports", func(r *rules.Redirect) {
			r.InboundPorts = rules.PortSelection{Ports: ports("80,15008")}
			r.InboundExcludePorts = ports("80")
		}, []row{
			{"a listed port, excluded or not", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toTransparent},
			{
				"a listed port where none listens", "in tcp 10.1.1.1:1 > 10.244.1.5:80 no-listener",
				droppedHere,
			},
			{"another port", "in tcp 10.1.1.1:1 > 10.244.1.5:81", leftAlone},
			{
				"another port where none listens", "in tcp 10.1.1.1:1 > 10.244.1.5:81 no-listener",
				leftAlone,
			},
			{
				"another port, established", "in tcp 10.1.1.1:1 > 10.244.1.5:81 state established",
				leftAlone,
			},
			{"the tunnel port, though listed", "in tcp 10.1.1.1:1 > 10.244.1.5:15008", leftAlone},
		}},
		{"no ports", func(r *rules.Redirect) { r.InboundPorts.All = false }, []row{
			{"nothing is captured", "in tcp 10.1.1.1:1 > 10.244.1.5:80", leftAlone},
			{
				"but marks are kept", "in tcp 10.1.1.1:1 > 10.244.1.5:80 mark 0x539",
				marked(leftAlone, 0x539, 0x539),
			},
			{
				"and self-calls are redirected", "out tcp 10.244.1.5:1 > 10.244.1.5:80 uid 1337",
				selfCallToInbound,
			},
		}},
		{"excluded interfaces", func(r *rules.Redirect) {
			r.ExcludeInterfaces = interfaceNames("net1,veth+")
			r.DropInvalid = true
		}, []row{
			{"what arrives there", "in tcp 10.1.1.1:1 > 10.244.1.5:80 dev net1", leftAlone},
			{
				"established, too", "in tcp 10.1.1.1:1 > 10.244.1.5:80 dev veth1 state established",
				leftAlone,
			},
			{
				"its marks are not kept", "in tcp 10.1.1.1:1 > 10.244.1.5:80 dev net1 mark 0x539",
				marked(leftAlone, 0x539, 0),
			},
			{
				"nor restored",
				"out tcp 10.244.1.5:80 > 10.1.1.1:1 dev net1 ctmark 0x539 state established",
				marked(leftAlone, 0, 0x539),
			},
			{
				"unlike in REDIRECT mode, nothing invalid is dropped there",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 dev net1 state invalid", leftAlone,
			},
			{"elsewhere it is", "in udp 10.1.1.1:1 > 10.244.1.5:80 state invalid", droppedHere},
		}},
		{"rerouted interfaces", func(r *rules.Redirect) {
			r.RerouteInterfaces = interfaceNames("eth1")
		}, []row{
			{"are outbound only", "in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1", toOutbound},
			{
				"whether or not a proxy listens for inbound",
				"in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1 no-listener", toOutbound,
			},
			{"also the tunnel port", "in tcp 10.1.1.1:1 > 10.2.2.2:15008 dev eth1", toOutbound},
			{
				"established, too", "in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1 state established",
				leftAlone,
			},
		}},
		{"rerouted interfaces as istio-init has them", func(r *rules.Redirect) {
			r.RerouteInterfaces = interfaceNames("eth1")
			r.Without = []rules.DeviationID{rules.RerouteTProxy}
		}, []row{
			{
				"are inbound and mapped to outbound", "in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1",
				rules.Outcome{Redirect: 15001, TProxy: 15006, Mark: 0x539},
			},
			{
				"dropped where none listens for inbound",
				"in tcp 10.1.1.1:1 > 10.2.2.2:80 dev eth1 no-listener", droppedHere,
			},
			{
				"the tunnel port is a deviation of its own",
				"in tcp 10.1.1.1:1 > 10.2.2.2:15008 dev eth1", toOutbound,
			},
		}},
		{"keeping established connections", func(r *rules.Redirect) {
			r.KeepEstablished = true
		}, []row{
			{"a connection that begins", "in tcp 10.1.1.1:1 > 10.244.1.5:80", toTransparent},
			{
				"a connection that begins where none listens",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 no-listener", droppedHere,
			},
			{
				"a connection that conntrack learns of only now",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags ack", leftAlone,
			},
			{
				"the same where none listens",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags ack no-listener", leftAlone,
			},
			{
				"an established one goes to its socket",
				"in tcp 10.1.1.1:1 > 10.244.1.5:80 state established", marked(leftAlone, 0x539, 0),
			},
		}},
	}, ipv6, tproxyMode)
}

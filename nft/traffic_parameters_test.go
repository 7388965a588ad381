package nft_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// must returns the value of a parser whose input is a constant.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestTrafficInboundPorts(t *testing.T) {
	t.Parallel()
	for _, s := range []scenario{
		{
			name: "listed ports",
			change: func(r *rules.Redirect) {
				r.InboundPorts = must(rules.ParsePortSelection("8080,9000-9005,15021"))
			},
			rows: []row{
				{call: "in tcp pod:8080", want: "inbound"},
				{call: "in tcp pod:9000", want: "inbound"},
				{call: "in tcp pod:9005", want: "inbound"},
				{call: "in tcp pod:8999", want: "application"},
				{call: "in tcp pod:9006", want: "application"},
				// The exclusions apply only if all ports are captured.
				{call: "in tcp pod:15021", want: "inbound"},
				{call: "in udp pod:8080", want: "application"},
				{call: "proxy tcp pod:80", want: "inbound"},
				{call: "rootproxy tcp pod:80", want: "application"},
				{call: "rootproxy tcp pod:8080", want: "application", tproxy: "inbound"},
			},
		},
		{
			name: "the tunnel port is listed",
			change: func(r *rules.Redirect) {
				r.InboundPorts = must(rules.ParsePortSelection("15008"))
			},
			rows: []row{{call: "in tcp pod:15008", want: "tunnel"}},
		},
		{
			name:   "no port",
			change: func(r *rules.Redirect) { r.InboundPorts = rules.PortSelection{} },
			rows: []row{
				{call: "in tcp pod:8080", want: "application"},
				{call: "in tcp pod:15006", want: "inbound"},
				{call: "app tcp world:80", want: "outbound"},
				{call: "proxy tcp pod:8080", want: "inbound"},
				{call: "rootproxy tcp pod:8080", want: "application"},
			},
		},
		{
			name: "excluded ports",
			change: func(r *rules.Redirect) {
				r.InboundExcludePorts = must(rules.ParsePorts("22,8000:8999"))
			},
			rows: []row{
				{call: "in tcp pod:22", want: "application"},
				{call: "in tcp pod:8000", want: "application"},
				{call: "in tcp pod:8999", want: "application"},
				{call: "in tcp pod:9000", want: "inbound"},
				{call: "in tcp pod:15021", want: "inbound"},
				{call: "proxy tcp pod:22", want: "inbound"},
				{call: "rootproxy tcp pod:22", want: "application"},
			},
		},
	} {
		s.run(t)
	}
}

func TestTrafficOutboundDestinations(t *testing.T) {
	t.Parallel()
	for _, s := range []scenario{
		{
			name: "included prefixes",
			change: func(r *rules.Redirect) {
				r.OutboundCIDRs = must(
					rules.ParsePrefixSelection("10.9.9.1/24,2001:db8::/64,192.0.2.7/32"))
			},
			rows: []row{
				{call: "app tcp world:80", want: "outbound"},
				{call: "app tcp world2:80", want: "outside"},
				{call: "app tcp 192.0.2.7:80", want: "outbound"},
				{call: "app tcp 192.0.2.6:80", want: "outside"},
				{call: "app tcp 192.0.2.8:80", want: "outside"},
				{call: "proxy tcp world:80", want: "outside"},
				{call: "app udp world:80", want: "outside"},
			},
		},
		{
			name:   "nothing included",
			change: func(r *rules.Redirect) { r.OutboundCIDRs = rules.PrefixSelection{} },
			rows: []row{
				{call: "app tcp world:80", want: "outside"},
				{call: "in tcp pod:8080", want: "inbound"},
				{call: "proxy tcp pod:8080", want: "inbound"},
			},
		},
		{
			name: "excluded prefixes",
			change: func(r *rules.Redirect) {
				r.OutboundExcludeCIDRs = must(
					rules.ParsePrefixes("10.9.8.0/24,2001:db8:8::/48,255.0.0.0/8,10.9.8.128/25"))
				r.OutboundPorts = must(rules.ParsePorts("8443"))
			},
			rows: []row{
				{call: "app tcp world:80", want: "outbound"},
				{call: "app tcp world2:80", want: "outside"},
				// An exclusion takes precedence over both inclusions.
				{call: "app tcp world2:8443", want: "outside"},
				{call: "app tcp 10.9.7.255:80", want: "outbound"},
				{call: "app tcp 10.9.8.0:80", want: "outside"},
				{call: "app tcp 10.9.8.255:80", want: "outside"},
				{call: "app tcp 10.9.9.0:80", want: "outbound"},
			},
		},
		{
			name: "included ports",
			change: func(r *rules.Redirect) {
				r.OutboundCIDRs = must(rules.ParsePrefixSelection("10.9.8.0/24"))
				r.OutboundPorts = must(rules.ParsePorts("8443,9000-9001"))
			},
			rows: []row{
				{call: "app tcp world:8443", want: "outbound"},
				{call: "app tcp world:9001", want: "outbound"},
				{call: "app tcp world:9002", want: "outside"},
				{call: "app tcp 10.9.8.8:80", want: "outbound"},
				{call: "app tcp [2001:db8:8::8]:80", want: "outside"},
				{call: "app udp world:8443", want: "outside"},
			},
		},
		{
			name: "excluded ports",
			change: func(r *rules.Redirect) {
				r.OutboundExcludePorts = must(rules.ParsePorts("3306,15001,7000-7009"))
			},
			rows: []row{
				{call: "app tcp world:3306", want: "outside"},
				{call: "app tcp world:7009", want: "outside"},
				{call: "app tcp world:15001", want: "outside"},
				{call: "app tcp world:3307", want: "outbound"},
				// The rule for excluded ports precedes the rules for the proxy. Therefore the
				// proxy's call to its own pod is not captured either.
				{call: "proxy tcp pod:3306", want: "application", tproxy: "inbound"},
				{call: "in tcp pod:3306", want: "inbound"},
			},
		},
		{
			name: "an IPv4 prefix in IPv6 spelling",
			change: func(r *rules.Redirect) {
				r.OutboundExcludeCIDRs = must(rules.ParsePrefixes("::ffff:10.9.8.0/120"))
			},
			rows: []row{
				{call: "app tcp 10.9.8.8:80", want: "outside"},
				{call: "app tcp world:80", want: "outbound"},
			},
		},
		{
			name: "an IPv4 prefix in IPv6 spelling, with Istio's behavior",
			change: func(r *rules.Redirect) {
				r.OutboundExcludeCIDRs = must(rules.ParsePrefixes("::ffff:10.9.8.0/120"))
				r.Without = []rules.DeviationID{rules.MappedCIDR}
			},
			rows: []row{{call: "app tcp 10.9.8.8:80", want: "outbound"}},
		},
		{
			name: "a loopback prefix is included",
			change: func(r *rules.Redirect) {
				r.OutboundCIDRs = must(rules.ParsePrefixSelection("127.0.0.2/32,10.9.9.0/24"))
			},
			rows: []row{
				{call: "app tcp 127.0.0.2:8080", want: "outbound"},
				{call: "app tcp lo:8080", want: "application"},
				{call: "app tcp pod:8080", want: "application"},
				{call: "proxy tcp 127.0.0.2:8080", want: "inbound"},
				{call: "proxy tcp pod:8080", want: "inbound"},
				{call: "rootproxy tcp pod:8080", want: "inbound"},
				{call: "app tcp pod:8080 from pass:0", want: "application"},
			},
		},
		{
			name: "a wider loopback prefix",
			change: func(r *rules.Redirect) {
				r.LoopbackCIDR = must(rules.ParseLoopbackCIDR("127.0.0.0/8"))
			},
			rows: []row{
				{call: "proxy tcp 127.0.0.2:8080", want: "application"},
				{call: "proxy tcp 127.0.0.6:15002", want: "application"},
				{call: "proxy tcp pod:8080", want: "inbound"},
				{call: "rootproxy tcp 127.0.0.2:8080", want: "application"},
			},
		},
	} {
		s.run(t)
	}
}

func TestTrafficOtherPortsMarkAndTable(t *testing.T) {
	t.Parallel()
	scenario{
		name: "other ports, mark and table",
		change: func(r *rules.Redirect) {
			r.ProxyPort, r.InboundCapturePort, r.TunnelPort = 16001, 16006, 16008
			r.TProxyMark, r.TProxyRouteTable = 0x80000777, 1000
		},
		proxy: func(p *testbed.ProxyOptions) {
			p.Outbound, p.Inbound, p.Tunnel = 16001, 16006, 16008
		},
		rows: []row{
			{call: "app tcp world:80", want: "outbound"},
			{call: "in tcp pod:8080", want: "inbound"},
			{call: "in tcp pod:15008", want: "inbound"},
			{call: "in tcp pod:16008", want: "tunnel"},
			{call: "proxy tcp pod:16008", want: "tunnel"},
			{call: "proxy tcp pod:15008", want: "inbound"},
			{call: "rootproxy tcp pod:8080", want: "application", tproxy: "inbound"},
		},
	}.run(t)
}

func TestTrafficOfIPv6IsNotCapturedWithoutIPv6(t *testing.T) {
	t.Parallel()
	scenario{
		name: "IPv4 only",
		change: func(r *rules.Redirect) {
			r.IPv6, r.DNS, r.DropInvalid = false, rules.DNS{Capture: true, All: true}, true
		},
		rows: []row{
			{call: "app tcp 10.9.9.9:80", want: "outbound"},
			{call: "app udp 10.9.9.9:53", want: "dns"},
			{call: "in tcp 10.244.1.5:8080", want: "inbound"},
			{call: "proxy tcp 10.244.1.5:8080", want: "inbound"},
			{call: "app tcp [2001:db8::9]:80", want: "outside"},
			{call: "app udp [2001:db8::9]:53", want: "outside"},
			{call: "app tcp [2001:db8::9]:53", want: "outside"},
			{call: "in tcp [fd00:10:244:1::5]:8080", want: "application"},
			{call: "proxy tcp [fd00:10:244:1::5]:8080", want: "application"},
			{call: "rootproxy tcp [fd00:10:244:1::5]:8080", want: "application"},
		},
	}.run(t)
}

package rules

import "net/netip"

// Istio's constants of ambient mode: a contract with ztunnel, which marks the packets of its own
// sockets. Sources: istio.io/istio cni/pkg/config/config.go and cni/pkg/nodeagent/options.go at
// v0.0.0-20260827124520-eed52ebb66ad.
const (
	// ZtunnelMark is the mark of ztunnel's own packets.
	ZtunnelMark = 0x539
	// AmbientMark marks connections that ztunnel opens to the application with the address of the
	// client as source, and the application's replies, which are routed to lo.
	AmbientMark = 0x111
	// AmbientMarkMask selects the bits of a mark in which ZtunnelMark and AmbientMark are compared
	// and written.
	AmbientMarkMask = 0xfff
	// AmbientRouteTable is the routing table that delivers the marked replies locally.
	AmbientRouteTable = 100
)

// DefaultProbeSourceIPv4 returns the source address that the node gives to IPv4 connections of the
// kubelet, so that probes are not captured (HOST_PROBE_SNAT_IP): 169.254.7.127.
func DefaultProbeSourceIPv4() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 7, 127}) }

// DefaultProbeSourceIPv6 returns the IPv6 counterpart of [DefaultProbeSourceIPv4]
// (HOST_PROBE_SNAT_IPV6): fd16:9254:7127:1337:ffff:ffff:ffff:ffff.
func DefaultProbeSourceIPv6() netip.Addr {
	return netip.AddrFrom16([16]byte{
		0xfd, 0x16, 0x92, 0x54, 0x71, 0x27, 0x13, 0x37, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff,
	})
}

// Ambient contains the parameters of the redirection of a pod to ztunnel, the node's proxy in
// Istio's ambient mode. Start with [DefaultAmbient]: the zero value is invalid.
//
// ztunnel listens in the network namespace of the pod: on [DefaultProxyPort] for outbound and
// [DefaultInboundCapturePort] for inbound connections, on [DefaultTunnelPort] for inbound HBONE,
// which is not captured, and on [DNSPort] for DNS.
type Ambient struct {
	// DNS captures DNS queries to any server (ambient.istio.io/dns-capture).
	DNS bool
	// BypassInboundCapture captures no inbound connections
	// (ambient.istio.io/bypass-inbound-capture).
	BypassInboundCapture bool
	// RerouteInterfaces are interfaces of virtual machines in the pod: TCP connections that arrive
	// on them are captured as outbound (istio.io/reroute-virtual-interfaces).
	RerouteInterfaces []InterfaceName
	// ProbeSourceIPv4 and ProbeSourceIPv6 are the source addresses of probes. Connections from and
	// to them are not captured.
	ProbeSourceIPv4, ProbeSourceIPv6 netip.Addr
	// IPv6 reports whether IPv6 is captured in addition to IPv4.
	IPv6 bool
	// Counters gives each rule a counter.
	Counters bool
	// Without contains the disabled deviations. Only [NATFirst] and [AmbientIPv6] apply.
	Without []DeviationID
}

// DefaultAmbient returns the parameters of Istio's chart: DNS and both families are captured.
func DefaultAmbient() Ambient {
	return Ambient{
		DNS: true, IPv6: true,
		ProbeSourceIPv4: DefaultProbeSourceIPv4(), ProbeSourceIPv6: DefaultProbeSourceIPv6(),
	}
}

// Validate returns nil if [CompileAmbient] accepts the parameters, and otherwise [Faults] with all
// invalid parameters.
func (a *Ambient) Validate() error {
	var faults Faults
	faults.checkProbeSources(a.ProbeSourceIPv4, a.ProbeSourceIPv6)
	faults.checkInterfaces("RerouteInterfaces", a.RerouteInterfaces)
	faults.checkDeviations(a.Without)
	return faults.orNil()
}

// AsRedirect returns the parameters of a sidecar that has the same ports, and captures the same
// connections to and from the application and the same DNS queries. RerouteInterfaces is ignored.
// [Compile] and [CompileAmbient] return different rules for these parameters.
func (a *Ambient) AsRedirect() Redirect {
	r := DefaultRedirect()
	r.OutboundCIDRs.All, r.InboundPorts.All = true, !a.BypassInboundCapture
	r.DNS.Capture, r.DNS.All = a.DNS, a.DNS
	r.IPv6, r.Without = a.IPv6, a.Without
	return r
}

// CompileAmbient returns the ruleset of a pod in ambient mode. For invalid parameters it returns
// the [Faults] of [Ambient.Validate]. Equal parameters give equal rulesets.
//
// Each packet has the same outcome as with the rules that Istio's iptables backend installs in the
// pod. Istio's nftables backend differs by [AmbientIPv6].
func CompileAmbient(a Ambient) (Ruleset, error) {
	if err := a.Validate(); err != nil {
		return Ruleset{}, err
	}
	c := ambientCompiler{
		Ambient: a,
		compiler: newCompiler(Redirect{
			IPv6: a.IPv6, Counters: a.Counters, Without: a.Without,
			LoopbackCIDR: DefaultLoopbackCIDR(),
		}),
	}
	c.appliesToIPv6 = !c.deviates(AmbientIPv6)
	return c.ruleset([]Chain{
		c.rawPrerouting(), c.rawOutput(), c.manglePrerouting(), c.mangleOutput(),
		c.natPrerouting(), c.natOutput(),
	}, c.routing()), nil
}

// RedirectsToZtunnel reports whether the ruleset contains rules of [CompileAmbient]. The rules of a
// [Redirect] contain no [MixMark].
func (rs *Ruleset) RedirectsToZtunnel() bool {
	return rs.HasAction(func(a Action) bool {
		m, ok := a.(MixMark)
		return ok && m.Conntrack && m.Xor == AmbientMark
	})
}

// ambientCompiler compiles an Ambient with the methods of the compiler of a [Redirect].
type ambientCompiler struct {
	*compiler
	Ambient
}

// Matches of the packets that ztunnel sends, and of all other packets.
var (
	fromZtunnel    Match = MatchMark{Value: ZtunnelMark, Mask: AmbientMarkMask}
	notFromZtunnel Match = MatchMark{Not: true, Value: ZtunnelMark, Mask: AmbientMarkMask}
)

// rawPrerouting assigns the conntrack zone of ztunnel's DNS queries to the answers to these
// queries, so that conntrack does not confuse them with captured queries of the application. As in
// Istio, the rule matches all packets from UDP port 53 without ztunnel's mark.
func (c *ambientCompiler) rawPrerouting() Chain {
	b := c.base("raw-prerouting", Filter, Prerouting, c.priority(RawPriority, IstioRawPriority))
	if c.DNS {
		b.add("DNS answers to ztunnel", SetZone{Zone: ProxyDNSZone}, udp, fromPort(domainPort),
			notFromZtunnel)
	}
	return b.build()
}

// rawOutput assigns a conntrack zone to the DNS queries of ztunnel.
func (c *ambientCompiler) rawOutput() Chain {
	b := c.base("raw-output", Filter, Output, c.priority(RawPriority, IstioRawPriority))
	if c.DNS {
		b.add("DNS queries of ztunnel", SetZone{Zone: ProxyDNSZone}, udp,
			toPort(Single[uint16](domainPort)), fromZtunnel)
	}
	return b.build()
}

// manglePrerouting marks the connections that ztunnel opens to the application.
func (c *ambientCompiler) manglePrerouting() Chain {
	b := c.base("mangle-prerouting", Filter, Prerouting,
		c.priority(ManglePriority, IstioManglePriority))
	const otherBits = ^uint32(AmbientMarkMask)
	b.add("connections of ztunnel to the application",
		MixMark{Conntrack: true, ConntrackMark: otherBits, Xor: AmbientMark}, fromZtunnel)
	return b.build()
}

// mangleOutput marks the replies of the application, so that the policy route delivers them to
// ztunnel.
func (c *ambientCompiler) mangleOutput() Chain {
	b := c.base("mangle-output", Route, Output, c.priority(ManglePriority, IstioManglePriority))
	b.add("replies to ztunnel", RestoreMark{},
		MatchMark{Conntrack: true, Value: AmbientMark, Mask: AmbientMarkMask})
	return b.build()
}

// natPrerouting captures inbound connections, and connections from a rerouted interface.
func (c *ambientCompiler) natPrerouting() Chain {
	b := c.base("nat-prerouting", NAT, Prerouting, c.priority(NATPriority, IstioNATPriority))
	for _, m := range interfaces(false, c.RerouteInterfaces) {
		b.add("outbound of a rerouted interface", RedirectTo{Port: DefaultProxyPort}, tcp, m)
	}
	if c.BypassInboundCapture {
		return b.build()
	}
	for _, f := range c.families {
		b.add("probes of the kubelet", Return, tcp, c.probes(Source, f))
	}
	for _, f := range c.families {
		b.add("inbound to ztunnel", RedirectTo{Port: DefaultInboundCapturePort}, tcp,
			c.offLoopback(f), notToPort(Single[uint16](DefaultTunnelPort)), notFromZtunnel)
	}
	return b.build()
}

// natOutput captures outbound connections and DNS queries.
func (c *ambientCompiler) natOutput() Chain {
	b := c.base("nat-output", NAT, Output, c.priority(NATPriority, IstioNATPriority))
	for _, f := range c.families {
		b.add("to the source of probes", Return, tcp, c.probes(Destination, f))
	}
	if c.DNS {
		query, redirect := toPort(Single[uint16](domainPort)), RedirectTo{Port: DNSPort}
		notToLoopback := MatchInterface{
			Out: true, Not: true, Names: []InterfaceName{{Name: loopback}},
		}
		b.add("DNS to ztunnel", redirect, udp, query, notToLoopback, notFromZtunnel)
		for _, f := range c.families {
			b.add("DNS to ztunnel", redirect, tcp, query, c.offLoopback(f), notFromZtunnel)
		}
	}
	b.add("marked for ztunnel", Return, tcp, MatchMark{Value: AmbientMark, Mask: AmbientMarkMask})
	for _, f := range c.families {
		b.add("of the pod to itself", Return, toLoopback, c.offLoopback(f))
	}
	for _, f := range c.families {
		b.add("outbound to ztunnel", RedirectTo{Port: DefaultProxyPort}, tcp, c.offLoopback(f),
			notFromZtunnel)
	}
	return b.build()
}

// probes returns the match of packets whose address on the side is the source address of probes.
func (c *ambientCompiler) probes(side Side, f Family) MatchAddr {
	a := ByFamily(f, c.ProbeSourceIPv4, c.ProbeSourceIPv6)
	return MatchAddr{Side: side, Ranges: oneAddress(a)}
}

// IstioAmbientPolicy returns the policy route of istio-cni in ambient mode, without its priority
// and family.
func IstioAmbientPolicy() PolicyRoute {
	return PolicyRoute{Mark: AmbientMark, Mask: AmbientMarkMask, Table: AmbientRouteTable}
}

// routing returns the policy routes for replies to ztunnel.
func (c *ambientCompiler) routing() Routing {
	var r Routing
	for _, f := range c.families {
		p := IstioAmbientPolicy()
		p.Family, p.Priority = f, PolicyPriority
		r.Policies = append(r.Policies, p)
	}
	return r
}

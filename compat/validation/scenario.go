package validation

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

const (
	domainPort = 53
	lo         = "lo"
)

func loopbackOf(f rules.Family) netip.Addr {
	return rules.ByFamily(f, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
}

func passthroughOf(f rules.Family) netip.Addr {
	return rules.ByFamily(f, rules.PassthroughIPv4(), rules.PassthroughIPv6())
}

// planSelfCalls adds connections of the proxy to its own pod: to 127.0.0.6 or ::6, as in Istio's
// validation, and to the pod's addresses. The rules treat these connections as inbound.
func (p *planner) planSelfCalls(f rules.Family) {
	to := passthroughOf(f)
	passthrough := newTCPProbe(SelfCalls, fmt.Sprintf("the proxy calls %s", to))
	if _, device, err := p.route(to); err != nil || device != lo {
		passthrough.hint = fmt.Sprintf("lo has no address %s: rules apply adds it", to)
	}
	p.planSelfCall(passthrough, p.proxyOwner(), loopbackOf(f), to)
	for _, a := range p.podIPs(f) {
		call := newTCPProbe(SelfCalls, fmt.Sprintf("the proxy calls its pod, %s", a))
		p.planSelfCall(call, p.proxyOwner(), a, a)
		if p.options.Redirect.Mode == rules.ModeTProxy {
			call := newTCPProbe(SelfCalls, fmt.Sprintf("the proxy's group calls its pod, %s", a))
			p.planSelfCall(call, p.tproxyOwner(), a, a)
		}
	}
}

// planSelfCall adds a connection of the owner over lo.
func (p *planner) planSelfCall(t probe, owner rules.Owner, from, to netip.Addr) {
	t.packet.Hook, t.packet.OutInterface, t.packet.Owner = rules.Output, lo, &owner
	t.packet.Source = netip.AddrPortFrom(from, 0)
	t.packet.Destination = netip.AddrPortFrom(to, p.options.Port)
	p.add(t)
}

// planInbound adds a connection from another host. A connection from within the namespace cannot
// replace it, because packets from the namespace to itself traverse other rules.
func (p *planner) planInbound(f rules.Family) {
	podIPs := p.podIPs(f)
	hasNoAddress := len(p.podIPs(rules.IPv4)) == 0 && len(p.podIPs(rules.IPv6)) == 0
	switch {
	case f == rules.IPv4 && hasNoAddress:
		podIPs = documentationAddrs(f)[2:] // represents, in the result, the address that the pod lacks
	case len(podIPs) == 0:
		return
	}
	t := newTCPProbe(Inbound, "inbound, "+familyName(f))
	t.outside, t.packet.Hook, t.packet.InInterface = true, rules.Prerouting, p.device(podIPs[0])
	from := p.outsideSource(podIPs[0])
	const outside = "only a connection from outside the namespace traverses these rules, and "
	switch {
	case hasNoAddress:
		t.skip("the namespace has no address to connect to",
			"run it when the pod's network is set up")
	case from.IsValid():
	case p.isOutside:
		t.skip(fmt.Sprintf(outside+"this host has no direct route to %s", podIPs[0]),
			"connect to the pod from another pod, or pass an address with --pod-ip to which this host"+
				" has a direct route")
	default:
		t.skip(outside+"this process cannot make one", runOnNode)
	}
	if !from.IsValid() {
		from = documentationAddrs(f)[0]
	}
	t.packet.Source = netip.AddrPortFrom(from, 0)
	var captured bool
	t.packet.Destination, captured = p.firstCaptured(t.packet, podIPs[0], p.inboundPorts())
	p.captures = p.captures || captured
	if !captured {
		t.skip("the parameters capture no inbound connection", "")
	}
	control := p.options.Redirect.TunnelPort
	if p.running {
		// The proxy of a sidecar does not listen on the tunnel port. If the rules capture a
		// connection to the port where the proxy accepts inbound connections, it arrives at this
		// port too.
		control = p.options.Redirect.InboundCapturePort
	}
	t.control = netip.AddrPortFrom(podIPs[0], control)
	p.add(t)
	if p.options.Ambient != nil && captured {
		p.planHBONE(t)
	}
}

// inboundPorts returns candidate ports. The rules probably capture at least one of them.
func (p *planner) inboundPorts() []uint16 {
	ports := []uint16{p.options.Port, 80, 8080, 443, 9999}
	for _, r := range p.options.Redirect.InboundPorts.Ports {
		ports = append(ports, r.First)
	}
	return ports
}

// documentationAddrs returns addresses for documentation (RFC 5737, RFC 3849, RFC 9637).
func documentationAddrs(f rules.Family) []netip.Addr {
	if f == rules.IPv6 {
		return []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("3fff::1")}
	}
	return []netip.Addr{
		netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("203.0.113.1"),
		netip.MustParseAddr("192.0.2.1"),
	}
}

// privateAddrs returns addresses at the ends of private networks (RFC 1918, RFC 6598, RFC 4193).
// They are needed if the parameters exclude all other networks.
func privateAddrs(f rules.Family) []netip.Addr {
	if f == rules.IPv6 {
		return []netip.Addr{netip.MustParseAddr("fdff:ffff::1")}
	}
	return []netip.Addr{
		netip.MustParseAddr("10.255.255.254"), netip.MustParseAddr("172.31.255.254"),
		netip.MustParseAddr("192.168.255.254"), netip.MustParseAddr("100.127.255.254"),
	}
}

// planOutbound adds a connection of the application to another host. It prefers a host that does
// not exist, if connections to it are captured.
func (p *planner) planOutbound(f rules.Family) {
	r := &p.options.Redirect
	addrs := slices.Concat(documentationAddrs(f),
		boundaryAddrs(f, r.OutboundCIDRs.Prefixes, r.OutboundExcludeCIDRs), privateAddrs(f))
	ports := []uint16{p.options.Port, 80, 443, 8080, 9999}
	for _, included := range r.OutboundPorts {
		ports = append(ports, included.First)
	}
	p.planFromApplication(newTCPProbe(Outbound, "outbound, "+familyName(f)), addrs, ports)
}

// maxBoundaryPrefixes is the maximum number of included and of excluded prefixes whose boundaries
// are tried. It limits the time of the search for a captured address.
const maxBoundaryPrefixes = 256

// boundaryAddrs returns addresses just inside the included prefixes and just outside the excluded
// prefixes.
func boundaryAddrs(f rules.Family, included, excluded []netip.Prefix) []netip.Addr {
	var found []netip.Addr
	add := func(addrs ...netip.Addr) {
		for _, a := range addrs {
			a = a.Unmap()
			if a.IsValid() && rules.FamilyOf(a) == f && !a.IsLoopback() && !a.IsMulticast() &&
				!a.IsUnspecified() {
				found = append(found, a)
			}
		}
	}
	for _, p := range included[:min(len(included), maxBoundaryPrefixes)] {
		r := rules.AddrRanges([]netip.Prefix{p})[0]
		if r.From() != r.To() {
			// The second to last address of a network is rarely assigned.
			add(r.To().Prev(), r.From().Next())
		}
		add(r.To(), r.From())
	}
	for _, p := range excluded[:min(len(excluded), maxBoundaryPrefixes)] {
		r := rules.AddrRanges([]netip.Prefix{p})[0]
		add(r.From().Prev(), r.To().Next())
	}
	return found
}

// planDNS adds queries of the application. It prefers a server that does not exist, if queries to
// it are captured.
func (p *planner) planDNS(f rules.Family) {
	d := &p.options.Redirect.DNS
	if !d.Capture || !d.All && len(d.Servers) == 0 {
		return
	}
	var servers []netip.Addr
	if d.All {
		servers = documentationAddrs(f)
	}
	for _, s := range d.Servers {
		if rules.FamilyOf(s) == f {
			servers = append(servers, s)
		}
	}
	if len(servers) == 0 {
		return
	}
	// The kernel translates the reply of the DNS proxy back only in the conntrack zone of the
	// proxy's user.
	agent := p.proxyOwner()
	udp := probe{Check: Check{Name: "DNS over UDP, " + familyName(f), Kind: DNS}, agent: &agent}
	if p.running || agent != p.self && !p.mayRunAs(agent) {
		udp.agent = nil
	}
	udp.packet.Protocol = rules.UDP
	p.planFromApplication(udp, servers, []uint16{domainPort})
	tcp := newTCPProbe(DNS, "DNS over TCP, "+familyName(f))
	p.planFromApplication(tcp, servers, []uint16{domainPort})
}

// newTCPProbe returns a probe for a TCP connection.
func newTCPProbe(kind Kind, name string) probe {
	return probe{Check: Check{Name: name, Kind: kind}, packet: rules.Packet{Protocol: rules.TCP}}
}

// planFromApplication adds a connection of an owner other than the proxy to the first captured
// destination. If no destination is captured, or no route leads there, it adds a skipped probe.
func (p *planner) planFromApplication(t probe, addrs []netip.Addr, ports []uint16) {
	var noRoute error
	for _, owner := range p.applications() {
		for _, to := range addrs {
			from, device, err := p.route(to)
			if err != nil {
				from, device = loopbackOf(rules.FamilyOf(to)), defaultDevice
			}
			packet := rules.Packet{
				Hook: rules.Output, OutInterface: device, Protocol: t.packet.Protocol,
				Owner: &owner, Source: netip.AddrPortFrom(from, 0),
			}
			var captured bool
			packet.Destination, captured = p.firstCaptured(packet, to, ports)
			p.captures = p.captures || captured
			switch {
			case captured && err == nil:
				t.packet = packet
				p.add(t)
				return
			case captured && noRoute == nil:
				t.packet, noRoute = packet, fmt.Errorf("%s: %w", to, err)
			case !t.packet.Destination.IsValid():
				t.packet = packet
			}
		}
	}
	switch {
	case noRoute != nil:
		t.skip(fmt.Sprintf("the namespace has no route to %v", noRoute),
			"run it when the pod's network is set up")
	case ports[0] == domainPort:
		t.skip("the parameters capture no DNS query of an application", "")
	default:
		t.skip("the parameters capture no outbound connection of an application", "")
	}
	p.add(t)
}

// firstCaptured returns the destination with the first port for which the packet is captured, and
// reports whether there is one. Otherwise it returns the destination with the first port.
func (p *planner) firstCaptured(
	packet rules.Packet, to netip.Addr, ports []uint16,
) (netip.AddrPort, bool) {
	packet.NoListener = false
	for _, port := range ports {
		packet.Destination = netip.AddrPortFrom(to, port)
		if diff.Explain(&p.rules, packet).Outcome.Captured() {
			return packet.Destination, true
		}
	}
	return netip.AddrPortFrom(to, ports[0]), false
}

// planMarkedPackets adds a packet to another host with the mark of the policy route. The policy
// route delivers it locally, like the application's replies to a proxy that uses the client's
// address. The packet is a UDP datagram, because the other rules match only TCP and DNS.
func (p *planner) planMarkedPackets(f rules.Family) {
	routing := p.rules.Routing
	i := slices.IndexFunc(routing.Policies, func(r rules.PolicyRoute) bool { return r.Family == f })
	if i < 0 {
		return
	}
	t := probe{Check: Check{
		Name: "policy route, " + familyName(f), Kind: PolicyRoutes,
		Expected: "stays in the pod because of its mark",
	}, packet: rules.Packet{
		Hook: rules.Output, OutInterface: lo, Protocol: rules.UDP, Mark: routing.Policies[i].Mark,
		Owner:       &p.self,
		Source:      netip.AddrPortFrom(loopbackOf(f), 0),
		Destination: netip.AddrPortFrom(documentationAddrs(f)[0], p.options.Port),
	}}
	if !p.mayUseTransparent {
		t.skip("marked packets and transparent sockets need CAP_NET_ADMIN", runOnNode)
	}
	p.add(t)
}

// planZtunnelCalls adds connections of ztunnel to the application, with the address of a client as
// source. The replies must stay in the pod: the rules mark the connection, and the policy route
// delivers the replies locally.
func (p *planner) planZtunnelCalls(f rules.Family) {
	for _, a := range p.podIPs(f) {
		t := newTCPProbe(ZtunnelCalls, fmt.Sprintf("ztunnel calls the application as a client, %s", a))
		t.transparent = true
		t.Expected = fmt.Sprintf("arrives at %s itself, and the replies come back to ztunnel",
			netip.AddrPortFrom(a, p.options.Port))
		t.packet.Hook, t.packet.OutInterface, t.packet.Owner = rules.Output, lo, &p.self
		t.packet.Mark = rules.ZtunnelMark
		t.packet.Source = netip.AddrPortFrom(documentationAddrs(f)[0], 0)
		t.packet.Destination = netip.AddrPortFrom(a, p.options.Port)
		_, _, err := p.route(t.packet.Source.Addr())
		switch {
		case !p.mayUseTransparent:
			t.skip("marked packets and transparent sockets need CAP_NET_ADMIN", runOnNode)
		case err != nil: // the kernel needs a route for a reply even before rules mark the reply
			t.skip(fmt.Sprintf("the namespace has no route to %s: %v", t.packet.Source.Addr(), err),
				"run it when the pod's network is set up")
		}
		p.add(t)
	}
}

// planHBONE adds a connection from another host to the tunnel port. The rules must not capture it.
// inbound is the probe of a captured connection from the same host.
func (p *planner) planHBONE(inbound probe) {
	t := inbound
	t.Name = "inbound HBONE, " + familyName(inbound.packet.Family())
	t.Expected = ""
	t.listenerExpected = p.running
	pod := inbound.packet.Destination.Addr()
	t.packet.Destination = netip.AddrPortFrom(pod, p.options.Redirect.TunnelPort)
	t.control = netip.AddrPortFrom(pod, p.options.Redirect.InboundCapturePort)
	p.add(t)
}

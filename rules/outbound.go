package rules

const (
	// loopbackChain contains the rules for packets sent over lo.
	loopbackChain = "nat-output-lo"
	// groupChain contains the rules for captured owner groups.
	groupChain = "nat-output-groups"
)

// natOutput captures outbound connections. Its rules are in the order of istio-init's chain
// ISTIO_OUTPUT.
func (c *compiler) natOutput() Chain {
	b := c.base("nat-output", NAT, Output, c.priority(NATPriority, IstioNATPriority))
	for _, m := range interfaces(true, c.ExcludeInterfaces) {
		b.addRole(OutboundExcludedInterface, "excluded interface", Return, m)
	}
	if len(c.OutboundExcludePorts) > 0 {
		const comment = "excluded outbound port"
		b.addRole(OutboundExcludedPort, comment, Return, tcp, toPort(c.OutboundExcludePorts...))
		if c.DNS.active() && Contains(Normalize(c.OutboundExcludePorts), domainPort) {
			// UDP is captured only for DNS, so other excluded ports need no rule.
			b.addRole(OutboundExcludedPort, comment, Return,
				udp, toPort(Single[uint16](domainPort)))
		}
	}
	b.add("over lo", Jump{Chain: loopbackChain}, toLoopback)
	b.addRole(OutboundProxy, "from the proxy", Return, c.proxyUser)
	b.addRole(OutboundProxy, "from the proxy", Return, c.proxyGroup)

	switch groups := c.OwnerGroups; {
	case groups.All:
		if len(c.OwnerGroupsExclude) > 0 {
			b.addRole(OutboundExcludedOwner, "excluded owner group", Return,
				byGroup(c.OwnerGroupsExclude))
		}
		c.captureOutbound(&b)
	case len(groups.IDs) > 0 && len(c.groupOutput().Rules) > 0:
		// The match is positive so that a packet without a socket is not captured, as with xtables.
		b.add("captured owner group", Jump{Chain: groupChain}, byGroup(groups.IDs))
	}
	return b.build()
}

// groupOutput captures outbound connections of the captured groups. natOutput jumps to it.
func (c *compiler) groupOutput() Chain {
	b := c.begin(groupChain)
	if !c.OwnerGroups.All && len(c.OwnerGroups.IDs) > 0 {
		c.captureOutbound(&b)
	}
	return b.build()
}

// loopbackOutput decides about packets sent over lo: accept means not captured, return leaves the
// decision to natOutput.
//
// For each user, then for each group of the proxy, istio-init has three rules: (a) TCP packets of
// this owner over lo to a non-loopback address are captured as inbound; (b) packets of other owners
// over lo are not captured; (c) packets of this owner are not captured. No packet over lo passes
// the rules of the first user and reaches the rules of later owners. There are two exceptions: with
// DNS, rule b applies only to TCP packets to ports other than 53; with an included loopback prefix,
// there is no rule b. Therefore few rules of later owners are needed here.
//
// istio-init's rule b matches "not this user". Here rule b has no owner match, because by rule c
// this user is not captured either. So rule b also matches packets without a socket, as the negated
// owner match of xtables does; the negated owner match of nftables does not.
func (c *compiler) loopbackOutput() Chain {
	b := c.begin(loopbackChain)
	for _, f := range c.families {
		b.add("the proxy's connections to the application", Accept, passthrough(f))
	}
	for _, f := range c.families {
		b.add("loopback", Return, c.loopbackOf(f))
	}
	domain, tunnel := Single[uint16](domainPort), Single(c.TunnelPort)
	exempt, users := []PortRange{tunnel}, c.ProxyUIDs[:1]
	if c.DNS.active() {
		exempt = append(exempt, domain)
	}
	if c.loopbackIncluded {
		users = c.ProxyUIDs
	}
	captureSelfCall := func(owner Match, ports MatchPort) {
		b.capture(InboundCaptured, "the proxy calls its own pod",
			[]Action{RedirectTo{Port: c.InboundCapturePort}}, tcp, ports, owner)
	}

	captureSelfCall(byUser(users), notToPort(exempt...))
	const applicationCall = "the application calls its own pod"
	switch {
	case c.loopbackIncluded:
		b.add("from the proxy", Accept, c.proxyUser)
		captureSelfCall(c.proxyGroup, notToPort(tunnel))
	case !c.DNS.active():
		b.add(applicationCall, Accept)
	default:
		b.add(applicationCall, Accept, tcp, notToPort(domain))
		if c.TunnelPort != domainPort {
			b.add("from the proxy", Accept, c.proxyUser)
			captureSelfCall(c.proxyGroup, toPort(domain))
		}
	}
	return b.build()
}

// captureOutbound redirects DNS queries, and connections to the included destinations and ports.
func (c *compiler) captureOutbound(b *chainBuilder) {
	c.captureDNS(b)
	for _, f := range c.families {
		b.add("loopback", Return, c.loopbackOf(f))
	}
	for excluded := range c.toRanges(c.excluded, "outbound-exclude") {
		b.addRole(OutboundExcludedCIDR, "excluded outbound address", Return, excluded)
	}
	if len(c.OutboundPorts) > 0 {
		b.capture(OutboundCaptured, "included outbound port",
			[]Action{RedirectTo{Port: c.ProxyPort}}, tcp, toPort(c.OutboundPorts...))
	}
	c.captureIncluded(b, "outbound to the proxy")
}

// captureIncluded redirects connections that are to an included address, and meet the matches, to
// the proxy.
func (c *compiler) captureIncluded(b *chainBuilder, comment string, matches ...Match) {
	redirect := []Action{RedirectTo{Port: c.ProxyPort}}
	matches = append([]Match{tcp}, matches...)
	if c.OutboundCIDRs.All {
		b.capture(OutboundCaptured, comment, redirect, matches...)
	}
	for included := range c.toRanges(c.included, "outbound-include") {
		b.capture(OutboundCaptured, comment, redirect, append([]Match{included}, matches...)...)
	}
}

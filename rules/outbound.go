package rules

const (
	// loopbackChain decides about what is sent over lo.
	loopbackChain = "nat-output-lo"
	// groupChain holds what follows when only some owner groups are captured.
	groupChain = "nat-output-groups"
)

// natOutput decides about outbound connections, in the order of istio-init's ISTIO_OUTPUT.
func (c *compiler) natOutput() Chain {
	b := c.base("nat-output", NAT, Output, c.priority(NATPriority, IstioNATPriority))
	for _, m := range interfaces(true, c.ExcludeInterfaces) {
		b.add("excluded interface", Return, m)
	}
	if len(c.OutboundExcludePorts) > 0 {
		b.add("excluded outbound port", Return, tcp, toPort(c.OutboundExcludePorts...))
		if c.DNS.active() && Contains(Normalise(c.OutboundExcludePorts), domainPort) {
			// Of UDP only DNS is ever captured, so other excluded ports need no rule.
			b.add("excluded outbound port", Return, udp, toPort(Single[uint16](domainPort)))
		}
	}
	b.add("over lo", Jump{Chain: loopbackChain}, toLoopback)
	b.add("from the proxy", Return, c.proxyUser)
	b.add("from the proxy", Return, c.proxyGroup)

	switch groups := c.OwnerGroups; {
	case groups.All:
		if len(c.OwnerGroupsExclude) > 0 {
			b.add("excluded owner group", Return, byGroup(c.OwnerGroupsExclude))
		}
		c.captureOutbound(&b)
	case len(groups.IDs) > 0 && len(c.groupOutput().Rules) > 0:
		// A positive match, so that a packet without socket is not captured, as with xtables.
		b.add("captured owner group", Jump{Chain: groupChain}, byGroup(groups.IDs))
	}
	return b.build()
}

// groupOutput is the part of natOutput that applies to the captured groups only.
func (c *compiler) groupOutput() Chain {
	b := c.begin(groupChain)
	if !c.OwnerGroups.All && len(c.OwnerGroups.IDs) > 0 {
		c.captureOutbound(&b)
	}
	return b.build()
}

// loopbackOutput decides about what is sent over lo: accept leaves it alone, return leaves the
// decision to natOutput.
//
// For each user, then for each group of the proxy, istio-init has three rules: (a) over lo to
// another address than loopback is an inbound connection to this pod; (b) over lo from anybody else
// is left alone; (c) from this owner is left alone. Rule b of the first user leaves nothing over lo
// to the later owners except where DNS or an included loopback prefix restricts it, so that most of
// their rules can never match.
//
// Rule b is "not this user" there. Here it is "anybody", because the user in question is left alone
// too; so it also matches packets without socket, as xtables' negated owner does and nftables' does
// not.
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
	call := func(owner Match, ports MatchPort) {
		b.capture("the proxy calls its own pod", []Action{RedirectTo{Port: c.InboundCapturePort}}, tcp, ports, owner)
	}

	call(byUser(users), notToPort(exempt...))
	const ownCall = "the application calls its own pod"
	switch {
	case c.loopbackIncluded:
		b.add("from the proxy", Accept, c.proxyUser)
		call(c.proxyGroup, notToPort(tunnel))
	case !c.DNS.active():
		b.add(ownCall, Accept)
	default:
		b.add(ownCall, Accept, tcp, notToPort(domain))
		if c.TunnelPort != domainPort {
			b.add("from the proxy", Accept, c.proxyUser)
			call(c.proxyGroup, toPort(domain))
		}
	}
	return b.build()
}

// captureOutbound redirects DNS and the included destinations.
func (c *compiler) captureOutbound(b *chainBuilder) {
	c.captureDNS(b)
	for _, f := range c.families {
		b.add("loopback", Return, c.loopbackOf(f))
	}
	for _, f := range c.families {
		if ranges := c.excluded.of(f); len(ranges) > 0 {
			b.add("excluded outbound address", Return, to(ranges, "outbound-exclude"))
		}
	}
	redirect := []Action{RedirectTo{Port: c.ProxyPort}}
	if len(c.OutboundPorts) > 0 {
		b.capture("included outbound port", redirect, tcp, toPort(c.OutboundPorts...))
	}
	c.captureIncluded(b, "outbound to the proxy")
}

// captureIncluded redirects connections to the included addresses to the proxy, if they also match.
func (c *compiler) captureIncluded(b *chainBuilder, comment string, matches ...Match) {
	redirect := []Action{RedirectTo{Port: c.ProxyPort}}
	and := func(more ...Match) []Match { return append(more, matches...) }
	if c.OutboundCIDRs.All {
		b.capture(comment, redirect, and(tcp)...)
	}
	for _, f := range c.families {
		if ranges := c.included.of(f); len(ranges) > 0 {
			b.capture(comment, redirect, and(tcp, to(ranges, "outbound-include"))...)
		}
	}
}

package rules

// natPrerouting captures inbound connections in REDIRECT mode, and in both modes connections from a
// rerouted interface.
func (c *compiler) natPrerouting() Chain {
	b := c.base("nat-prerouting", NAT, Prerouting, c.priority(NATPriority, IstioNATPriority))
	for _, m := range interfaces(false, c.RerouteInterfaces) {
		c.captureIncluded(&b, "outbound of a rerouted interface", m)
		b.add("rerouted interface", Return, m)
	}
	for _, m := range interfaces(false, c.ExcludeInterfaces) {
		b.addRole(InboundExcludedInterface, "excluded interface", Return, m)
	}
	if c.Mode == ModeTProxy || !c.capturesInbound() {
		return b.build()
	}
	b.add("tunnel port", Return, tcp, toPort(Single(c.TunnelPort)))
	c.addExcludedInboundPorts(&b)
	redirect := []Action{RedirectTo{Port: c.InboundCapturePort}}
	b.capture(InboundCaptured, "inbound to the proxy", redirect, c.inboundPorts()...)
	return b.build()
}

// addExcludedInboundPorts adds the rule that exempts connections to the excluded ports from
// capture, if all other ports are captured.
func (c *compiler) addExcludedInboundPorts(b *chainBuilder) {
	if c.InboundPorts.All && len(c.InboundExcludePorts) > 0 {
		b.addRole(InboundExcludedPort, "excluded inbound port", Return,
			tcp, toPort(c.InboundExcludePorts...))
	}
}

// inboundPorts returns the matches of connections to the captured ports.
func (c *compiler) inboundPorts() []Match {
	if c.InboundPorts.All {
		return []Match{tcp}
	}
	return []Match{tcp, toPort(c.InboundPorts.Ports...)}
}

// manglePrerouting drops invalid packets with DropInvalid, and in TPROXY mode assigns inbound
// connections to the proxy.
func (c *compiler) manglePrerouting() Chain {
	b := c.base("mangle-prerouting", Filter, Prerouting,
		c.priority(ManglePriority, IstioManglePriority))
	if c.Mode == ModeTProxy {
		for _, m := range interfaces(false, c.ExcludeInterfaces) {
			b.addRole(InboundExcludedInterface, "excluded interface", Return, m)
		}
	}
	if c.DropInvalid {
		b.addRole(InboundDroppedInvalid, "invalid to conntrack", Drop,
			MatchState{States: States(Invalid)})
	}
	if c.Mode == ModeTProxy {
		c.addTProxy(&b)
	}
	return b.build()
}

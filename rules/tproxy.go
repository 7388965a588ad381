package rules

// addTProxy adds rules that assign inbound connections to the proxy's transparent listener. They
// must be the last rules of the chain.
func (c *compiler) addTProxy(b *chainBuilder) {
	mark := SetMark{Value: c.TProxyMark, Mask: ^uint32(0)}
	// The proxy marks its connections to the application that keep the client's address. The mark
	// is saved in the connection, so that mangleOutput can route the answers to the proxy instead
	// of the client.
	b.addAll(NoRole, "the proxy's connections with the client's address", []Action{SaveMark{}, Return},
		tcp, matchMark(c.TProxyMark))
	if !c.capturesInbound() {
		return
	}
	if c.deviates(RerouteTProxy) {
		for _, m := range interfaces(false, c.RerouteInterfaces) {
			b.add("rerouted interface: not inbound", Return, m)
		}
	}
	for _, f := range c.families {
		b.add("the proxy's connections to the application", Return, fromLoopback, passthrough(f),
			tcp)
	}
	selfCall := matchMark(SelfCallMark)
	selfCall.Not = true
	b.add("within the pod, but not from the proxy", Return, fromLoopback, tcp, selfCall)
	if c.deviates(TunnelPortTProxy) {
		b.add("tunnel port", Return, tcp, toPort(Single(c.TunnelPort)))
	}
	c.addExcludedInboundPorts(b)
	captured := c.inboundPorts()
	capturedAnd := func(extra Match) []Match { return append([]Match{extra}, captured...) }

	b.addAll(NoRole, "established: to its socket", []Action{mark, Accept},
		capturedAnd(MatchState{States: States(Established, Related)})...)
	for _, f := range c.families {
		b.add("loopback", Return, capturedAnd(c.loopbackOf(f))...)
	}
	b.capture(InboundCaptured, "inbound to the proxy",
		[]Action{TProxy{Port: c.InboundCapturePort}, mark, Accept}, captured...)
	// If no proxy listens, nft's tproxy continues with the next rule, and the packet would reach
	// the application.
	b.add("no proxy listens", Drop, captured...)
}

// mangleOutput, in TPROXY mode, marks packets of the proxy to its own pod, and routes answers of
// the application to the proxy.
func (c *compiler) mangleOutput() Chain {
	b := c.base("mangle-output", Route, Output, c.priority(ManglePriority, IstioManglePriority))
	if c.Mode != ModeTProxy {
		return b.build()
	}
	for _, m := range interfaces(true, c.ExcludeInterfaces) {
		b.add("excluded interface", Return, m)
	}
	b.add("marked already", Return, toLoopback, tcp, matchMark(c.TProxyMark))
	selfCall := SetMark{Value: SelfCallMark, Mask: ^uint32(0)}
	for _, owner := range []Match{c.proxyUser, c.proxyGroup} {
		for _, f := range c.families {
			b.add("the proxy calls its own pod", selfCall, toLoopback, c.offLoopback(f), tcp, owner)
		}
	}
	connection := matchMark(c.TProxyMark)
	connection.Conntrack = true
	b.add("answers to the proxy's connections", RestoreMark{}, tcp, connection)
	return b.build()
}

package rules

// forDNSServers calls add with the match of the captured DNS servers: without a match if queries to
// all servers are captured, otherwise once for each family with servers. It does not call add if
// DNS is not captured.
func (c *compiler) forDNSServers(side Side, add func(servers ...Match)) {
	switch {
	case !c.DNS.active():
	case c.DNS.All:
		add()
	default:
		for m := range c.toRanges(c.servers, "dns-servers") {
			m.Side = side
			add(m)
		}
	}
}

// captureDNS redirects queries to the sidecar's DNS proxy.
func (c *compiler) captureDNS(b *chainBuilder) {
	redirect := RedirectTo{Port: DNSPort}
	query := toPort(Single[uint16](domainPort))
	c.forDNSServers(Destination, func(servers ...Match) {
		b.capture(OutboundDNS, "DNS to the agent", []Action{redirect},
			append([]Match{tcp, query}, servers...)...)
	})
	c.forDNSServers(Destination, func(servers ...Match) {
		b.addRole(OutboundDNS, "DNS to the agent", redirect,
			append([]Match{udp, query}, servers...)...)
	})
}

// rawOutput assigns the conntrack zones of DNS over UDP. The first matching rule takes effect.
func (c *compiler) rawOutput() Chain {
	b := c.base("raw-output", Filter, Output, c.priority(RawPriority, IstioRawPriority))
	if !c.DNS.active() {
		return b.build()
	}
	query, answer := toPort(Single[uint16](domainPort)), fromPort(DNSPort)
	for _, owner := range []Match{c.proxyUser, c.proxyGroup} {
		b.add("DNS queries of the proxy", SetZone{Zone: ProxyDNSZone}, udp, query, owner)
		b.add("DNS answers of the agent", SetZone{Zone: AppDNSZone}, udp, answer, owner)
	}
	c.forDNSServers(Destination, func(servers ...Match) {
		b.add("DNS queries of the application", SetZone{Zone: AppDNSZone},
			append([]Match{udp, query}, servers...)...)
	})
	return b.build()
}

// rawPrerouting assigns the zone of the proxy's queries to answers of the servers.
func (c *compiler) rawPrerouting() Chain {
	b := c.base("raw-prerouting", Filter, Prerouting, c.priority(RawPriority, IstioRawPriority))
	c.forDNSServers(Source, func(servers ...Match) {
		b.add("DNS answers to the proxy", SetZone{Zone: ProxyDNSZone},
			append([]Match{udp, fromPort(domainPort)}, servers...)...)
	})
	return b.build()
}

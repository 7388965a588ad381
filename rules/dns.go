package rules

// eachDNSServers calls do with the match of the captured servers, once for all of them or once for
// each family with servers.
func (c *compiler) eachDNSServers(side Side, do func(servers ...Match)) {
	switch {
	case !c.DNS.active():
	case c.DNS.All:
		do()
	default:
		for _, f := range c.families {
			if ranges := c.servers.of(f); len(ranges) > 0 {
				m := to(ranges, "dns-servers")
				m.Side = side
				do(m)
			}
		}
	}
}

// captureDNS redirects queries to the sidecar's DNS proxy.
func (c *compiler) captureDNS(b *chainBuilder) {
	redirect := RedirectTo{Port: DNSPort}
	query := toPort(Single[uint16](domainPort))
	c.eachDNSServers(Destination, func(servers ...Match) {
		b.capture(OutboundDNS, "DNS to the agent", []Action{redirect},
			append([]Match{tcp, query}, servers...)...)
	})
	c.eachDNSServers(Destination, func(servers ...Match) {
		b.addRole(OutboundDNS, "DNS to the agent", redirect, append([]Match{udp, query}, servers...)...)
	})
}

// rawOutput assigns the conntrack zone of DNS over UDP; the first matching rule takes effect.
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
	c.eachDNSServers(Destination, func(servers ...Match) {
		b.add("DNS queries of the application", SetZone{Zone: AppDNSZone},
			append([]Match{udp, query}, servers...)...)
	})
	return b.build()
}

// rawPrerouting assigns the zone of the proxy's queries to replies of the servers.
func (c *compiler) rawPrerouting() Chain {
	b := c.base("raw-prerouting", Filter, Prerouting, c.priority(RawPriority, IstioRawPriority))
	c.eachDNSServers(Source, func(servers ...Match) {
		b.add("DNS answers to the proxy", SetZone{Zone: ProxyDNSZone},
			append([]Match{udp, fromPort(domainPort)}, servers...)...)
	})
	return b.build()
}

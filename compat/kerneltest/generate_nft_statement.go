package kerneltest

import "github.com/sluice-mesh/sluice/rules"

// statement draws a statement, which usually does not end the rule. A list repeats the texts that
// are drawn more often.
func (d *nftGenerator) statement() string {
	g := d.Generator
	if g.RareOptions && g.oneIn(3) {
		return d.drawUntilAllowed(d.rareStatement)
	}
	mark := draw(g, someMarks...)
	choice := g.below(12)
	if g.conntrack && g.oneIn(2) {
		choice = draw(g, 1, 3, 4, 5, 6) // the cases that set marks or zones, or disable tracking
	}
	switch choice {
	case 0:
		return "counter"
	case 1, 2:
		return "meta mark set " + draw(g, mark, mark, "meta mark & "+draw(g, someMasks...),
			"meta mark | "+mark, "meta mark ^ "+mark,
			"meta mark & 0xf | 0x100")
	case 3:
		return "meta mark set " + draw(g, "ct mark", "ct mark", "ct mark & 0xff",
			"tcp dport map { 80 : 0x7, 443 : 0x5 }", "ct mark | 0x1")
	case 4:
		return "ct mark set " + draw(g, mark, mark, "meta mark", "meta mark", "ct mark & 0xf",
			"ct mark | "+mark, "meta mark & 0xff", "ct mark ^ 0x1")
	case 5, 6:
		// notrack and zones take effect only before conntrack.
		if d.priority < rules.ConntrackPriority && !d.isNAT() {
			return draw(g, "notrack", "ct zone set 5", "ct zone set 1", "ct zone set 0", "notrack",
				"ct original zone set 5")
		}
		if d.priority == rules.ConntrackPriority && !d.isNAT() {
			return draw(g, "notrack", "ct zone set 5", "counter")
		}
		return "counter"
	case 7:
		if !g.OmitUnmodeled && g.oneIn(2) {
			return draw(g, "tcp dport set 9090", "ip dscp set 1", "meta priority set 1",
				"ct event set new", "ip daddr set 10.9.9.9",
				"ip6 hoplimit set 5", "ip6 dscp set 3", "ip ecn set ce", "ip6 ecn set ect0",
				"tcp option maxseg size set 1000", "ip dscp set 2", "ip ttl set 8",
				"tcp sport set 53", "ip ttl set 7", "meta nftrace set 1",
				"update @addrs6 { ip6 saddr }")
		}
	case 8:
		return draw(g, `log`, "counter")
	case 9, 10:
		if d.isPrerouting() && !d.isNAT() {
			family := ""
			if d.family == rules.Inet {
				family = draw(g, "", " ip", " ip6")
			}
			return "meta l4proto " + draw(g, "tcp", "udp",
				"{ tcp, udp }") + " tproxy" + family + " to :" + draw(g, "15001", "15006", "9090")
		}
	}
	return "counter"
}

// natFamily draws one of the table's address families. It also returns the text before "to" in a
// NAT statement: the keyword of the family in tables of the family inet, and otherwise nothing.
func (d *nftGenerator) natFamily() (family rules.Family, prefix string) {
	family, keyword := d.addrFamily()
	if d.family != rules.Inet {
		return family, ""
	}
	return family, keyword + " "
}

// sourceNAT draws the end of a rule of a NAT chain at postrouting: a source NAT statement, accept
// or nothing.
func (d *nftGenerator) sourceNAT() string {
	family, prefix := d.natFamily()
	first, last := "169.254.7.127", "169.254.7.129"
	if family == rules.IPv6 {
		first, last = "fd16:9254::1", "fd16:9254::3"
	}
	return draw(d.Generator, "", "accept", "masquerade", "snat "+prefix+"to "+first,
		"snat "+prefix+"to "+first, "snat "+prefix+"to "+first+"-"+last)
}

// verdict draws the end of a rule: a verdict, a verdict map, a NAT or reject statement, or nothing.
func (d *nftGenerator) verdict() string {
	g := d.Generator
	if g.RareOptions && g.oneIn(3) {
		return d.drawUntilAllowed(d.rareVerdict)
	}
	switch g.below(12) {
	case 0, 1:
		return "accept"
	case 2:
		return draw(g, "drop", "drop", "reject", "accept")
	case 3:
		return draw(g, "return", "continue")
	case 4, 5:
		if len(d.jumps) > 0 {
			return draw(g, "jump ", "jump ", "goto ") + draw(g, d.jumps...)
		}
	case 6:
		target := d.jumpOrDrop()
		return draw(g, "tcp dport vmap { 80 : accept, 443 : "+target+", 9000-9100 : return }",
			"meta mark vmap { 0x5 : drop, 0x7 : "+target+" }",
			"ct state vmap { new : "+target+", established : accept }",
			"meta l4proto vmap { tcp : "+target+", udp : accept }")
	}
	if !d.isNAT() {
		return draw(g, "", "", "accept", "drop")
	}
	if d.isPostrouting() {
		return d.sourceNAT()
	}
	protocol := draw(g, "meta l4proto tcp ", "meta l4proto udp ", "meta l4proto { tcp, udp } ",
		"tcp dport 80 ", "tcp dport 80 ")
	switch g.below(6) {
	case 0:
		family, prefix := d.natFamily()
		address := draw(g, someAddrs[family][:4]...)
		bracketed := address
		if family == rules.IPv6 {
			bracketed = "[" + address + "]"
		}
		return draw(g, "meta l4proto tcp dnat "+prefix+"to "+bracketed+":"+g.port(),
			"dnat "+prefix+"to "+address)
	case 1:
		return protocol + "dnat to :" + draw(g, g.port(), g.portRange("-"))
	case 2:
		return "redirect"
	case 3:
		return "tcp dport { 80, 443 } redirect to tcp dport map { 80 : 15001, 443 : 15006 }"
	}
	return protocol + "redirect to :" + draw(g, "15001", "15006", g.port(), g.portRange("-"))
}

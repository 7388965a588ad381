package kerneltest

import "github.com/sluice-mesh/sluice/rules"

// target draws a target or nothing, and the protocol that the target needs.
func (d xtablesGenerator) target() (target, protocol string) {
	g := d.Generator
	if g.RareOptions && g.oneIn(20) {
		return d.rareTarget()
	}
	if !g.OmitUnmodeled && g.oneIn(40) {
		return draw(g, "-j TOS --set-tos 4", "-j DSCP --set-dscp 1",
			"-j HMARK --hmark-tuple src --hmark-mod 5 --hmark-rnd 1",
			"-j NFLOG", "-j TRACE", "-j CONNSECMARK --save", "-j AUDIT --type accept",
			"-j CHECKSUM --checksum-fill"), ""
	}
	if g.conntrack && g.oneIn(2) {
		return d.conntrackTarget(), ""
	}
	switch g.below(10) {
	case 0:
		return "-j ACCEPT", ""
	case 1:
		if d.table != "nat" {
			return draw(g, "-j DROP", "-j DROP", "-j ACCEPT"), ""
		}
		return "-j ACCEPT", ""
	case 2:
		return "-j RETURN", ""
	case 3, 4:
		if len(d.jumps) > 0 {
			return draw(g, "-j ", "-j ", "-g ") + draw(g, d.jumps...), ""
		}
		return draw(g, "", "-j LOG"), ""
	case 5:
		return "-j MARK " + draw(g, "--set-mark "+draw(g, someMarks...),
			"--set-mark "+g.maskedMark(), "--set-xmark "+g.maskedMark(),
			"--and-mark "+draw(g, someMasks...), "--or-mark "+draw(g, someMarks...),
			"--xor-mark "+draw(g, someMarks...)), ""
	case 6:
		return "-j CONNMARK " + draw(g, "--set-mark "+draw(g, someMarks...),
			"--set-mark "+g.maskedMark(), "--set-xmark "+g.maskedMark(),
			"--save-mark", "--restore-mark", "--save-mark --mask 0xff",
			"--restore-mark --mask 0xff",
			"--save-mark --nfmask 0xf --ctmask 0xff", "--restore-mark --nfmask 0xff --ctmask 0x1",
			"--and-mark 0xf", "--or-mark 0x5", "--xor-mark 0x1"), ""
	}
	switch d.table {
	case "nat":
		if g.oneIn(3) {
			address := draw(g, someAddrs[d.family][:4]...)
			if d.family == rules.IPv6 {
				address = "[" + address + "]"
			}
			return "-j DNAT --to-destination " + draw(g, address, address+":"+g.port(),
					":"+g.port(), address+":"+g.portRange("-")),
				draw(g, "tcp", "udp")
		}
		if g.oneIn(8) {
			return "-j REDIRECT", ""
		}
		return "-j REDIRECT --to-ports " + draw(g, "15001", "15006", g.port(),
			g.portRange("-")), draw(g, "tcp", "tcp", "udp")
	case "raw":
		return draw(g, "-j CT --notrack", "-j CT --notrack", "-j CT --zone 5", "-j CT --zone 1",
			"-j CT --zone 5", "-j CT --zone 0",
			"-j NOTRACK", "-j CT", "-j CT --zone 5"), ""
	case "mangle":
		if d.hook == "PREROUTING" {
			text := "-j TPROXY --on-port " + g.tproxyPort()
			if g.oneIn(4) {
				ip := "127.0.0.1"
				if d.family == rules.IPv6 {
					ip = "::1"
				}
				text += " --on-ip " + ip
			}
			return text + draw(g, "", " --tproxy-mark "+g.maskedMark(),
				" --tproxy-mark 0x539"), draw(g, "tcp", "udp")
		}
	case "filter":
		return draw(g, "-j REJECT", "-j DROP", "-j ACCEPT"), ""
	}
	return draw(g, "-j ACCEPT", "-j DROP", "-j RETURN", ""), ""
}

// conntrackTarget draws a target that changes the tracking, the zone or the mark of a connection,
// or the mark of a packet.
func (d xtablesGenerator) conntrackTarget() string {
	g := d.Generator
	if d.table == "raw" && g.oneIn(2) {
		return draw(g, "-j CT --zone 5", "-j CT --zone 1", "-j CT --notrack", "-j CT")
	}
	return draw(g, "-j MARK --set-mark ", "-j MARK --xor-mark ",
		"-j CONNMARK --set-mark ") + draw(g, someMarks...)
}

// tproxyPort draws the port of a listener, or rarely 0, which means the port of the packet.
func (g *Generator) tproxyPort() string {
	if g.oneIn(60) {
		return "0"
	}
	return draw(g, "15001", "15006", "9090")
}

package kerneltest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// xtables draws at least one table of iptables, for one or both families.
func (g *Generator) xtables(p Program) Ruleset {
	var rs Ruleset
	families := draw(g, []rules.Family{rules.IPv4}, []rules.Family{rules.IPv4},
		[]rules.Family{rules.IPv6},
		[]rules.Family{rules.IPv4, rules.IPv6})
	for _, family := range families {
		for _, name := range []string{"raw", "mangle", "nat", "filter"} {
			if g.oneIn(2) {
				rs = append(rs, g.xtable(p, family, name))
			}
		}
	}
	if len(rs) == 0 {
		return g.xtables(p)
	}
	return rs
}

// An xtablesGenerator draws rules for a chain of an iptables table.
type xtablesGenerator struct {
	*Generator
	family rules.Family
	table  string
	hook   string   // PREROUTING or OUTPUT, from which packets reach the chain
	jumps  []string // the chains to which rules may jump
}

// xtable draws a table. The names of user-defined chains begin with O if packets reach them from
// OUTPUT, and with P if packets reach them from PREROUTING.
func (g *Generator) xtable(p Program, family rules.Family, name string) Table {
	t := Table{Program: p, Family: family, Name: name}
	userChains := map[string][]string{}
	for _, hook := range []string{"PREROUTING", "OUTPUT"} {
		if !slices.Contains(builtInChains[name], hook) {
			continue
		}
		for i := range g.below(3) {
			userChains[hook] = append(userChains[hook], fmt.Sprintf("%c%d", hook[0], i))
		}
	}
	for _, hook := range builtInChains[name] {
		policy := "ACCEPT"
		if (hook == "PREROUTING" || hook == "OUTPUT") && name != "nat" && g.oneIn(12) {
			policy = "DROP"
		}
		c := Chain{Name: hook, Base: policy}
		if hook == "PREROUTING" || hook == "OUTPUT" {
			d := xtablesGenerator{g, family, name, hook, userChains[hook]}
			c.Rules = append(d.probe(), g.rules(5, d.rule)...)
		}
		if hook == "POSTROUTING" && name == "mangle" && g.RareOptions && g.oneIn(3) {
			// Packets that leave by lo traverse POSTROUTING before PREROUTING. The rules of
			// POSTROUTING are drawn like the rules of OUTPUT.
			d := xtablesGenerator{g, family, name, "OUTPUT", nil}
			c.Rules = append(d.probe(), g.rules(3, d.rule)...)
		}
		t.Chains = append(t.Chains, c)
	}
	for _, hook := range []string{"OUTPUT", "PREROUTING"} {
		names := userChains[hook]
		for i, name := range names {
			d := xtablesGenerator{g, family, t.Name, hook, names[i+1:]}
			t.Chains = append(t.Chains, Chain{Name: name, Rules: g.rules(3, d.rule)})
		}
	}
	return t
}

// probe draws, with probability 1/2, a rule whose target may change packets, and a rule that marks
// or drops the packets that it matches. The second rule shows whether a match sees the effect of
// the first rule.
func (d xtablesGenerator) probe() []Rule {
	if d.oneIn(2) {
		return nil
	}
	target, protocol := d.target()
	changing := Rule{target}
	if protocol != "" {
		changing = Rule{"-p " + protocol, target}
	}
	visibleTarget := "-j MARK --xor-mark 0x10"
	if d.table != "nat" && d.oneIn(3) {
		visibleTarget = "-j DROP"
	}
	observing := Rule{"-p tcp", d.match("tcp"), visibleTarget}
	if d.oneIn(2) {
		observing = Rule{d.match("other"), visibleTarget}
	}
	return []Rule{changing, observing}
}

// rule draws a rule.
func (d xtablesGenerator) rule() Rule {
	var r Rule
	target, protocol := d.target()
	if protocol == "" {
		protocol = draw(d.Generator, "", "", "", "tcp", "tcp", "udp", "other")
	}
	switch protocol {
	case "tcp", "udp":
		r = append(r, "-p "+protocol)
	case "other": // a condition that includes protocols other than TCP and UDP
		icmp := "icmp"
		if d.family == rules.IPv6 {
			icmp = "ipv6-icmp"
		}
		r = append(r, draw(d.Generator, "-p "+icmp, "-p 253", "! -p tcp", "! -p udp", "-p all",
			"! -p "+icmp))
	}
	for range draw(d.Generator, 0, 0, 1, 1, 1, 2, 2, 3) {
		m := d.match(protocol)
		if m == "" {
			continue
		}
		if !slices.ContainsFunc(r, func(term string) bool { return option(term) == option(m) }) {
			r = append(r, m)
		}
	}
	if target != "" {
		r = append(r, target)
	}
	if d.RareOptions && d.oneIn(2) {
		return d.reword(r)
	}
	return r
}

// option returns the part of a term that a rule may contain only once: the name of the match after
// -m, or the option of the term.
func option(term string) string {
	words := strings.Fields(strings.TrimPrefix(term, "! "))
	switch words[0] {
	case "-m":
		if words[1] == "state" || words[1] == "conntrack" {
			return "conntrack"
		}
		return words[1]
	case "--syn":
		return "--tcp-flags"
	case "--dport", "--sport":
		// After -m multiport, iptables reads --dport as an abbreviation of --dports.
		return "multiport"
	}
	return words[0]
}

// negation returns "! " with probability 1/3.
func (d xtablesGenerator) negation() string { return d.maybe("! ") }

// addrs draws an address or a prefix, sometimes with a mask that is not a prefix.
func (d xtablesGenerator) addrs() string {
	switch d.below(4) {
	case 0:
		return draw(d.Generator, somePrefixes[d.family]...)
	case 1:
		if d.family == rules.IPv4 {
			return draw(d.Generator, "10.0.0.0/255.0.255.0", "10.9.9.9/255.255.255.254")
		}
	}
	return draw(d.Generator, someAddrs[d.family]...)
}

// match draws a match that a rule for the protocol may contain, or nothing. The protocol "other"
// includes protocols other than TCP and UDP. A text that is repeated in a list is drawn more often.
func (d xtablesGenerator) match(protocol string) string {
	g := d.Generator
	if g.RareOptions && g.oneIn(24) {
		return d.rareMatch(protocol)
	}
	if !g.OmitUnmodeled && g.oneIn(20) || g.oneIn(150) {
		return d.unusualMatch()
	}
	isOutput := d.hook == "OUTPUT"
	choice := g.below(16)
	if g.conntrack && g.oneIn(2) {
		choice = draw(g, 11, 12, 13, 14) // the cases of marks and connections
	}
	switch choice {
	case 0, 1:
		device := draw(g, "lo", "eth0", "eth1", "eth+", "+", "eth2", "tun0")
		if isOutput {
			return d.negation() + "-o " + device
		}
		return d.negation() + "-i " + device
	case 2:
		return d.negation() + "-s " + d.addrs()
	case 3, 4:
		return d.negation() + "-d " + d.addrs()
	case 5:
		return "-m iprange " + d.negation() + draw(g, "--src-range ", "--dst-range ") + draw(g,
			someRanges[d.family]...)
	case 6, 7:
		if protocol != "tcp" && protocol != "udp" {
			return ""
		}
		return d.negation() + draw(g, "--dport ", "--dport ", "--sport ") + draw(g, g.port(),
			g.portRange(":"), ":"+g.port(), g.port()+":")
	case 8:
		if protocol != "tcp" && protocol != "udp" {
			return ""
		}
		ports := g.port() + "," + draw(g, g.port(), g.portRange(":"))
		return "-m multiport " + d.negation() + draw(g, "--dports ", "--dports ", "--sports ",
			"--ports ") + ports
	case 9:
		if protocol == "tcp" {
			return draw(g, "--syn", "! --syn", d.negation()+"--tcp-flags "+draw(g,
				flagNames...)+" "+draw(g, "SYN", "ACK", "NONE", "ALL", "FIN"))
		}
		if protocol == "other" {
			return ""
		}
	case 10:
		if isOutput {
			return "-m owner " + draw(g, d.negation()+"--uid-owner "+draw(g, someIDs...),
				d.negation()+"--gid-owner "+draw(g, someIDs...),
				d.negation()+"--socket-exists",
				"--uid-owner 1337 ! --gid-owner "+draw(g, someIDs...))
		}
		if d.table == "raw" || d.table == "mangle" {
			return "-m rpfilter" + draw(g, "", " --invert")
		}
		return ""
	case 11:
		return "-m mark " + d.negation() + "--mark " +
			draw(g, draw(g, someMarks...), g.maskedMark())
	case 12:
		return "-m connmark " + d.negation() + "--mark " +
			draw(g, draw(g, someMarks...), g.maskedMark())
	case 13, 14:
		states := draw(g, "NEW", "ESTABLISHED", "RELATED,ESTABLISHED", "INVALID", "UNTRACKED",
			"NEW,UNTRACKED", "DNAT", "SNAT")
		return draw(g, "-m conntrack "+d.negation()+"--ctstate "+states,
			"-m conntrack "+d.negation()+"--ctstate "+states,
			"-m state "+d.negation()+"--state "+draw(g, "NEW", "ESTABLISHED", "RELATED", "INVALID",
				"UNTRACKED"),
			"-m conntrack "+d.negation()+"--ctstatus "+draw(g, "NONE", "SEEN_REPLY", "ASSURED",
				"CONFIRMED", "EXPECTED", "CONFIRMED,ASSURED"),
			"-m conntrack --ctdir "+draw(g, "ORIGINAL", "REPLY"))
	}
	types := []string{"LOCAL", "LOCAL", "UNICAST", "MULTICAST", "UNICAST,LOCAL"}
	if d.family == rules.IPv4 {
		types = append(types, "LOCAL,BROADCAST", "BROADCAST")
	}
	return "-m addrtype " + d.negation() + draw(g, "--dst-type ", "--src-type ",
		"--dst-type ") + draw(g, types...)
}

// unusualMatch draws a match that depends on chance or that the model cannot express.
func (d xtablesGenerator) unusualMatch() string {
	g := d.Generator
	list := []string{
		"-m limit --limit 1/s --limit-burst 3", "-m statistic --mode random --probability 0.5",
		"-m statistic --mode nth --every 2 --packet 0", "-m recent --name r --set",
		"-m recent --name r --rcheck",
		"-m string --algo bm --string zzz", "-m u32 --u32 0>>28=4", "-m length --length 1:100",
		"-m length --length 100:200", "-m dscp --dscp 0", "-m tos ! --tos 0x10/0x3f",
		"-m comment --comment text",
		"-m pkttype --pkt-type unicast", "-m conntrack --ctproto tcp",
		"-m conntrack --ctorigdstport 80",
		"-m hashlimit --hashlimit-above 1/s --hashlimit-name h",
		"-m time --timestart 00:00 --timestop 23:59",
		"-m connbytes --connbytes 0:100 --connbytes-dir both --connbytes-mode packets",
		"-m cpu --cpu 0",
		"-m connlabel --label 1", "-m quota --quota 100", "-m tcpmss --mss 1",
	}
	if d.family == rules.IPv4 {
		list = append(list, "-m ttl --ttl-gt 10", "-m addrtype --dst-type LOCAL --limit-iface-in")
	} else {
		list = append(list, "-m hl --hl-gt 10")
	}
	if d.hook == "PREROUTING" {
		list = append(list, "-m socket --transparent", "-m socket --nowildcard --restore-skmark",
			"-m socket", "-m mac --mac-source 00:00:00:00:00:01", "-m pkttype --pkt-type broadcast")
		if d.table == "raw" || d.table == "mangle" {
			list = append(list, "-m rpfilter --loose", "-m rpfilter --validmark --invert")
		}
	} else {
		list = append(list, "-m policy --dir out --pol none")
	}
	return draw(g, list...)
}

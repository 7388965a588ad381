package kerneltest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// nft draws tables for the nft command.
func (g *Generator) nft() Ruleset {
	var rs Ruleset
	for _, name := range []string{"a", "b"}[:1+g.below(2)] {
		family := draw(g, rules.Inet, rules.Inet, rules.IPv4, rules.IPv6)
		t := Table{Program: NFT, Family: family, Name: name}
		inTable := nftGenerator{Generator: g, family: family}
		t.Sets = inTable.sets()
		if g.RareOptions {
			t.Sets = append(t.Sets, inTable.rareObjects()...)
		}
		hooks := []string{
			"filter hook prerouting", "filter hook output", "nat hook prerouting",
			"nat hook output", "route hook output",
		}
		if g.RareOptions && g.oneIn(4) {
			hooks = append(hooks, "filter hook postrouting", "nat hook postrouting")
		}
		for i := range 1 + g.below(3) {
			d := inTable
			d.typeAndHook = draw(g, hooks...)
			// The priorities of iptables' tables and of conntrack (-200), and others near them.
			d.priority = draw(g, -300, -200, -150, -100, 0, 5, -199, -201)
			if g.RareOptions {
				d.priority = draw(g, d.priority, -310, -290, -140, -101, -99, -95, 110)
			}
			if g.conntrack && g.oneIn(2) {
				d.priority = draw(g, -300, -290) // where rules may assign zones
			}
			if d.isNAT() {
				d.priority = draw(g, -100, -110, -90, 0)
			}
			regularChains := g.below(3)
			for j := range regularChains {
				d.jumps = append(d.jumps, fmt.Sprintf("c%d%d", i, j))
			}
			policy := "accept"
			if g.oneIn(12) {
				policy = "drop"
			}
			base := fmt.Sprintf("type %s priority %d; policy %s;", d.typeAndHook, d.priority,
				policy)
			t.Chains = append(t.Chains, Chain{
				Name: fmt.Sprint("base", i), Base: base,
				Rules: append(d.probe(), g.rules(5, d.rule)...),
			})
			for j := range regularChains {
				inRegularChain := d
				inRegularChain.jumps = d.jumps[j+1:]
				t.Chains = append(t.Chains, Chain{
					Name: d.jumps[j], Rules: g.rules(3, inRegularChain.rule),
				})
			}
		}
		rs = append(rs, t)
	}
	return rs
}

// An nftGenerator draws rules for a chain of an nft table.
type nftGenerator struct {
	*Generator
	family      rules.Family
	typeAndHook string // of the base chain, such as "nat hook output"
	priority    int
	jumps       []string // the chains to which rules may jump
}

func (d *nftGenerator) isNAT() bool        { return strings.HasPrefix(d.typeAndHook, "nat ") }
func (d *nftGenerator) isPrerouting() bool { return strings.HasSuffix(d.typeAndHook, " prerouting") }

func (d *nftGenerator) isPostrouting() bool {
	return strings.HasSuffix(d.typeAndHook, " postrouting")
}

// jumpOrDrop draws a jump or a goto to one of the chains, or returns drop if there is no chain.
func (d *nftGenerator) jumpOrDrop() string {
	if len(d.jumps) == 0 {
		return "drop"
	}
	return draw(d.Generator, "jump ", "goto ") + draw(d.Generator, d.jumps...)
}

// sets returns the declarations of the sets that rules may use.
func (d *nftGenerator) sets() []string {
	return []string{
		"set addrs4 { type ipv4_addr; flags interval; " +
			"elements = { 10.0.0.0/8, 192.0.2.9, 127.0.0.1-127.0.0.6 }; }",
		"set addrs6 { type ipv6_addr; elements = { 2001:db8::9, fd00:1::2 }; }",
		"set ports { type inet_service; flags interval; elements = { 53, 80-443, 15006 }; }",
		"set ids { type uid; elements = { 1000, 1337 }; }",
		"set marks { type mark; elements = { 0x5, 0x539 }; }",
	}
}

// probe draws, with probability 1/2, a rule with a statement that may change packets, and a rule
// that marks or drops the packets that it matches. The second rule shows whether a match sees the
// effect of the first rule.
func (d *nftGenerator) probe() []Rule {
	if d.oneIn(2) {
		return nil
	}
	observing := Rule{
		d.match(),
		draw(d.Generator, "meta mark set meta mark ^ 0x10", "meta mark set meta mark ^ 0x10",
			"drop"),
	}
	return []Rule{{d.statement()}, observing}
}

// rule draws rules until one is not contradictory, because nft rejects contradictory rules.
func (d *nftGenerator) rule() Rule {
	for {
		if r := d.anyRule(); !isContradictory(r) {
			return r
		}
	}
}

// isContradictory reports whether the rule names two transport protocols or two families.
func isContradictory(r Rule) bool {
	text := " " + strings.Join(r, " ")
	namesTwo := func(words ...string) bool {
		count := 0
		for _, word := range words {
			if strings.Contains(text, " "+word+" ") {
				count++
			}
		}
		return count > 1
	}
	return namesTwo("tcp", "udp", "icmp", "icmpv6", "ipv6-icmp", "{ tcp, udp }", "253") ||
		namesTwo("ip", "ip6", "icmp", "icmpv6", "ipv4", "ipv6")
}

// anyRule draws a rule, which may be contradictory.
func (d *nftGenerator) anyRule() Rule {
	var r Rule
	for range draw(d.Generator, 0, 1, 1, 1, 2, 2, 3) {
		r = append(r, d.match())
	}
	for range draw(d.Generator, 0, 0, 1, 1, 1, 2) {
		statement := d.statement()
		// Statements usually follow the matches.
		at := len(r)
		if d.oneIn(3) {
			at = d.below(len(r) + 1)
		}
		r = slices.Insert(r, at, statement)
	}
	if verdict := d.verdict(); verdict != "" {
		r = append(r, verdict)
	}
	if len(r) == 0 {
		r = Rule{"counter"}
	}
	return r
}

// addrFamily draws one of the table's address families, and returns it with its nft keyword.
func (d *nftGenerator) addrFamily() (rules.Family, string) {
	family := d.family
	if family == rules.Inet {
		family = draw(d.Generator, rules.IPv4, rules.IPv4, rules.IPv6)
	}
	return family, map[rules.Family]string{rules.IPv4: "ip", rules.IPv6: "ip6"}[family]
}

// values draws the right side of a comparison: a value, a range, or a set of both.
func (d *nftGenerator) values(drawValue, drawRange func() string) string {
	switch d.below(6) {
	case 0, 1:
		return d.maybe("!= ") + "{ " + drawValue() + ", " + drawRange() + " }"
	case 2:
		return d.maybe("!= ") + drawRange()
	}
	return d.maybe("!= ") + drawValue()
}

// addrs draws the right side of a comparison with an address.
func (d *nftGenerator) addrs(family rules.Family) string {
	address := func() string { return draw(d.Generator, someAddrs[family]...) }
	if d.oneIn(8) {
		return d.maybe("!= ") + map[rules.Family]string{
			rules.IPv4: "@addrs4",
			rules.IPv6: "@addrs6",
		}[family]
	}
	if d.oneIn(4) {
		return d.maybe("!= ") + draw(d.Generator, someRanges[family]...)
	}
	if d.oneIn(4) {
		return d.maybe("!= ") + draw(d.Generator, somePrefixes[family]...)
	}
	if d.oneIn(3) {
		return d.maybe("!= ") + "{ " + address() + ", " + draw(d.Generator,
			somePrefixes[family]...) + " }"
	}
	return d.maybe("!= ") + address()
}

// match draws a match. A text that is repeated in a list is drawn more often.
func (d *nftGenerator) match() string {
	g := d.Generator
	if g.RareOptions && g.oneIn(3) {
		return d.drawUntilAllowed(d.rareMatch)
	}
	if !g.OmitUnmodeled && g.oneIn(20) || g.oneIn(150) {
		return d.unusualMatch()
	}
	family, ip := d.addrFamily()
	portRange := func() string { return g.portRange("-") }
	mark := func() string { return draw(g, someMarks...) }
	markRange := func() string { return "0x1-0x100" }
	field := g.below(20)
	if g.conntrack && g.oneIn(2) {
		field = draw(g, 10, 11, 12, 13, 14, 15) // the cases of marks and connections
	}
	switch field {
	case 0, 1:
		device := draw(g, `"lo"`, `"eth0"`, `"eth1"`, `"eth*"`, `{ "lo", "eth0" }`)
		if d.isPrerouting() {
			return "iifname " + d.maybe("!= ") + device
		}
		return draw(g, "oifname ", "oifname ", "iifname ") + d.maybe("!= ") + device
	case 2:
		return ip + " saddr " + d.addrs(family)
	case 3, 4:
		return ip + " daddr " + d.addrs(family)
	case 5, 6:
		return draw(g, "tcp", "udp") + draw(g, " dport ", " dport ", " sport ") +
			d.values(g.port, portRange)
	case 7:
		if g.oneIn(3) {
			return "tcp dport " + d.maybe("!= ") + "@ports"
		}
		return "meta l4proto " + d.maybe("!= ") + draw(g, "{ tcp, udp }", "tcp", "icmp", "253",
			"udp") + draw(g, "", " th dport "+g.port())
	case 8:
		return "tcp flags " + draw(g, "syn", "& (syn|ack) == syn", "& (syn|ack) != syn", "!= syn",
			"& (fin|syn|rst|ack) == syn", "syn / syn,ack")
	case 9:
		key := draw(g, "meta skuid ", "meta skgid ")
		if g.oneIn(4) {
			return "meta skuid " + d.maybe("!= ") + "@ids"
		}
		return key + d.values(func() string { return draw(g, "0", "1000", "1337") },
			func() string { return draw(g, "0-1000", "1000-1337") })
	case 10:
		return "meta mark " + draw(g, d.values(mark, markRange),
			"& "+draw(g, someMasks...)+draw(g, " == ", " != ")+mark(), "@marks")
	case 11:
		return "ct mark " + draw(g, d.values(mark, markRange),
			"& "+draw(g, someMasks...)+draw(g, " == ", " != ")+mark())
	case 12, 13:
		return "ct state " + d.maybe("!= ") + draw(g, "new", "established", "related,established",
			"invalid", "untracked", "new,untracked", "{ new, established }")
	case 14:
		return draw(g, "ct status ", "ct status != ") + draw(g, "snat", "dnat", "seen-reply",
			"assured", "confirmed", "expected")
	case 15:
		return "ct direction " + draw(g, "original", "reply")
	case 16:
		return "fib " + draw(g, "daddr", "daddr", "saddr") + " type " + d.maybe("!= ") + draw(g,
			"local", "unicast", "{ local, broadcast }", "multicast")
	case 17:
		if family == rules.IPv4 {
			return draw(g, "icmp type "+draw(g, "echo-request", "destination-unreachable",
				"{ 0, 8 }", "!= 8"), "icmp code 1", "meta l4proto icmp")
		}
		return draw(g, "icmpv6 type "+draw(g, "echo-request", "destination-unreachable", "!= 128"),
			"meta l4proto ipv6-icmp")
	case 18:
		first := draw(g, someAddrs[family]...)
		second := draw(g, someAddrs[family]...)
		return fmt.Sprintf("%s %s . %s dport %s{ %s . %s, %s . %s }", ip, draw(g, "daddr",
			"saddr"), draw(g, "tcp", "udp", "th"),
			d.maybe("!= "), first, g.port(), second, "53")
	}
	if d.family == rules.Inet {
		return draw(g, "meta nfproto ipv4", "meta nfproto ipv6", "meta nfproto != ipv4",
			"meta protocol ip")
	}
	return "meta l4proto != udp"
}

// unusualMatch draws a match that depends on chance or that the model cannot express.
func (d *nftGenerator) unusualMatch() string {
	list := []string{
		"limit rate 1/second burst 3 packets", "numgen random mod 2 0", "numgen inc mod 2 0",
		"meta length 100-200", "ip dscp 0",
		"ip ttl > 10", "meta priority 0", "@th,0,16 80", "meta cpu 0", "ct original daddr 10.9.9.9",
		"ct packets > 1", "meta pkttype host",
		"jhash ip saddr mod 2 0", "ct zone 5", "ct id 5", "ip6 hoplimit > 3",
		"meta random < 0x7fffffff", "ip length 100-200",
		"quota 1 mbytes", "meta time > 5", "rt classid 1",
	}
	if !d.isPostrouting() {
		list = append(list, "socket transparent 1")
	}
	if d.isPrerouting() {
		list = append(list, "socket mark 5", "fib saddr . iif oif missing",
			"fib saddr . iif oif exists", "socket wildcard 0")
	}
	return draw(d.Generator, list...)
}

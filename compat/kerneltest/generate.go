package kerneltest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A Generator generates rulesets and packets at random. Equal seeds yield equal results.
type Generator struct {
	random *rand.Rand
	// OmitUnmodeled omits most constructs that the model cannot express.
	OmitUnmodeled bool
	// RareOptions adds rules with rarely used options, and with options in unusual orders. The
	// model cannot express many of these rules.
	RareOptions bool
	// conntrack makes rules that match or change conntrack state more frequent, so that they
	// interact.
	conntrack bool
}

// NewGenerator returns a generator with the seed.
func NewGenerator(seed uint64) *Generator {
	return &Generator{random: rand.New(rand.NewPCG(seed, 0))}
}

// The values in rules. Rules and packets have few different values, so that they often match.
var (
	somePorts = []string{"53", "80", "443", "9090", "15001", "15006"}
	someMarks = []string{"0x0", "0x1", "0x5", "0x7", "0x100", "0x539"}
	someMasks = []string{"0xffffffff", "0xffffffff", "0x1", "0xf", "0xff", "0x100", "0xffff0000"}
	someIDs   = []string{"0", "1000", "1337", "0-1000", "1000-1337"}
	someAddrs = map[rules.Family][]string{
		rules.IPv4: {
			"10.244.1.5", "10.1.2.3", "10.9.9.9", "192.0.2.9", "127.0.0.1", "127.0.0.6", "10.0.2.1",
			"10.0.2.2",
		},
		rules.IPv6: {
			"fd00:10:244:1::5", "fd00:1::2", "2001:db8::9", "::1", "::6", "fd00:10:0:2::1",
			"fd00:10:0:2::2",
		},
	}
	somePrefixes = map[rules.Family][]string{
		rules.IPv4: {"10.0.0.0/8", "10.244.1.0/24", "127.0.0.0/8", "192.0.2.0/25", "10.0.2.0/31"},
		rules.IPv6: {
			"fd00::/8", "fd00:10:244:1::/64", "2001:db8::/32", "2001:db8::8/127",
			"::/124",
		},
	}
	someRanges = map[rules.Family][]string{
		rules.IPv4: {"10.1.2.3-10.9.9.9", "10.9.9.9-192.0.2.9", "127.0.0.1-127.0.0.6"},
		rules.IPv6: {"fd00:1::2-fd00:10:0:2::2", "::1-::6", "2001:db8::9-2001:db8::9"},
	}
	flagNames = []string{"SYN", "ACK", "FIN", "RST", "SYN,ACK", "SYN,ACK,FIN,RST"}
)

// TProxyListeners contains the listeners that a trial may open.
var TProxyListeners = []Listener{
	{15001, rules.Owner{UID: 0, GID: 1337}},
	{15006, rules.Owner{UID: 1337, GID: 1337}},
	{9090, rules.Owner{UID: 1000, GID: 0}},
}

// below returns a number from 0 to n-1.
func (g *Generator) below(n int) int { return g.random.IntN(n) }

// oneIn returns true with probability 1/n.
func (g *Generator) oneIn(n int) bool { return g.random.IntN(n) == 0 }

// draw returns one of the values.
func draw[T any](g *Generator, from ...T) T { return from[g.random.IntN(len(from))] }

// maybe returns the word with probability 1/3, and otherwise an empty string.
func (g *Generator) maybe(word string) string {
	if g.oneIn(3) {
		return word
	}
	return ""
}

func (g *Generator) port() string { return draw(g, somePorts...) }

func (g *Generator) portRange(separator string) string {
	first, last := g.port(), g.port()
	var a, b int
	_, _ = fmt.Sscan(first, &a)
	_, _ = fmt.Sscan(last, &b)
	if a > b {
		first, last = last, first
	}
	if a == b {
		return first
	}
	return first + separator + last
}

func (g *Generator) maskedMark() string {
	return draw(g, someMarks...) + "/" + draw(g, someMasks...)
}

// newTrialGenerator returns the generator of a trial. With one seed in four, the generator also
// draws constructs that the model cannot express. With a different one in four, it draws rarely
// used options instead.
func newTrialGenerator(seed uint64) *Generator {
	g := NewGenerator(seed)
	g.OmitUnmodeled = seed%4 != 0
	g.RareOptions = seed%4 == 2
	return g
}

// Ruleset returns a ruleset of one or two programs.
func (g *Generator) Ruleset() Ruleset {
	var rs Ruleset
	g.conntrack = g.oneIn(4)
	switch g.below(10) {
	case 0, 1, 2:
		rs = g.xtables(Legacy)
	case 3, 4:
		rs = g.xtables(IPTablesNFT)
	case 5, 6, 7:
		rs = g.nft()
	case 8:
		rs = append(g.xtables(Legacy), g.nft()...)
	case 9:
		rs = append(g.xtables(IPTablesNFT), g.xtables(Legacy)...)
	}
	return rs
}

// RulesetOf returns a ruleset of one program.
func (g *Generator) RulesetOf(p Program) Ruleset {
	if p == NFT {
		return g.nft()
	}
	return g.xtables(p)
}

// rules draws at least one and at most limit rules.
func (g *Generator) rules(limit int, rule func() Rule) []Rule {
	list := make([]Rule, g.below(limit)+1)
	for i := range list {
		list[i] = rule()
	}
	return list
}

// Mutate returns the ruleset with a small change to one chain: it adds a rule, exchanges two rules,
// or removes a rule or a term of a rule. It returns an equal ruleset if the chain has no rules and
// gets no new rule.
func (g *Generator) Mutate(rs Ruleset) Ruleset {
	rs = rs.clone()
	t := &rs[g.below(len(rs))]
	c := &t.Chains[g.below(len(t.Chains))]
	other := g.RulesetOf(t.Program)
	var newRules []Rule
	for _, table := range other {
		for _, chain := range table.Chains {
			if table.Family == t.Family && table.Name == t.Name {
				newRules = append(newRules, chain.Rules...)
			}
		}
	}
	switch {
	case len(newRules) > 0 && g.oneIn(3):
		c.Rules = slices.Insert(c.Rules, g.below(len(c.Rules)+1), draw(g, newRules...))
	case len(c.Rules) > 1 && g.oneIn(3):
		i := g.below(len(c.Rules) - 1)
		c.Rules[i], c.Rules[i+1] = c.Rules[i+1], c.Rules[i]
	case len(c.Rules) > 0:
		i := g.below(len(c.Rules))
		if r := c.Rules[i]; len(r) > 1 && g.oneIn(2) {
			j := g.below(len(r))
			c.Rules[i] = slices.Delete(r, j, j+1)
		} else {
			c.Rules = slices.Delete(c.Rules, i, i+1)
		}
	}
	return rs
}

func (rs Ruleset) clone() Ruleset {
	rs = slices.Clone(rs)
	for i := range rs {
		rs[i].Chains = slices.Clone(rs[i].Chains)
		for j := range rs[i].Chains {
			c := &rs[i].Chains[j]
			c.Rules = slices.Clone(c.Rules)
			for k := range c.Rules {
				c.Rules[k] = slices.Clone(c.Rules[k])
			}
		}
	}
	return rs
}

// Has reports whether the input of the programs contains the text.
func (rs Ruleset) Has(text string) bool { return strings.Contains(rs.String(), text) }

// Packets returns packets that do not affect each other's connections, so that they can be observed
// one after the other. The network cannot send some of them; see [Network.CheckSendable].
func (g *Generator) Packets(n *Network, count int) []rules.Packet {
	var packets []rules.Packet
	used := usedPorts{}
	for len(packets) < count {
		p := g.packet()
		if n.Complete(&p); used.add(&p) {
			packets = append(packets, p)
		}
	}
	return packets
}

// usedPorts contains the ports of packets. Packets of different connections do not interact if no
// source port occurs twice, and no source port is also a destination port, as in a reply. This is
// also true if rules translate destinations.
type usedPorts map[string]bool

// add adds the packet, unless it may interact with an earlier packet. It reports whether it has
// added the packet.
func (m usedPorts) add(p *rules.Packet) bool {
	switch p.Protocol {
	case rules.ICMP, rules.ICMPv6:
		return true // each ICMP packet has its own identifier
	case rules.TCP, rules.UDP:
	default:
		// A connection of another protocol has no ports, and rules may change its addresses. Allow
		// one packet of each protocol.
		key := fmt.Sprint(p.Family(), p.Protocol)
		if m[key] {
			return false
		}
		m[key] = true
		return true
	}
	key := func(side string, port uint16) string {
		return fmt.Sprint(p.Family(), p.Protocol, side, port)
	}
	from, to := p.Source.Port(), p.Destination.Port()
	if p.Reply {
		from, to = to, from // the ports of the first packet of the connection
	}
	if m[key("from", from)] || m[key("from", to)] || m[key("to", from)] {
		return false
	}
	m[key("from", from)], m[key("to", to)] = true, true
	return true
}

// packet draws a packet.
func (g *Generator) packet() rules.Packet {
	family := draw(g, rules.IPv4, rules.IPv4, rules.IPv6)
	p := rules.Packet{Hook: draw(g, rules.Output, rules.Prerouting)}
	p.Protocol = draw(g, rules.TCP, rules.TCP, rules.TCP, rules.UDP, rules.UDP, rules.ICMP,
		draw(g, unknownProtocols...))
	if p.Protocol == rules.ICMP && family == rules.IPv6 {
		p.Protocol = rules.ICMPv6
	}
	addr := func() netip.Addr {
		for {
			a := netip.MustParseAddr(draw(g, packetAddrs[family]...))
			// A packet from another host cannot have a loopback address.
			if p.Hook == rules.Prerouting && a.IsLoopback() {
				continue
			}
			return a
		}
	}
	from, to := addr(), addr()
	for from == to {
		to = addr()
	}
	var fromPort, toPort uint16
	if p.Protocol == rules.TCP || p.Protocol == rules.UDP {
		toPort = draw(g, packetPorts...)
		fromPort = uint16(20000 + g.below(10000))
		if g.oneIn(4) {
			fromPort = draw(g, packetPorts...)
		}
	}
	p.Source, p.Destination = netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort)
	if p.Hook == rules.Output {
		p.Owner = &rules.Owner{UID: draw(g, packetIDs...), GID: draw(g, packetIDs...)}
	} else {
		p.InInterface = draw(g, "eth0", "eth0", "eth1", "eth2")
	}
	if g.oneIn(3) {
		p.Mark = draw(g, packetMarks...)
	}
	g.drawState(&p)
	p.TransparentSender = p.Hook == rules.Output && g.oneIn(6)
	if p.Hook == rules.Output && from.Is4() && g.oneIn(12) {
		p.Bound, p.OutInterface = true, draw(g, "eth0", "eth1")
	}
	if p.Hook == rules.Output && g.oneIn(6) && !from.IsLoopback() && to != netip.IPv6Loopback() &&
		!isUntrackedOrUnknownICMPv6(&p) {
		// Send the packet without a socket, as an untracked copy (see [observerTables]).
		p.Owner, p.State, p.Status, p.ConntrackMark, p.Reply = nil, rules.Untracked, 0, 0, false
		p.Bound, p.TransparentSender = false, false
	}
	return p
}

// The values in packets. They are the values in rules, and values next to them.
var (
	packetAddrs = map[rules.Family][]string{
		rules.IPv4: append([]string{"10.0.2.0", "11.0.0.1", "192.0.2.129"},
			someAddrs[rules.IPv4]...),
		rules.IPv6: append([]string{"fe00::1", "2001:db9::1", "fe80::9"}, someAddrs[rules.IPv6]...),
	}
	packetPorts = []uint16{52, 53, 54, 80, 80, 81, 443, 9090, 15001, 15006, 15007, 1, 65533}
	packetIDs   = []uint32{0, 1000, 1337, 999, 1338}
	packetMarks = []uint32{0, 1, 5, 7, 0x100, 0x539, 0x10000, 0xffffffff}
)

// drawState draws the state of the packet, and the fields that depend on the state. Packets of an
// existing connection are TCP, UDP or ICMP errors.
func (g *Generator) drawState(p *rules.Packet) {
	hasPorts := p.Protocol == rules.TCP || p.Protocol == rules.UDP
	switch n := g.below(10); {
	case n < 2 && hasPorts:
		p.State, p.Status, p.Reply = rules.Established, EstablishedStatus, g.oneIn(2)
		p.ConntrackMark = draw(g, packetMarks...)
		if p.Protocol == rules.TCP {
			p.Flags = draw(g, rules.ACK, rules.ACK|rules.PSH)
		}
		return
	case n == 2 && hasPorts:
		// The packet is the first packet of the connection, sent again.
		if p.Protocol == rules.TCP {
			p.Flags = rules.SYN
		}
		p.State, p.Status = rules.New, rules.StatusConfirmed
		p.ConntrackMark = draw(g, packetMarks...)
		return
	case n < 6 && p.Protocol == rules.ICMP:
		p.ICMPType, p.ICMPCode = draw[uint8](g, 3, 3, 11), draw[uint8](g, 0, 1)
		g.drawRelated(p)
		return
	case n < 6 && p.Protocol == rules.ICMPv6:
		p.ICMPType, p.ICMPCode = draw[uint8](g, 1, 3), draw[uint8](g, 0, 1)
		g.drawRelated(p)
		return
	}
	switch p.Protocol {
	case rules.TCP:
		p.Flags = draw(g, rules.SYN, rules.SYN, rules.SYN, rules.SYN, rules.ACK, rules.RST,
			rules.FIN, rules.SYN|rules.ACK)
	case rules.ICMP:
		p.ICMPType = draw[uint8](g, 8, 8, 0)
	case rules.ICMPv6:
		p.ICMPType = draw[uint8](g, 128, 128, 129, 135)
	}
	p.State = InitialState(p)
}

// drawRelated makes the packet an ICMP error about a connection.
func (g *Generator) drawRelated(p *rules.Packet) {
	p.State, p.Status, p.Reply = rules.Related, RelatedStatus, g.oneIn(2)
	p.ConntrackMark = draw(g, packetMarks...)
}

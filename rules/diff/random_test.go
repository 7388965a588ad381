package diff_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
)

// Fields of random rules and packets have few possible values, so that many packets match.
var (
	someAddrs = map[rules.Family][]netip.Addr{
		rules.IPv4: addrs("10.0.0.1", "10.1.2.3", "10.244.1.5", "127.0.0.1", "127.0.0.6",
			"192.0.2.9", "224.0.0.1", "0.0.0.0", "255.255.255.255"),
		rules.IPv6: addrs("fd00::1", "fd00:1::2", "::1", "::6", "2001:db8::9", "ff02::1", "::",
			"::ffff:10.1.2.3"),
	}
	someRanges = map[rules.Family][]netipx.IPRange{
		rules.IPv4: ranges("10.0.0.0/8", "10.1.0.0/16", "127.0.0.1/32", "127.0.0.0/8", "0.0.0.0/0",
			"192.0.2.0/25"),
		rules.IPv6: ranges("fd00::/16", "::1/128", "::/0", "2001:db8::/64", "::ffff:0:0/96"),
	}
	somePorts  = []uint16{0, 53, 80, 443, 15001, 15006, 65535}
	someIDs    = []uint32{0, 1000, 1337, 5000, 4294967295}
	someMarks  = []uint32{0, 1, 2, 0x539, 0x53a, 0x100, 0xffffffff}
	someMasks  = []uint32{0xffffffff, 0xffffffff, 1, 0xff, 0x100, 0xffff0000, 0}
	someNames  = []string{"lo", "eth0", "eth1", "net1", "veth"}
	someFlags  = []rules.TCPFlags{0, rules.SYN, rules.ACK, rules.SYN | rules.ACK, rules.RST, 0xff}
	protocols  = []rules.Protocol{rules.TCP, rules.UDP, rules.ICMP, rules.SCTP}
	priorities = []int{-310, -300, -200, -150, -100, 0}
)

func addrs(texts ...string) []netip.Addr {
	list := make([]netip.Addr, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParseAddr(text)
	}
	return list
}

func ranges(texts ...string) []netipx.IPRange {
	list := make([]netipx.IPRange, len(texts))
	for i, text := range texts {
		list[i] = netipx.RangeOfPrefix(netip.MustParsePrefix(text))
	}
	return list
}

// A generator returns a random number from 0 to n-1.
type generator func(label string, n int) int

// shrinkable returns a generator that prefers small numbers. Rapid can shrink the inputs of a
// failed test.
func shrinkable(t *rapid.T) generator {
	return func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(t, label) }
}

// uniform returns a generator with a uniform distribution.
func uniform(t *rapid.T) generator {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	return func(_ string, n int) int { return random.IntN(n) }
}

func pick[T any](g generator, label string, from ...T) T { return from[g(label, len(from))] }

func (g generator) yes(label string) bool { return g(label, 2) == 1 }

// number returns a random number from 0 to maximum.
func (g generator) number(label string, maximum int) int { return g(label, maximum+1) }

func (g generator) ids() []rules.IDRange {
	first, second := pick(g, "id", someIDs...), pick(g, "id", someIDs...)
	if g.yes("range") && first < second {
		return []rules.IDRange{{First: first, Last: second}}
	}
	return rules.Singles(first, second)
}

func (g generator) ports() []rules.PortRange {
	first, second := pick(g, "port", somePorts...), pick(g, "port", somePorts...)
	if g.yes("range") && first < second {
		return []rules.PortRange{{First: first, Last: second}}
	}
	return rules.Singles(first, second)
}

func (g generator) match() rules.Match {
	not := g.yes("not")
	side := pick(g, "side", rules.Source, rules.Destination)
	switch g.number("match", 11) {
	case 0:
		return rules.MatchFamily{Family: pick(g, "family", rules.IPv4, rules.IPv6, rules.Inet)}
	case 1, 2:
		family := pick(g, "family", rules.IPv4, rules.IPv4, rules.IPv6)
		chosen := []netipx.IPRange{
			pick(g, "range", someRanges[family]...), pick(g, "range", someRanges[family]...),
		}
		return rules.MatchAddr{Side: side, Not: not, Ranges: rules.NormalizeAddrs(chosen)}
	case 3:
		return rules.MatchProtocol{
			Not: not, Protocols: []rules.Protocol{pick(g, "protocol", protocols...)},
		}
	case 4, 5:
		return rules.MatchPort{Side: side, Not: not, Ports: g.ports()}
	case 6:
		return rules.MatchTCPFlags{
			Not: not, Mask: pick(g, "mask", someFlags...), Value: pick(g, "flags", someFlags...),
		}
	case 7:
		return rules.MatchOwner{
			Group: g.yes("group"), Not: not, IDs: g.ids(), Socketless: g.yes("socketless"),
		}
	case 8:
		return rules.MatchMark{
			Conntrack: g.yes("conntrack"), Not: not, Value: pick(g, "mark", someMarks...),
			Mask: pick(g, "mask", someMasks...),
		}
	case 9:
		return rules.MatchState{Not: not, States: rules.StateSet(g.number("states", 31))}
	case 10:
		if g.number("unknown", 9) == 0 {
			return rules.Unknown{
				Text: fmt.Sprint("xt strange ", g.number("unknown", 2)), Effect: rules.Reads,
			}
		}
	case 11:
		if g.yes("socket") {
			return rules.MatchSocket{Kind: pick(g, "kind", rules.NFTSocket, "")}
		}
	}
	name := rules.InterfaceName{
		Name: pick(g, "name", "lo", "eth0", "eth", "l", "net1"), Prefix: g.yes("prefix"),
	}
	return rules.MatchInterface{Out: g.yes("out"), Not: not, Names: []rules.InterfaceName{name}}
}

func (g generator) action(chains int) rules.Action {
	port := pick(g, "to", uint16(15001), 15006)
	value, mask := pick(g, "mark", someMarks...), pick(g, "mask", someMasks...)
	switch g.number("action", 15) {
	case 0, 1:
		return rules.Accept
	case 2:
		return rules.Drop
	case 3:
		return rules.Return
	case 4, 5:
		return rules.Jump{Chain: fmt.Sprint("c", g.number("chain", chains)), Goto: g.yes("goto")}
	case 6, 7:
		return rules.RedirectTo{Port: port}
	case 8:
		return rules.DNATPort{Port: port}
	case 9:
		return rules.TProxy{Port: port}
	case 10:
		return rules.TProxyDrop{Port: port, Value: value, Mask: mask}
	case 11:
		return rules.SetMark{Value: value, Mask: mask}
	case 12:
		return rules.SaveMark{}
	case 13:
		return rules.RestoreMark{}
	case 14:
		return rules.SetZone{Zone: uint16(g.number("zone", 2))}
	}
	if g.number("unknown", 9) == 0 {
		return rules.Unknown{Text: "xt odd"}
	}
	return rules.Count{}
}

func (g generator) rules(chains int) []rules.Rule {
	list := make([]rules.Rule, g.number("rules", 6))
	for i := range list {
		for range g.number("matches", 3) {
			list[i].Matches = append(list[i].Matches, g.match())
		}
		for range g.number("actions", 2) + 1 {
			list[i].Actions = append(list[i].Actions, g.action(chains))
		}
		if i > 0 && g.yes("same action") {
			list[i].Actions = list[i-1].Actions
		}
	}
	return list
}

// ruleset generates two tables with base chains at equal and different priorities, and chains for
// the rules to jump to. A jump may name a chain that does not exist.
func (g generator) ruleset() rules.Ruleset {
	var rs rules.Ruleset
	for _, name := range []string{"a", "b"} {
		t := rules.Table{Family: pick(g, "table", rules.Inet, rules.IPv4, rules.IPv6), Name: name}
		chains := g.number("chains", 3)
		for i := range chains {
			t.Chains = append(t.Chains, rules.Chain{
				Name: fmt.Sprint("c", i), Rules: g.rules(chains),
			})
		}
		for i := range g.number("base chains", 3) + 1 {
			t.Chains = append(t.Chains, rules.Chain{
				Name: fmt.Sprint("base", i),
				Base: &rules.Base{
					Type:     pick(g, "type", rules.Filter, rules.NAT, rules.Route),
					Hook:     pick(g, "hook", rules.Output, rules.Prerouting),
					Priority: pick(g, "priority", priorities...), Order: g.number("order", 1),
					Drop: g.number("policy", 5) == 0,
				},
				Rules: g.rules(chains),
			})
		}
		rs.Tables = append(rs.Tables, t)
	}
	if g.yes("policy route") {
		rs.Routing.Policies = []rules.PolicyRoute{{
			Family: rules.IPv4, Mark: pick(g, "mark", someMarks...), Table: 133, Priority: 133,
		}}
	}
	return rs
}

// packet generates a packet, which may be impossible (see diff.Possible).
func (g generator) packet() rules.Packet {
	family := pick(g, "family", rules.IPv4, rules.IPv4, rules.IPv6)
	p := rules.Packet{
		Hook:     pick(g, "hook", rules.Output, rules.Prerouting),
		Protocol: pick(g, "protocol", protocols...),
		Mark:     pick(g, "mark", someMarks...), State: rules.State(g.number("state", 4)),
		NoListener: g.yes("no listener"),
	}
	if g.number("missing listener", 3) == 3 {
		p.MissingListeners = pick(g, "missing listeners", rules.ListenerSet("15001"), "15006")
	}
	var sourcePort, destinationPort uint16
	if p.Protocol == rules.TCP || p.Protocol == rules.UDP {
		sourcePort, destinationPort = pick(g, "port", somePorts...), pick(g, "port", somePorts...)
	}
	if p.Protocol == rules.TCP {
		p.Flags = pick(g, "flags", someFlags...)
	}
	p.Source = netip.AddrPortFrom(pick(g, "source", someAddrs[family]...), sourcePort)
	p.Destination = netip.AddrPortFrom(pick(g, "destination", someAddrs[family]...),
		destinationPort)
	if p.State.HasConnection() {
		p.ConntrackMark = pick(g, "connection mark", someMarks...)
	}
	name := pick(g, "interface", someNames...)
	p.TransparentSocket = g.yes("transparent socket")
	if p.Hook == rules.Prerouting {
		p.InInterface = name
		return p
	}
	p.OutInterface, p.TransparentSender = name, g.yes("transparent sender")
	if g.yes("socket") {
		p.Owner = &rules.Owner{UID: pick(g, "uid", someIDs...), GID: pick(g, "gid", someIDs...)}
	}
	return p
}

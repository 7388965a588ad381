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

// A dice returns a random number from 0 to n-1.
type dice func(label string, n int) int

// shrinkable returns a dice that prefers small numbers; rapid can shrink the inputs of a failed
// test.
func shrinkable(t *rapid.T) dice {
	return func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(t, label) }
}

// fair returns a dice with a uniform distribution.
func fair(t *rapid.T) dice {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	return func(_ string, n int) int { return random.IntN(n) }
}

func pick[T any](d dice, label string, from ...T) T { return from[d(label, len(from))] }

func (d dice) yes(label string) bool { return d(label, 2) == 1 }

// number returns a random number from 0 to maximum.
func (d dice) number(label string, maximum int) int { return d(label, maximum+1) }

func (d dice) ids() []rules.IDRange {
	first, second := pick(d, "id", someIDs...), pick(d, "id", someIDs...)
	if d.yes("range") && first < second {
		return []rules.IDRange{{First: first, Last: second}}
	}
	return rules.Singles(first, second)
}

func (d dice) ports() []rules.PortRange {
	first, second := pick(d, "port", somePorts...), pick(d, "port", somePorts...)
	if d.yes("range") && first < second {
		return []rules.PortRange{{First: first, Last: second}}
	}
	return rules.Singles(first, second)
}

func (d dice) match() rules.Match {
	not := d.yes("not")
	side := pick(d, "side", rules.Source, rules.Destination)
	switch d.number("match", 11) {
	case 0:
		return rules.MatchFamily{Family: pick(d, "family", rules.IPv4, rules.IPv6, rules.Inet)}
	case 1, 2:
		family := pick(d, "family", rules.IPv4, rules.IPv4, rules.IPv6)
		chosen := []netipx.IPRange{
			pick(d, "range", someRanges[family]...), pick(d, "range", someRanges[family]...),
		}
		return rules.MatchAddr{Side: side, Not: not, Ranges: rules.NormalizeAddrs(chosen)}
	case 3:
		return rules.MatchProtocol{
			Not: not, Protocols: []rules.Protocol{pick(d, "protocol", protocols...)},
		}
	case 4, 5:
		return rules.MatchPort{Side: side, Not: not, Ports: d.ports()}
	case 6:
		return rules.MatchTCPFlags{
			Not: not, Mask: pick(d, "mask", someFlags...), Value: pick(d, "flags", someFlags...),
		}
	case 7:
		return rules.MatchOwner{
			Group: d.yes("group"), Not: not, IDs: d.ids(), Socketless: d.yes("socketless"),
		}
	case 8:
		return rules.MatchMark{
			Conntrack: d.yes("conntrack"), Not: not, Value: pick(d, "mark", someMarks...),
			Mask: pick(d, "mask", someMasks...),
		}
	case 9:
		return rules.MatchState{Not: not, States: rules.StateSet(d.number("states", 31))}
	case 10:
		if d.number("unknown", 9) == 0 {
			return rules.Unknown{
				Text: fmt.Sprint("xt strange ", d.number("unknown", 2)), Effect: rules.Reads,
			}
		}
	case 11:
		if d.yes("socket") {
			return rules.MatchSocket{Kind: pick(d, "kind", rules.NFTSocket, "")}
		}
	}
	name := rules.InterfaceName{
		Name: pick(d, "name", "lo", "eth0", "eth", "l", "net1"), Prefix: d.yes("prefix"),
	}
	return rules.MatchInterface{Out: d.yes("out"), Not: not, Names: []rules.InterfaceName{name}}
}

func (d dice) action(chains int) rules.Action {
	port := pick(d, "to", uint16(15001), 15006)
	value, mask := pick(d, "mark", someMarks...), pick(d, "mask", someMasks...)
	switch d.number("action", 15) {
	case 0, 1:
		return rules.Accept
	case 2:
		return rules.Drop
	case 3:
		return rules.Return
	case 4, 5:
		return rules.Jump{Chain: fmt.Sprint("c", d.number("chain", chains)), Goto: d.yes("goto")}
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
		return rules.SetZone{Zone: uint16(d.number("zone", 2))}
	}
	if d.number("unknown", 9) == 0 {
		return rules.Unknown{Text: "xt odd"}
	}
	return rules.Count{}
}

func (d dice) rules(chains int) []rules.Rule {
	list := make([]rules.Rule, d.number("rules", 6))
	for i := range list {
		for range d.number("matches", 3) {
			list[i].Matches = append(list[i].Matches, d.match())
		}
		for range d.number("actions", 2) + 1 {
			list[i].Actions = append(list[i].Actions, d.action(chains))
		}
		if i > 0 && d.yes("same action") {
			list[i].Actions = list[i-1].Actions
		}
	}
	return list
}

// ruleset draws two tables with base chains at equal and different priorities, and chains for the
// rules to jump to. A jump may name a chain that does not exist.
func (d dice) ruleset() rules.Ruleset {
	var rs rules.Ruleset
	for _, name := range []string{"a", "b"} {
		t := rules.Table{Family: pick(d, "table", rules.Inet, rules.IPv4, rules.IPv6), Name: name}
		chains := d.number("chains", 3)
		for i := range chains {
			t.Chains = append(t.Chains, rules.Chain{
				Name: fmt.Sprint("c", i), Rules: d.rules(chains),
			})
		}
		for i := range d.number("base chains", 3) + 1 {
			t.Chains = append(t.Chains, rules.Chain{
				Name: fmt.Sprint("base", i),
				Base: &rules.Base{
					Type:     pick(d, "type", rules.Filter, rules.NAT, rules.Route),
					Hook:     pick(d, "hook", rules.Output, rules.Prerouting),
					Priority: pick(d, "priority", priorities...), Order: d.number("order", 1),
					Drop: d.number("policy", 5) == 0,
				},
				Rules: d.rules(chains),
			})
		}
		rs.Tables = append(rs.Tables, t)
	}
	if d.yes("policy route") {
		rs.Routing.Policies = []rules.PolicyRoute{{
			Family: rules.IPv4, Mark: pick(d, "mark", someMarks...), Table: 133, Priority: 133,
		}}
	}
	return rs
}

// packet draws a packet, which may be impossible (see diff.Possible).
func (d dice) packet() rules.Packet {
	family := pick(d, "family", rules.IPv4, rules.IPv4, rules.IPv6)
	p := rules.Packet{
		Hook:     pick(d, "hook", rules.Output, rules.Prerouting),
		Protocol: pick(d, "protocol", protocols...),
		Mark:     pick(d, "mark", someMarks...), State: rules.State(d.number("state", 4)),
		NoListener: d.yes("no listener"),
	}
	if d.number("missing listener", 3) == 3 {
		p.MissingListeners = pick(d, "missing listeners", rules.ListenerSet("15001"), "15006")
	}
	var sourcePort, destinationPort uint16
	if p.Protocol == rules.TCP || p.Protocol == rules.UDP {
		sourcePort, destinationPort = pick(d, "port", somePorts...), pick(d, "port", somePorts...)
	}
	if p.Protocol == rules.TCP {
		p.Flags = pick(d, "flags", someFlags...)
	}
	p.Source = netip.AddrPortFrom(pick(d, "source", someAddrs[family]...), sourcePort)
	p.Destination = netip.AddrPortFrom(pick(d, "destination", someAddrs[family]...),
		destinationPort)
	if p.State.HasConnection() {
		p.ConntrackMark = pick(d, "connection mark", someMarks...)
	}
	name := pick(d, "interface", someNames...)
	p.TransparentSocket = d.yes("transparent socket")
	if p.Hook == rules.Prerouting {
		p.InInterface = name
		return p
	}
	p.OutInterface, p.TransparentSender = name, d.yes("transparent sender")
	if d.yes("socket") {
		p.Owner = &rules.Owner{UID: pick(d, "uid", someIDs...), GID: pick(d, "gid", someIDs...)}
	}
	return p
}

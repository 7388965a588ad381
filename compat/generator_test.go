package compat_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
)

// A generator draws from few values, so that rules and packets often match.
type generator struct{ *rapid.T }

// pick draws one of the values. The label names the draw in the output of rapid.
func pick[T any](g generator, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(g.T, label)
}

// some draws a list with minLen to maxLen of the values, possibly repeated.
func some[T any](g generator, label string, minLen, maxLen int, from ...T) []T {
	return rapid.SliceOfN(rapid.SampledFrom(from), minLen, maxLen).Draw(g.T, label)
}

func (g generator) yes(label string) bool { return rapid.Bool().Draw(g.T, label) }

// number draws a number from 0 to last.
func (g generator) number(label string, last int) int {
	return rapid.IntRange(0, last).Draw(g.T, label)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func prefixList(texts string) []netip.Prefix { return must(rules.ParsePrefixes(texts)) }

func portRanges(texts string) []rules.PortRange { return must(rules.ParsePorts(texts)) }

func idRanges(texts string) []rules.IDRange { return must(rules.ParseIDs(texts, nil)) }

func interfaceNames(texts string) []rules.InterfaceName {
	return must(rules.ParseInterfaces(texts))
}

// redirect draws valid parameters.
func (g generator) redirect() rules.Redirect {
	somePorts := portRanges("0,1,53,80,443,15001,15006,15008,15053,80-8080,9000-9001,65535")
	if g.yes("all ports at all") {
		somePorts = append(somePorts, portRanges("0-65535")...)
	}
	someIDs := idRanges("0,1,1337,1338,202,1337-1339,0-5000,4294967294")
	somePrefixes := prefixList("10.0.0.0/8,10.1.2.3/16,10.96.0.10/32,127.0.0.1/32,127.0.0.2/8,0.0.0.0/0,::ffff:10.0.0.0/104," +
		"fd00::/8,fd00:10:96::a/128,::1/128,::/0")
	someNames := interfaceNames("eth0,eth1,eth+,lo,net1,fifteen-letters")

	r := rules.DefaultRedirect()
	r.Mode = pick(g, "mode", rules.ModeRedirect, rules.ModeTProxy)
	r.TunnelPort = pick(g, "tunnel port", uint16(15008), 53, 80, 443)
	r.ProxyUIDs, r.ProxyGIDs = some(g, "uids", 1, 3, someIDs...), some(g, "gids", 1, 3, someIDs...)
	r.TProxyMark = pick(g, "mark", uint32(1337), 1, 1339, 1<<32-1)
	if r.InboundPorts.All = g.yes("all inbound"); !r.InboundPorts.All {
		r.InboundPorts.Ports = some(g, "inbound", 0, 20, somePorts...)
	}
	r.InboundExcludePorts = some(g, "inbound exclude", 0, 3, somePorts...)
	if r.OutboundCIDRs.All = g.yes("all outbound"); !r.OutboundCIDRs.All {
		r.OutboundCIDRs.Prefixes = some(g, "outbound", 0, 4, somePrefixes...)
	}
	r.OutboundExcludeCIDRs = some(g, "outbound exclude", 0, 3, somePrefixes...)
	r.OutboundPorts = some(g, "outbound ports", 0, 3, somePorts...)
	r.OutboundExcludePorts = some(g, "outbound exclude ports", 0, 20, somePorts...)
	if r.OwnerGroups.All = g.yes("all groups"); !r.OwnerGroups.All {
		r.OwnerGroups.IDs = some(g, "groups", 0, 3, someIDs...)
	}
	r.OwnerGroupsExclude = some(g, "groups exclude", 0, 3, someIDs...)
	r.ExcludeInterfaces, r.RerouteInterfaces = some(g, "interfaces", 0, 3, someNames...),
		some(g, "rerouted", 0, 3, someNames...)
	r.LoopbackCIDR = pick(g, "loopback", rules.DefaultLoopbackCIDR(),
		netip.MustParsePrefix("127.0.0.1/8"))
	r.DNS.Capture, r.DNS.All = g.yes("DNS"), g.yes("all DNS")
	for _, p := range some(g, "servers", 0, 3, somePrefixes...) {
		r.DNS.Servers = append(r.DNS.Servers, p.Addr().Unmap())
	}
	r.Counters = g.yes("counters")
	r.DropInvalid, r.IPv6, r.KeepEstablished = g.yes("drop invalid"), g.yes("IPv6"),
		g.yes("keep established")
	for _, deviation := range rules.Deviations {
		if g.yes("without " + string(deviation.ID)) {
			r.Without = append(r.Without, deviation.ID)
		}
	}
	if err := r.Validate(); err != nil {
		g.Fatalf("generator: %v", err)
	}
	return r
}

// anyPacket draws a packet from the values of the rulesets and from some other values.
func anyPacket(r *rand.Rand) rules.Packet {
	addrs := []string{
		"10.1.2.3", "10.96.0.10", "11.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.6", "192.0.2.1",
	}
	if r.IntN(2) == 0 {
		addrs = []string{
			"fd00::1", "fd02:8000::1", "fd00:10:96::a", "::1", "::6", "2001:db8::1",
			"::ffff:10.1.2.3",
		}
	}
	draw := func(n ...uint32) uint32 { return n[r.IntN(len(n))] }
	p := rules.Packet{
		Hook: rules.Prerouting, Protocol: rules.Protocol(draw(6, 6, 17, 1, 132)),
		State: rules.State(r.IntN(5)), NoListener: r.IntN(2) == 0,
		Mark:          draw(0, 1, 2, 3, 1337, 1338, 1339, 1<<32-1),
		ConntrackMark: draw(0, 1, 2, 3, 1337, 1338),
	}
	port := func() uint16 {
		return uint16(draw(0, 1, 2, 8, 53, 80, 81, 90, 443, 8081, 15006, 15008, 15053, 40000, 65535))
	}
	if p.Protocol != rules.TCP && p.Protocol != rules.UDP {
		port = func() uint16 { return 0 }
	}
	if p.Protocol == rules.TCP {
		p.Flags = []rules.TCPFlags{
			rules.SYN, rules.ACK, rules.SYN | rules.ACK, rules.RST,
		}[r.IntN(4)]
	}
	if p.State == rules.Invalid || p.State == rules.Untracked {
		p.ConntrackMark = 0
	}
	p.Source = netip.AddrPortFrom(netip.MustParseAddr(addrs[r.IntN(len(addrs))]), port())
	p.Destination = netip.AddrPortFrom(netip.MustParseAddr(addrs[r.IntN(len(addrs))]), port())
	p.InInterface = []string{"lo", "eth0", "eth1", "eth7", "net1", "other"}[r.IntN(6)]
	if r.IntN(2) == 0 {
		p.Hook, p.OutInterface, p.InInterface = rules.Output, p.InInterface, ""
		if r.IntN(8) > 0 {
			p.Owner = &rules.Owner{
				UID: draw(0, 1, 202, 1337, 1338, 1339, 5000, 7000),
				GID: draw(0, 1, 202, 1337, 1338, 5000, 7000),
			}
		}
	}
	return p
}

// ruleset draws rules with the matches and actions that Compile uses, in any combination.
func (g generator) ruleset() rules.Ruleset {
	t := rules.Table{Family: pick(g, "family", rules.Inet, rules.IPv4, rules.IPv6), Name: "any"}
	for _, base := range []rules.Base{
		{Type: rules.Filter, Hook: rules.Prerouting, Priority: rules.RawPriority},
		{Type: rules.Filter, Hook: rules.Output, Priority: rules.RawPriority},
		{Type: rules.Filter, Hook: rules.Prerouting, Priority: rules.ManglePriority},
		{
			Type: pick(g, "type", rules.Route, rules.Route, rules.Filter), Hook: rules.Output,
			Priority: rules.ManglePriority,
		},
		{Type: rules.NAT, Hook: rules.Prerouting, Priority: rules.NATPriority},
		{Type: rules.NAT, Hook: rules.Output, Priority: rules.NATPriority},
	} {
		if g.number("base chain", 2) > 0 {
			continue
		}
		name := fmt.Sprint("b", len(t.Chains))
		first := len(t.Chains)
		t.Chains = append(t.Chains, rules.Chain{Name: name, Base: &base})
		for range g.number("chains", 2) {
			t.Chains = append(t.Chains,
				rules.Chain{Name: fmt.Sprintf("%s-%d", name, len(t.Chains))})
		}
		for i := first; i < len(t.Chains); i++ {
			t.Chains[i].Rules = g.rules(base, t.Chains[i+1:])
		}
	}
	rs := rules.Ruleset{Tables: []rules.Table{t}}
	if g.yes("policy route") {
		rs.Routing.Policies = []rules.PolicyRoute{{
			Family: rules.IPv4, Mark: 1, Table: 133, Priority: 133,
		}}
	}
	return rs
}

// rules draws the rules of a chain at the hook of base. The rules may jump to the chains in others.
func (g generator) rules(base rules.Base, others []rules.Chain) []rules.Rule {
	var list []rules.Rule
	for range g.number("rules", 5) {
		var r rules.Rule
		for range g.number("matches", 3) {
			if m := g.match(); m != nil {
				if _, owner := m.(rules.MatchOwner); !owner || base.Hook == rules.Output {
					r.Matches = append(r.Matches, m)
				}
				// The backend rejects matches of ports for other protocols, such as SCTP.
				if _, port := m.(rules.MatchPort); port {
					r.Matches = append(r.Matches, rules.MatchProtocol{
						Protocols: pick(g, "protocols with ports", []rules.Protocol{rules.TCP},
							[]rules.Protocol{rules.UDP}, []rules.Protocol{rules.TCP, rules.UDP}),
					})
				}
			}
		}
		for range g.number("actions before", 2) {
			r.Actions = append(r.Actions,
				pick[rules.Action](g, "action", rules.Count{}, rules.SaveMark{}, rules.SetMark{
					Value: 1, Mask: 1,
				},
					rules.SetMark{Value: 2, Mask: 3}))
		}
		extra, final := g.final(base, others)
		r.Matches, r.Actions = append(r.Matches, extra...), append(r.Actions, final...)
		rules.SortMatches(r.Matches)
		list = append(list, r)
		if slices.Contains(r.Actions, rules.Action(rules.TProxy{Port: 15006})) {
			list = append(list, rules.Rule{Matches: r.Matches, Actions: []rules.Action{rules.Drop}})
		}
	}
	return list
}

// final draws the actions at the end of a rule, and the matches that they require.
func (g generator) final(base rules.Base, others []rules.Chain) ([]rules.Match, []rules.Action) {
	if len(others) > 0 && g.number("jump", 2) == 0 {
		return nil, []rules.Action{rules.Jump{
			Chain: others[g.number("chain", len(others)-1)].Name, Goto: g.yes("goto"),
		}}
	}
	protocol := []rules.Match{rules.MatchProtocol{Protocols: some(g, "protocols", 1, 1, rules.TCP,
		rules.UDP)}}
	switch {
	case base.Type == rules.NAT && g.yes("NAT"):
		return protocol, []rules.Action{pick[rules.Action](g, "to", rules.RedirectTo{Port: 15001},
			rules.DNATPort{Port: 15002})}
	case base.Priority == rules.RawPriority && g.yes("zone"):
		return nil, []rules.Action{rules.SetZone{Zone: uint16(g.number("zone", 2))}}
	case base.Type == rules.Filter && base.Hook == rules.Prerouting &&
		base.Priority == rules.ManglePriority && g.yes("tproxy"):
		return protocol, []rules.Action{
			rules.TProxy{Port: 15006}, rules.SetMark{Value: 1, Mask: 1}, rules.Accept,
		}
	case base.Type != rules.NAT && g.yes("drop"):
		return nil, []rules.Action{rules.Drop}
	}
	return nil, [][]rules.Action{
		{rules.Accept}, {rules.Return}, {rules.RestoreMark{}}, nil,
	}[g.number("end", 3)]
}

func (g generator) match() rules.Match {
	not := g.yes("not")
	side := pick(g, "side", rules.Source, rules.Destination)
	switch g.number("match", 8) {
	case 0:
		return rules.MatchFamily{Family: pick(g, "family", rules.IPv4, rules.IPv6, rules.Inet)}
	case 1:
		texts := pick(g, "family", "10.0.0.0/8,10.1.0.0/16,127.0.0.1/32,0.0.0.0/0",
			"fd00::/16,::1/128,fd02::/17")
		list := some(g, "prefixes", 1, 3, prefixList(texts)...)
		return rules.MatchAddr{Side: side, Not: not, Ranges: rules.AddrRanges(list)}
	case 2:
		list := some(g, "protocols", 1, 3, rules.TCP, rules.UDP, rules.ICMP, rules.SCTP)
		slices.Sort(list)
		return rules.MatchProtocol{Not: not, Protocols: slices.Compact(list)}
	case 3:
		list := some(g, "ports", 1, 20,
			portRanges(
				"0,2,4,6,8,10,12,14,16,18,20,22,53,80-90,100-200,443,15008,65535,0-65535")...)
		return rules.MatchPort{Side: side, Not: not, Ports: rules.Normalize(list)}
	case 4:
		return rules.MatchTCPFlags{
			Not: not, Mask: rules.SYN | rules.ACK, Value: pick(g, "flags", rules.SYN, rules.ACK),
		}
	case 5:
		list := some(g, "ids", 1, 3, idRanges("0,1337,1337-1339,5000")...)
		return rules.MatchOwner{
			Group: g.yes("group"), Not: not, Socketless: not && g.yes("socketless"),
			IDs: rules.Normalize(list),
		}
	case 6:
		mask := pick[uint32](g, "mask", 1, 3, 1<<32-1)
		return rules.MatchMark{
			Conntrack: g.yes("connection"), Not: not, Value: uint32(g.number("mark", 3)),
			Mask: mask,
		}
	case 7:
		return rules.MatchState{Not: not, States: rules.StateSet(g.number("states", 31))}
	}
	return rules.MatchInterface{
		Out: g.yes("out"), Not: not,
		Names: some(g, "names", 1, 3, interfaceNames("lo,eth0,eth1,eth+,e+,net1")...),
	}
}

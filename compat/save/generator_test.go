package save_test

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// anyTables draws iptables tables of one family. The kernel accepts each drawn rule in its chain.
var anyTables = tablesWith(false)

// richTables draws tables with all matches and targets that Print supports.
var richTables = tablesWith(true)

// tablesWith returns a generator of tables. If rich is set, it draws all matches and targets.
func tablesWith(rich bool) *rapid.Generator[[]rules.Table] {
	return rapid.Custom(func(t *rapid.T) []rules.Table { return drawTables(t, rich) })
}

func drawTables(t *rapid.T, rich bool) []rules.Table {
	family := rapid.SampledFrom([]rules.Family{rules.IPv4, rules.IPv6}).Draw(t, "family")
	names := rapid.Permutation([]string{
		"raw", "mangle", "nat", "filter", "security",
	}).Draw(t, "tables")
	var tables []rules.Table
	for _, name := range names[:rapid.IntRange(1, len(names)).Draw(t, "number of tables")] {
		g := generator{family: family, table: name, rich: rich}
		drawn := g.draw(t)
		drawn.XTables = true
		tables = append(tables, drawn)
	}
	return tables
}

// A generator draws one table.
type generator struct {
	family rules.Family
	table  string
	rich   bool // with all matches and targets
}

// builtIn contains the hooks of the built-in chains of each table.
var builtIn = map[string][]rules.Hook{
	"raw":      {rules.Prerouting, rules.Output},
	"mangle":   {rules.Prerouting, rules.Input, rules.Forward, rules.Output, rules.Postrouting},
	"nat":      {rules.Prerouting, rules.Input, rules.Output, rules.Postrouting},
	"filter":   {rules.Input, rules.Forward, rules.Output},
	"security": {rules.Input, rules.Forward, rules.Output},
}

// builtInNames contains the names of the built-in chains by hook.
var builtInNames = [...]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// draw draws the table with its chains and rules.
func (g *generator) draw(t *rapid.T) rules.Table {
	table := rules.Table{Family: g.family, Name: g.table}
	for _, hook := range builtIn[g.table] {
		// The chains of nat cannot have the policy DROP.
		drop := g.table != "nat" && rapid.Bool().Draw(t, "drop")
		table.Chains = append(table.Chains, rules.Chain{
			Name: builtInNames[hook], Base: save.Base(g.table, hook, drop),
		})
	}
	hooks := len(table.Chains)
	for i := range rapid.IntRange(0, 3).Draw(t, "chains") {
		table.Chains = append(table.Chains, rules.Chain{Name: fmt.Sprintf("chain-%d", i)})
	}
	for i := range table.Chains {
		c := &table.Chains[i]
		// Jumps lead to later chains only, to avoid loops.
		var targets []rules.Chain
		if i < hooks {
			targets = table.Chains[hooks:]
		} else {
			targets = table.Chains[i+1:]
		}
		for range rapid.IntRange(0, 3).Draw(t, "rules") {
			c.Rules = append(c.Rules, g.rule(t, c, targets))
		}
	}
	return table
}

// rule draws a rule of the chain c. Its jumps lead to targets. No rule jumps to a user-defined
// chain with an odd number. In such a chain, rule also draws matches and targets that the kernel
// allows only at some hooks.
func (g *generator) rule(t *rapid.T, c *rules.Chain, targets []rules.Chain) rules.Rule {
	unreferenced := c.Base == nil && c.Name[len(c.Name)-1]%2 == 1
	var r rules.Rule
	add := func(name string, draw func() rules.Match) {
		if rapid.Bool().Draw(t, name) {
			r.Matches = append(r.Matches, draw())
		}
	}
	at := func(hooks ...rules.Hook) bool {
		return c.Base == nil || slices.Contains(hooks, c.Base.Hook)
	}
	if at(rules.Prerouting, rules.Input, rules.Forward) {
		add("in", func() rules.Match { return g.device(t, false) })
	}
	if at(rules.Output, rules.Postrouting, rules.Forward) {
		add("out", func() rules.Match { return g.device(t, true) })
	}
	add("source", func() rules.Match { return g.addresses(t, rules.Source) })
	add("second source", func() rules.Match { return g.addresses(t, rules.Source) })
	add("destination", func() rules.Match { return g.addresses(t, rules.Destination) })
	protocol := rapid.SampledFrom([]rules.Protocol{
		0, rules.TCP, rules.UDP, rules.SCTP, 200, g.icmp(),
	}).Draw(t, "protocol")
	hasPorts := protocol == rules.TCP || protocol == rules.UDP
	if protocol != 0 {
		not := !hasPorts && protocol != rules.ICMP && protocol != rules.ICMPv6 &&
			rapid.Bool().Draw(t, "not")
		r.Matches = append(r.Matches, rules.MatchProtocol{
			Not: not, Protocols: []rules.Protocol{protocol},
		})
	}
	if hasPorts {
		add("source port", func() rules.Match { return ports(t, rules.Source) })
		add("destination port", func() rules.Match { return ports(t, rules.Destination) })
		add("second destination port", func() rules.Match { return ports(t, rules.Destination) })
	}
	if protocol == rules.TCP {
		add("flags", func() rules.Match {
			flags := rapid.Uint8Range(0, 63)
			return rules.MatchTCPFlags{
				Not:   rapid.Bool().Draw(t, "not"),
				Mask:  rules.TCPFlags(1 + flags.Draw(t, "mask")%63),
				Value: rules.TCPFlags(flags.Draw(t, "value")),
			}
		})
	}
	if unreferenced || c.Base != nil && (c.Base.Hook == rules.Output || c.Base.Hook == rules.Postrouting) {
		add("user", func() rules.Match { return owner(t, false) })
		add("group", func() rules.Match { return owner(t, true) })
	}
	add("mark", func() rules.Match { return mark(t, false) })
	add("connection mark", func() rules.Match { return mark(t, true) })
	add("state", func() rules.Match {
		return rules.MatchState{
			Not:    rapid.Bool().Draw(t, "not"),
			States: rules.StateSet(rapid.Uint8Range(1, 31).Draw(t, "states")),
		}
	})
	if g.rich {
		g.addRich(t, &r, protocol, unreferenced)
	}
	rules.SortMatches(r.Matches)
	r.Actions = append([]rules.Action{rules.Count{}}, g.target(t, c, targets, hasPorts, unreferenced)...)
	r.Comment = rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[ -~]{1,40}`)).Draw(t, "comment")
	if rapid.Bool().Draw(t, "hits") {
		r.Hits = rules.Hits{
			Packets: rapid.Uint64().Draw(t, "packets"), Bytes: rapid.Uint64().Draw(t, "bytes"),
		}
	}
	return r
}

// device draws a match of the input or the output interface.
func (g *generator) device(t *rapid.T, out bool) rules.Match {
	name := rules.InterfaceName{
		Name:   rapid.StringMatching(`[a-z][a-z0-9.-]{0,13}`).Draw(t, "name"),
		Prefix: rapid.Bool().Draw(t, "prefix"),
	}
	return rules.MatchInterface{
		Out: out, Not: rapid.Bool().Draw(t, "not"), Names: []rules.InterfaceName{name},
	}
}

// addresses draws a match of a prefix or a range of addresses.
func (g *generator) addresses(t *rapid.T, side rules.Side) rules.Match {
	size := 4
	if g.family == rules.IPv6 {
		size = 16
	}
	address := func(name string) netip.Addr {
		a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, name))
		return a
	}
	a := address("address")
	r := netipx.RangeOfPrefix(netip.PrefixFrom(a, rapid.IntRange(1, a.BitLen()).Draw(t, "bits")))
	if rapid.Bool().Draw(t, "range") {
		b := address("last address")
		if b.Less(a) {
			a, b = b, a
		}
		r = netipx.IPRangeFrom(a, b)
	}
	return rules.MatchAddr{
		Side: side, Not: rapid.Bool().Draw(t, "not"), Ranges: []netipx.IPRange{r},
	}
}

// anyPorts draws a port range, but not all ports.
var anyPorts = rapid.Custom(func(t *rapid.T) rules.PortRange {
	a := rapid.Uint16Range(1, 65535).Draw(t, "port")
	if rapid.Bool().Draw(t, "single") {
		return rules.Single(a)
	}
	b := rapid.Uint16Range(1, 65535).Draw(t, "last port")
	return rules.PortRange{First: min(a, b), Last: max(a, b)}
})

func ports(t *rapid.T, side rules.Side) rules.Match {
	list := rapid.SliceOfN(anyPorts, 1, 7).Draw(t, "ports")
	return rules.MatchPort{
		Side: side, Not: rapid.Bool().Draw(t, "not"), Ports: rules.Normalize(list),
	}
}

func owner(t *rapid.T, group bool) rules.Match {
	a, b := rapid.Uint32Range(0, 1<<32-2).Draw(t, "id"),
		rapid.Uint32Range(0, 1<<32-2).Draw(t, "last id")
	if rapid.Bool().Draw(t, "single") {
		b = a
	}
	ids := rules.IDRange{First: min(a, b), Last: max(a, b)}
	if !group && rapid.Bool().Draw(t, "any socket") {
		ids = rules.IDRange{Last: 1<<32 - 1}
	}
	m := rules.MatchOwner{Group: group, Not: rapid.Bool().Draw(t, "not"), IDs: []rules.IDRange{ids}}
	m.Socketless = m.Not && (ids.Last == 1<<32-1 || rapid.Bool().Draw(t, "socketless"))
	return m
}

func mark(t *rapid.T, conntrack bool) rules.Match {
	mask := rapid.OneOf(rapid.Just(^uint32(0)), rapid.Uint32()).Draw(t, "mask")
	return rules.MatchMark{
		Conntrack: conntrack, Not: rapid.Bool().Draw(t, "not"),
		Value: rapid.Uint32().Draw(t, "value"), Mask: mask,
	}
}

// target draws the action of a rule, or none.
func (g *generator) target(
	t *rapid.T, c *rules.Chain, targets []rules.Chain, hasPorts, unreferenced bool,
) []rules.Action {
	port := rapid.Uint16Range(1, 65535).Draw(t, "to port")
	mask := rapid.OneOf(rapid.Just(^uint32(0)), rapid.Uint32()).Draw(t, "bits")
	value := rapid.Uint32().Draw(t, "to value") & mask
	list := []rules.Action{
		rules.Return, rules.Accept, rules.Drop,
		rules.SetMark{Value: value, Mask: mask},
		rules.SaveMark{},
		rules.RestoreMark{},
		nil,
	}
	if g.table == "nat" {
		list = list[:2] // iptables rejects DROP in nat; other tables suffice for the marks
	}
	for _, to := range targets {
		if odd := to.Name[len(to.Name)-1]%2 == 1; !odd {
			list = append(list, rules.Jump{Chain: to.Name, Goto: rapid.Bool().Draw(t, "goto")})
		}
	}
	hook := func(h rules.Hook) bool { return unreferenced || c.Base != nil && c.Base.Hook == h }
	switch {
	case g.table == "raw":
		list = append(list, rules.SetZone{Zone: port})
	case g.table == "mangle" && hasPorts && hook(rules.Prerouting):
		list = append(list, rules.TProxyDrop{Port: port, Value: value, Mask: mask})
	case g.table == "nat" && hasPorts && (hook(rules.Prerouting) || hook(rules.Output)):
		list = append(list, rules.RedirectTo{Port: port}, rules.DNATPort{Port: port})
	}
	if g.rich {
		list = append(list, g.richTargets(t, port, hasPorts, unreferenced)...)
	}
	a := rapid.SampledFrom(list).Draw(t, "action")
	if a == nil {
		return nil
	}
	return []rules.Action{a}
}

// icmp returns the family's ICMP protocol for rich tables. For other tables, it returns a protocol
// without matches.
func (g *generator) icmp() rules.Protocol {
	switch {
	case !g.rich:
		return 200
	case g.family == rules.IPv6:
		return rules.ICMPv6
	}
	return rules.ICMP
}

// addRich draws one more match for a rule of a rich table.
func (g *generator) addRich(t *rapid.T, r *rules.Rule, protocol rules.Protocol, unreferenced bool) {
	not := rapid.Bool().Draw(t, "not")
	list := []rules.Match{
		rules.MatchStatus{
			Not: not, Status: rules.Status(rapid.Uint8Range(0, 15).Draw(t, "status")),
		},
		rules.MatchDirection{Reply: rapid.Bool().Draw(t, "reply")},
		rules.MatchState{Not: not, States: rules.States(rules.SNAT, rules.DNAT)},
		g.addrType(t, not),
	}
	switch protocol {
	case rules.TCP, rules.UDP:
		ports := rules.Normalize(rapid.SliceOfN(anyPorts, 1, 7).Draw(t, "either port"))
		list = append(list, rules.MatchTuple{Not: not, Alternatives: [][]rules.Match{
			{rules.MatchPort{Side: rules.Source, Ports: ports}},
			{rules.MatchPort{Side: rules.Destination, Ports: ports}},
		}})
	case rules.ICMP, rules.ICMPv6:
		first := rapid.Uint16Range(0, 254).Draw(t, "type") << 8
		values := rules.Range[uint16]{First: first, Last: first | 0xff}
		if rapid.Bool().Draw(t, "code") {
			values = rules.Single(first | rapid.Uint16Range(0, 255).Draw(t, "code"))
		}
		list = append(list, rules.MatchICMP{
			V6: protocol == rules.ICMPv6, Not: not, Values: []rules.Range[uint16]{values},
		})
	}
	if unreferenced && (g.table == "raw" || g.table == "mangle") {
		kind := rapid.SampledFrom([]string{
			"", "loose", "validmark", "loose validmark accept-local",
		}).Draw(t, "kind")
		list = append(list, rules.MatchReversePath{Not: not, Kind: kind})
	}
	if unreferenced && g.table == "mangle" {
		list = append(list,
			rules.MatchSocket{Kind: rapid.SampledFrom([]string{
				"", "nowildcard",
			}).Draw(t, "socket")})
	}
	r.Matches = append(r.Matches, rapid.SampledFrom(list).Draw(t, "rich match"))
}

func (g *generator) addrType(t *rapid.T, not bool) rules.Match {
	m := rules.MatchAddrType{
		Side: rules.Side(rapid.Uint8Range(0, 1).Draw(t, "side")), Not: not,
		Types: rules.AddrTypes(rules.Local),
	}
	if g.family == rules.IPv4 {
		m.Types = rules.AddrTypeSet(rapid.Uint16Range(1, 1<<12-1).Draw(t, "types"))
	}
	return m
}

// richTargets returns more actions for rules of rich tables.
func (g *generator) richTargets(t *rapid.T, port uint16, hasPorts, unreferenced bool) []rules.Action {
	bits := rapid.OneOf(rapid.Just(^uint32(0)), rapid.Uint32Range(1, 1<<32-2))
	a, b, value := bits.Draw(t, "bits"), bits.Draw(t, "other bits"), rapid.Uint32().Draw(t, "value")
	list := []rules.Action{
		rules.SetMark{Value: value, Mask: a},
		rules.MixMark{Conntrack: true, ConntrackMark: ^a, Xor: value},
	}
	if a != ^uint32(0) {
		list = append(list, rules.MixMark{Conntrack: true, Mark: a, ConntrackMark: ^b},
			rules.MixMark{Mark: ^a, ConntrackMark: b})
	}
	first, last := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9")
	if g.family == rules.IPv6 {
		first, last = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::9")
	}
	switch {
	case g.table == "raw":
		list = append(list, rules.Notrack{})
	case g.table == "filter":
		with := map[rules.Family][]string{
			rules.IPv4: {"icmp port-unreachable", "icmp admin-prohibited", "icmp prot-unreachable"},
			rules.IPv6: {"icmpv6 port-unreachable", "icmpv6 no-route", "icmpv6 reject-route"},
		}[g.family]
		list = append(list, rules.Reject{With: rapid.SampledFrom(with).Draw(t, "with")})
	case g.table == "nat" && unreferenced:
		list = append(list, rules.RedirectTo{}, rules.DNATTo{
			Addr: first,
		}, rules.DNATTo{Addr: first, LastAddr: last})
		if hasPorts && port < 65535 {
			list = append(list, rules.RedirectTo{
				Port: port, Last: port + 1,
			}, rules.DNATPort{Port: port, Last: 65535},
				rules.DNATTo{Addr: first, Port: port},
				rules.DNATTo{Addr: first, LastAddr: last, Port: port, Last: port + 1})
		}
	case g.table == "mangle" && hasPorts && unreferenced:
		list = append(list, rules.TProxyDrop{Port: port, Addr: first, Value: value, Mask: a})
	}
	return list
}

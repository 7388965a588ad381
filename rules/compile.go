package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// tableComment tells readers whose the table is.
const tableComment = "mesh redirect, by sluice"

// Compile returns the ruleset that carries out the redirection. For invalid parameters, such as the
// zero Redirect, it returns the [Faults] of [Redirect.Validate]; [DefaultRedirect] is where
// parameters start. Equal parameters give equal rulesets. The time is linear in the number of
// prefixes, except for sorting them.
//
// Each new connection has the fate that istio-init's iptables rules give it, except for the
// [Deviations] that are on. The rules are fewer: a rule that no packet can reach, or that changes
// no packet's fate, is left out, and alike rules are merged.
func Compile(r Redirect) (Ruleset, error) {
	if err := r.Validate(); err != nil {
		return Ruleset{}, err
	}
	return compile(r), nil
}

// MustCompile is [Compile] for parameters that are valid because they are part of the program, or
// because [Redirect.Validate] has accepted them. It panics if they are not.
func MustCompile(r Redirect) Ruleset {
	rs, err := Compile(r)
	if err != nil {
		panic(fmt.Errorf("rules.MustCompile: %w", err))
	}
	return rs
}

// compile is Compile of valid parameters.
func compile(r Redirect) Ruleset {
	c := newCompiler(r)
	chains := [...]Chain{
		c.rawPrerouting(), c.rawOutput(),
		c.manglePrerouting(), c.mangleOutput(),
		c.natPrerouting(), c.natOutput(), c.loopbackOutput(), c.groupOutput(),
	}
	table := Table{Family: Inet, Name: TableName, Comment: tableComment, Chains: make([]Chain, 0, len(chains))}
	for _, chain := range chains {
		if len(chain.Rules) > 0 {
			table.Chains = append(table.Chains, chain)
		}
	}
	return Ruleset{Tables: []Table{table}, Routing: c.routing()}
}

// compiler holds the parameters in the form in which rules use them.
type compiler struct {
	Redirect
	families []Family // those captured
	// included and excluded are the destinations, servers the DNS servers.
	included, excluded, servers addressRanges
	// proxyUser and proxyGroup match what the proxy sends.
	proxyUser, proxyGroup Match
	// loopbackIncluded switches off Istio's rule that leaves the application's traffic over lo
	// alone.
	loopbackIncluded bool
	// matches and actions hold the matches and actions of all rules: one allocation per rule took
	// half of Compile's time.
	matches []Match
	actions []Action
}

// addressRanges are normalised ranges of each family.
type addressRanges struct{ ipv4, ipv6 []netipx.IPRange }

func (a addressRanges) of(f Family) []netipx.IPRange {
	if f == IPv6 {
		return a.ipv6
	}
	return a.ipv4
}

func newCompiler(r Redirect) *compiler {
	// Enough for a usual pod's rules.
	c := &compiler{Redirect: r, matches: make([]Match, 0, 64), actions: make([]Action, 0, 32)}
	c.families = append(make([]Family, 0, 2), IPv4)
	if r.IPv6 {
		c.families = append(c.families, IPv6)
	}
	c.included = c.destinations(r.OutboundCIDRs.Prefixes)
	c.excluded = c.destinations(r.OutboundExcludeCIDRs)
	servers := make([]netip.Prefix, 0, len(r.DNS.Servers))
	for _, s := range r.DNS.Servers {
		servers = append(servers, netip.PrefixFrom(s, s.BitLen()))
	}
	c.servers = c.destinations(servers)
	c.proxyUser, c.proxyGroup = byUser(r.ProxyUIDs), byGroup(r.ProxyGIDs)
	c.loopbackIncluded = slices.ContainsFunc(r.OutboundCIDRs.Prefixes, func(p netip.Prefix) bool { return p.Addr().IsLoopback() })
	return c
}

// destinations normalises prefixes by family.
func (c *compiler) destinations(prefixes []netip.Prefix) addressRanges {
	if len(prefixes) == 0 {
		return addressRanges{}
	}
	unmapped := func(p netip.Prefix) netip.Prefix {
		if p.Addr().Is4In6() && p.Bits() >= 96 && c.deviates(MappedCIDR) {
			return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		return p
	}
	count := 0
	for _, p := range prefixes {
		if unmapped(p).Addr().Is4() {
			count++
		}
	}
	list4, list6 := make([]netipx.IPRange, 0, count), make([]netipx.IPRange, 0, len(prefixes)-count)
	for _, p := range prefixes {
		if p = unmapped(p); p.Addr().Is4() {
			list4 = append(list4, netipx.RangeOfPrefix(p))
		} else {
			list6 = append(list6, netipx.RangeOfPrefix(p))
		}
	}
	return addressRanges{ipv4: NormaliseAddrs(list4), ipv6: NormaliseAddrs(list6)}
}

// routing is what the ruleset needs of the routing tables.
func (c *compiler) routing() Routing {
	var r Routing
	if c.Mode == ModeTProxy && c.inbound() {
		for _, f := range c.families {
			r.Policies = append(r.Policies, PolicyRoute{f, c.TProxyMark, c.TProxyRouteTable, PolicyPriority})
		}
	}
	if c.IPv6 {
		r.LoopbackAddrs = []netip.Addr{PassthroughIPv6()}
	}
	return r
}

// inbound reports whether any inbound connection is captured.
func (c *compiler) inbound() bool { return c.InboundPorts.All || len(c.InboundPorts.Ports) > 0 }

// priority is ours, or Istio's when the deviation is off.
func (c *compiler) priority(ours, istio int) int {
	if c.deviates(NATFirst) {
		return ours
	}
	return istio
}

// base begins a base chain. A family that is not captured leaves it at once: a rule that names no
// family would capture it.
func (c *compiler) base(name string, t ChainType, h Hook, priority int) chainBuilder {
	b := c.begin(name)
	b.chain.Base = &Base{Type: t, Hook: h, Priority: priority}
	if !c.IPv6 {
		b.add("IPv6 is not captured", Return, MatchFamily{IPv6})
	}
	return b
}

// begin begins a chain without a hook.
func (c *compiler) begin(name string) chainBuilder {
	return chainBuilder{compiler: c, chain: Chain{Name: name}}
}

// chainBuilder collects the rules of a chain.
type chainBuilder struct {
	*compiler
	chain Chain
}

// add appends a rule with one action.
func (b *chainBuilder) add(comment string, action Action, matches ...Match) {
	b.addAll(comment, []Action{action}, matches...)
}

// addAll appends a rule with several actions.
func (b *chainBuilder) addAll(comment string, actions []Action, matches ...Match) {
	if b.chain.Rules == nil {
		b.chain.Rules = make([]Rule, 0, 8)
	}
	r := Rule{Matches: keep(&b.matches, matches), Actions: keep(&b.actions, actions), Comment: comment}
	SortMatches(r.Matches)
	b.chain.Rules = append(b.chain.Rules, r)
}

// keep appends items to the shared slice of all rules and returns the copy.
func keep[T any](all *[]T, items []T) []T {
	start := len(*all)
	*all = append(*all, items...)
	return (*all)[start:len(*all):len(*all)]
}

// build ends the chain. Rules that return at its end change nothing and are left out; so a guard
// alone makes no chain.
func (b *chainBuilder) build() Chain {
	rules := b.chain.Rules
	for len(rules) > 0 && len(rules[len(rules)-1].Actions) == 1 && rules[len(rules)-1].Actions[0] == Return {
		rules = rules[:len(rules)-1]
	}
	b.chain.Rules = rules
	return b.chain
}

// capture appends a rule that captures TCP connections: with KeepEstablished only those that begin
// now, while the rest is counted and left alone.
func (b *chainBuilder) capture(comment string, actions []Action, matches ...Match) {
	if b.KeepEstablished {
		notBegun := MatchTCPFlags{Not: true, Mask: SYN | ACK, Value: SYN}
		b.addAll("older than these rules: kept as it is", []Action{Count{}, Accept}, append(slices.Clone(matches), notBegun)...)
	}
	b.addAll(comment, actions, matches...)
}

// The matches that rules are made of.

var (
	tcp Match = MatchProtocol{Protocols: []Protocol{TCP}}
	udp Match = MatchProtocol{Protocols: []Protocol{UDP}}

	fromLoopback Match = MatchInterface{Names: []InterfaceName{{Name: loopback}}}
	toLoopback   Match = MatchInterface{Out: true, Names: []InterfaceName{{Name: loopback}}}
)

func toPort(ports ...PortRange) MatchPort {
	list := Normalise(ports)
	if len(list) >= ManyPorts {
		list = joined(list)
	}
	return MatchPort{Side: Destination, Ports: list}
}

// ManyPorts is from how many ports and ranges on a list is made for the kernel and no longer for a
// reader: adjacent ports become ranges, and nftables gets a set of intervals. In a set of single
// ports the kernel looks for each new element at all others (net/netfilter/nft_set_bitmap.c). To
// apply every second port of so many took, on Linux 6.18, as a set of ports and as one of
// intervals:
//
//	  500 ports   0.6 ms     0.6 ms
//	1,000 ports   2.2 ms     1.2 ms
//	5,000 ports   116 ms      56 ms
//	20,000 ports  1.06 s    0.28 s
const ManyPorts = 512

func notToPort(ports ...PortRange) MatchPort {
	m := toPort(ports...)
	m.Not = true
	return m
}

func fromPort(port uint16) MatchPort { return MatchPort{Side: Source, Ports: Singles(port)} }

func byUser(ids []IDRange) MatchOwner { return MatchOwner{IDs: Normalise(ids)} }

func byGroup(ids []IDRange) MatchOwner { return MatchOwner{Group: true, IDs: Normalise(ids)} }

func marked(mark uint32) MatchMark { return MatchMark{Value: mark, Mask: ^uint32(0)} }

// interfaces returns a match for all the names without ending, and one for each that is a prefix: a
// set cannot hold those.
func interfaces(out bool, names []InterfaceName) []Match {
	names = slices.Clone(names)
	slices.SortFunc(names, func(a, b InterfaceName) int { return cmp.Compare(a.String(), b.String()) })
	exact := MatchInterface{Out: out}
	var matches []Match
	for _, n := range slices.Compact(names) {
		if n.Prefix {
			matches = append(matches, MatchInterface{Out: out, Names: []InterfaceName{n}})
		} else {
			exact.Names = append(exact.Names, n)
		}
	}
	if len(exact.Names) > 0 {
		matches = append([]Match{exact}, matches...)
	}
	return matches
}

// to matches the destinations of a family; set is the name of the set if there are many.
func to(ranges []netipx.IPRange, set string) MatchAddr {
	m := MatchAddr{Side: Destination, Ranges: ranges}
	if len(ranges) > 1 {
		m.Set = set + "-" + m.Family().ipName()
	}
	return m
}

// loopbackOf returns the loopback destination of a family.
func (c *compiler) loopbackOf(f Family) MatchAddr {
	p := c.LoopbackCIDR
	if f == IPv6 {
		p = loopbackCIDRv6()
	}
	return MatchAddr{Side: Destination, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(p)}}
}

// offLoopback returns the match of every other destination.
func (c *compiler) offLoopback(f Family) MatchAddr {
	m := c.loopbackOf(f)
	m.Not = true
	return m
}

// passthrough matches the proxy's connections to the application by their source.
func passthrough(f Family) MatchAddr {
	a := PassthroughIPv4()
	if f == IPv6 {
		a = PassthroughIPv6()
	}
	return MatchAddr{Side: Source, Ranges: []netipx.IPRange{netipx.IPRangeFrom(a, a)}}
}

package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// tableComment identifies the owner of the table.
const tableComment = "mesh redirect, by sluice"

// Compile returns the ruleset of the redirection. For invalid parameters, such as the zero
// Redirect, it returns the [Faults] of [Redirect.Validate]; start with [DefaultRedirect]. Equal
// parameters give equal rulesets. The time is linear in the number of prefixes, except for sorting
// them.
//
// Each new connection is handled as with istio-init's iptables rules, except for the enabled
// [Deviations]. There are fewer rules: rules that no packet reaches or that have no effect are
// omitted, and similar rules are merged.
func Compile(r Redirect) (Ruleset, error) {
	if err := r.Validate(); err != nil {
		return Ruleset{}, err
	}
	return compile(r), nil
}

// MustCompile is [Compile] for parameters that are known to be valid. It panics otherwise.
func MustCompile(r Redirect) Ruleset {
	rs, err := Compile(r)
	if err != nil {
		panic(fmt.Errorf("rules.MustCompile: %w", err))
	}
	return rs
}

// compile is Compile for valid parameters.
func compile(r Redirect) Ruleset {
	c := newCompiler(r)
	chains := [...]Chain{
		c.rawPrerouting(), c.rawOutput(),
		c.manglePrerouting(), c.mangleOutput(),
		c.natPrerouting(), c.natOutput(), c.loopbackOutput(), c.groupOutput(),
	}
	return c.ruleset(chains[:], c.routing())
}

// ruleset returns the ruleset with the chains that have rules.
func (c *compiler) ruleset(chains []Chain, routing Routing) Ruleset {
	table := Table{
		Family: Inet, Name: TableName, Comment: tableComment, Chains: make([]Chain, 0, len(chains)),
	}
	for _, chain := range chains {
		if len(chain.Rules) > 0 {
			table.Chains = append(table.Chains, chain)
		}
	}
	if c.Counters {
		c.addCounters(table.Chains)
	}
	return Ruleset{Tables: []Table{table}, Routing: routing}
}

// compiler contains the parameters in the form that rules use.
type compiler struct {
	Redirect
	families []Family // those captured
	// included and excluded are destinations, servers the DNS servers.
	included, excluded, servers addressRanges
	// proxyUser and proxyGroup match packets of the proxy.
	proxyUser, proxyGroup Match
	// meetsIPv6 reports that rules without a family also apply to IPv6 that is not captured.
	meetsIPv6 bool
	// loopbackIncluded disables Istio's rule that excludes the application's traffic over lo.
	loopbackIncluded bool
	// matches and actions are allocated together for all rules: an allocation for each rule took
	// half of Compile's time.
	matches []Match
	actions []Action
}

// addressRanges are normalized ranges of each family.
type addressRanges struct{ ipv4, ipv6 []netipx.IPRange }

func (a addressRanges) of(f Family) []netipx.IPRange {
	if f == IPv6 {
		return a.ipv6
	}
	return a.ipv4
}

func newCompiler(r Redirect) *compiler {
	// The capacity suffices for a typical pod.
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
	c.loopbackIncluded = slices.ContainsFunc(r.OutboundCIDRs.Prefixes, func(p netip.Prefix) bool {
		return p.Addr().IsLoopback()
	})
	return c
}

// destinations normalizes prefixes by family.
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

// routing returns the routing that the ruleset needs.
func (c *compiler) routing() Routing {
	var r Routing
	if c.Mode == ModeTProxy && c.inbound() {
		for _, f := range c.families {
			r.Policies = append(r.Policies, PolicyRoute{
				Family: f, Mark: c.TProxyMark, Table: c.TProxyRouteTable,
				Priority: PolicyPriority,
			})
		}
	}
	if c.IPv6 {
		r.LoopbackAddrs = []netip.Addr{PassthroughIPv6()}
	}
	return r
}

// inbound reports whether any inbound connection is captured.
func (c *compiler) inbound() bool { return c.InboundPorts.All || len(c.InboundPorts.Ports) > 0 }

// priority returns Sluice's priority, or Istio's if the deviation is disabled.
func (c *compiler) priority(sluice, istio int) int {
	if c.deviates(NATFirst) {
		return sluice
	}
	return istio
}

// base begins a base chain. Packets of a family that is not captured return at once, because rules
// without a family would capture them.
func (c *compiler) base(name string, t ChainType, h Hook, priority int) chainBuilder {
	b := c.begin(name)
	b.chain.Base = &Base{Type: t, Hook: h, Priority: priority}
	if !c.IPv6 && !c.meetsIPv6 {
		b.add("IPv6 is not captured", Return, MatchFamily{IPv6})
	}
	return b
}

// begin begins a user-defined chain.
func (c *compiler) begin(name string) chainBuilder {
	return chainBuilder{compiler: c, chain: Chain{Name: name}}
}

// chainBuilder builds a chain.
type chainBuilder struct {
	*compiler
	chain Chain
}

// add appends a rule with one action.
func (b *chainBuilder) add(comment string, action Action, matches ...Match) {
	b.addAll(NoRole, comment, []Action{action}, matches...)
}

// addRole appends a rule with a role and one action.
func (b *chainBuilder) addRole(role Role, comment string, action Action, matches ...Match) {
	b.addAll(role, comment, []Action{action}, matches...)
}

// addAll appends a rule with several actions.
func (b *chainBuilder) addAll(role Role, comment string, actions []Action, matches ...Match) {
	if b.chain.Rules == nil {
		b.chain.Rules = make([]Rule, 0, 8)
	}
	r := Rule{
		Matches: keep(&b.matches, matches), Actions: keep(&b.actions, actions), Comment: comment,
		Role: role,
	}
	SortMatches(r.Matches)
	b.chain.Rules = append(b.chain.Rules, r)
}

// keep appends items to a slice that all rules share, and returns the appended part.
func keep[T any](all *[]T, items []T) []T {
	start := len(*all)
	*all = append(*all, items...)
	return (*all)[start:len(*all):len(*all)]
}

// build returns the chain. Rules at its end that only return are omitted, so that a chain with only
// a guard is empty.
func (b *chainBuilder) build() Chain {
	rules := b.chain.Rules
	for len(rules) > 0 && len(rules[len(rules)-1].Actions) == 1 &&
		rules[len(rules)-1].Actions[0] == Return {
		rules = rules[:len(rules)-1]
	}
	b.chain.Rules = rules
	return b.chain
}

// capture appends a rule that captures TCP connections: with KeepEstablished only new ones, while
// packets of others are counted and not captured.
func (b *chainBuilder) capture(role Role, comment string, actions []Action, matches ...Match) {
	if b.KeepEstablished {
		b.addAll(NoRole, "older than these rules: kept as it is", []Action{Count{}, Accept},
			append(slices.Clone(matches), notBegun)...)
	}
	b.addAll(role, comment, actions, matches...)
}

// Matches of the compiled rules.

var (
	tcp Match = MatchProtocol{Protocols: []Protocol{TCP}}
	udp Match = MatchProtocol{Protocols: []Protocol{UDP}}

	fromLoopback Match = MatchInterface{Names: []InterfaceName{{Name: loopback}}}
	toLoopback   Match = MatchInterface{Out: true, Names: []InterfaceName{{Name: loopback}}}

	// notBegun matches packets that do not open a connection.
	notBegun Match = MatchTCPFlags{Not: true, Mask: SYN | ACK, Value: SYN}
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

// interfaces returns a match for all complete names, and one for each prefix, because a set cannot
// contain prefixes of names.
func interfaces(out bool, names []InterfaceName) []Match {
	names = slices.Clone(names)
	slices.SortFunc(names, func(a, b InterfaceName) int {
		return cmp.Compare(a.String(), b.String())
	})
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

// to matches destinations of a family; set is the name of the set if there are many.
func to(ranges []netipx.IPRange, set string) MatchAddr {
	m := MatchAddr{Side: Destination, Ranges: ranges}
	if len(ranges) > 1 {
		m.Set = set + "-" + m.Family().ipName()
	}
	return m
}

// loopbackOf returns the match for loopback destinations of a family.
func (c *compiler) loopbackOf(f Family) MatchAddr {
	p := c.LoopbackCIDR
	if f == IPv6 {
		p = loopbackCIDRv6()
	}
	return MatchAddr{Side: Destination, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(p)}}
}

// offLoopback returns the match for all other destinations.
func (c *compiler) offLoopback(f Family) MatchAddr {
	m := c.loopbackOf(f)
	m.Not = true
	return m
}

// passthrough matches connections of the proxy to the application by their source address.
func passthrough(f Family) MatchAddr {
	a := PassthroughIPv4()
	if f == IPv6 {
		a = PassthroughIPv6()
	}
	return MatchAddr{Side: Source, Ranges: oneAddress(a)}
}

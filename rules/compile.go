package rules

import (
	"cmp"
	"fmt"
	"iter"
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
	families []Family // the captured families
	// included and excluded are the captured and the excluded destinations of outbound connections.
	// servers are the captured DNS servers.
	included, excluded, servers addressRanges
	// proxyUser and proxyGroup match packets of the proxy.
	proxyUser, proxyGroup Match
	// appliesToIPv6 reports that rules without a family apply to IPv6 packets even if IPv6 is not
	// captured.
	appliesToIPv6 bool
	// loopbackIncluded reports that a captured prefix is a loopback prefix. Such a prefix disables
	// Istio's rule that excludes the application's traffic over lo.
	loopbackIncluded bool
	// matches and actions contain the matches and actions of all rules. A separate allocation for
	// each rule would take half of Compile's time.
	matches []Match
	actions []Action
}

// addressRanges are normalized ranges of each family.
type addressRanges struct{ ipv4, ipv6 []netipx.IPRange }

// of returns the ranges of the family.
func (a addressRanges) of(f Family) []netipx.IPRange { return ByFamily(f, a.ipv4, a.ipv6) }

// newCompiler converts the parameters.
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

// destinations returns the normalized ranges of the prefixes. See [MappedCIDR] for IPv4-mapped
// prefixes.
func (c *compiler) destinations(prefixes []netip.Prefix) addressRanges {
	if len(prefixes) == 0 {
		return addressRanges{}
	}
	const mappedBits = 96 // the length of ::ffff:0:0/96, the prefix of IPv4-mapped addresses
	unmapped := func(p netip.Prefix) netip.Prefix {
		if p.Addr().Is4In6() && p.Bits() >= mappedBits && c.deviates(MappedCIDR) {
			return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mappedBits)
		}
		return p
	}
	countIPv4 := 0
	for _, p := range prefixes {
		if unmapped(p).Addr().Is4() {
			countIPv4++
		}
	}
	ipv4 := make([]netipx.IPRange, 0, countIPv4)
	ipv6 := make([]netipx.IPRange, 0, len(prefixes)-countIPv4)
	for _, p := range prefixes {
		if p = unmapped(p); p.Addr().Is4() {
			ipv4 = append(ipv4, netipx.RangeOfPrefix(p))
		} else {
			ipv6 = append(ipv6, netipx.RangeOfPrefix(p))
		}
	}
	return addressRanges{ipv4: NormalizeAddrs(ipv4), ipv6: NormalizeAddrs(ipv6)}
}

// routing returns the routing that the ruleset needs.
func (c *compiler) routing() Routing {
	var r Routing
	if c.Mode == ModeTProxy && c.capturesInbound() {
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

// priority returns Sluice's priority, or Istio's if the deviation [NATFirst] is disabled.
func (c *compiler) priority(sluice, istio int) int {
	if c.deviates(NATFirst) {
		return sluice
	}
	return istio
}

// base begins a base chain. If IPv6 is not captured, the first rule returns for IPv6 packets,
// because rules without a family would capture them. With appliesToIPv6 the chain has no such rule.
func (c *compiler) base(name string, t ChainType, h Hook, priority int) chainBuilder {
	b := c.begin(name)
	b.chain.Base = &Base{Type: t, Hook: h, Priority: priority}
	if !c.IPv6 && !c.appliesToIPv6 {
		b.add("IPv6 is not captured", Return, MatchFamily{IPv6})
	}
	return b
}

// begin begins a chain, which is a user-defined chain unless the caller sets its Base.
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
		Matches: appendShared(&b.matches, matches), Actions: appendShared(&b.actions, actions),
		Comment: comment, Role: role,
	}
	SortMatches(r.Matches)
	b.chain.Rules = append(b.chain.Rules, r)
}

// appendShared appends items to a slice that all rules share, and returns the appended part.
func appendShared[T any](shared *[]T, items []T) []T {
	start := len(*shared)
	*shared = append(*shared, items...)
	return (*shared)[start:len(*shared):len(*shared)]
}

// build returns the chain without the rules at its end that only return. Therefore a chain with
// nothing but the IPv6 rule of base is empty.
func (b *chainBuilder) build() Chain {
	rules := b.chain.Rules
	for len(rules) > 0 && len(rules[len(rules)-1].Actions) == 1 &&
		rules[len(rules)-1].Actions[0] == Return {
		rules = rules[:len(rules)-1]
	}
	b.chain.Rules = rules
	return b.chain
}

// capture appends a rule that captures TCP connections. With KeepEstablished, another rule before
// it counts and accepts the packets of older connections.
func (b *chainBuilder) capture(role Role, comment string, actions []Action, matches ...Match) {
	if b.KeepEstablished {
		b.addAll(NoRole, "older than these rules: kept as it is", []Action{Count{}, Accept},
			append(slices.Clone(matches), notOpening)...)
	}
	b.addAll(role, comment, actions, matches...)
}

// Matches of the compiled rules.
var (
	tcp Match = MatchProtocol{Protocols: []Protocol{TCP}}
	udp Match = MatchProtocol{Protocols: []Protocol{UDP}}

	fromLoopback Match = MatchInterface{Names: []InterfaceName{{Name: loopback}}}
	toLoopback   Match = MatchInterface{Out: true, Names: []InterfaceName{{Name: loopback}}}

	// notOpening matches TCP packets that do not open a connection.
	notOpening Match = MatchTCPFlags{Not: true, Mask: SYN | ACK, Value: SYN}
)

// toPort returns the match of the destination ports.
func toPort(ports ...PortRange) MatchPort {
	ranges := Normalize(ports)
	if len(ranges) >= ManyPorts {
		ranges = joined(ranges)
	}
	return MatchPort{Side: Destination, Ports: ranges}
}

// ManyPorts is the length of the shortest list of ports and ranges that is optimized for the kernel
// instead of for readers: adjacent ports become ranges, and nftables gets an interval set. In a set
// of single ports the kernel compares each new element with all others
// (net/netfilter/nft_set_bitmap.c). The time to apply n ports, none of them adjacent, on Linux
// 6.18:
//
//	     n   set of ports   interval set
//	   500         0.6 ms         0.6 ms
//	 1,000         2.2 ms         1.2 ms
//	 5,000         116 ms          56 ms
//	20,000         1.06 s         0.28 s
const ManyPorts = 512

// notToPort returns the match of all destination ports except the given ones.
func notToPort(ports ...PortRange) MatchPort {
	m := toPort(ports...)
	m.Not = true
	return m
}

// fromPort returns the match of the source port.
func fromPort(port uint16) MatchPort { return MatchPort{Side: Source, Ports: Singles(port)} }

// byUser and byGroup return the match of packets whose socket has one of the users or groups.
func byUser(ids []IDRange) MatchOwner { return MatchOwner{IDs: Normalize(ids)} }

func byGroup(ids []IDRange) MatchOwner { return MatchOwner{Group: true, IDs: Normalize(ids)} }

// matchMark returns the match of packets with the mark.
func matchMark(mark uint32) MatchMark { return MatchMark{Value: mark, Mask: ^uint32(0)} }

// interfaces returns matches of the output interface if out is set, and otherwise of the input
// interface: one match for all complete names, and one for each prefix, because a set cannot
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

// toRanges returns, for each captured family with ranges, the match of destinations in its ranges.
// Several ranges become a named set: setPrefix, followed by the family, is the name of the set.
func (c *compiler) toRanges(ranges addressRanges, setPrefix string) iter.Seq[MatchAddr] {
	return func(yield func(MatchAddr) bool) {
		for _, f := range c.families {
			m := MatchAddr{Side: Destination, Ranges: ranges.of(f)}
			if len(m.Ranges) > 1 {
				m.Set = setPrefix + "-" + f.ipName()
			}
			if len(m.Ranges) > 0 && !yield(m) {
				return
			}
		}
	}
}

// loopbackOf returns the match for loopback destinations of a family.
func (c *compiler) loopbackOf(f Family) MatchAddr {
	p := ByFamily(f, c.LoopbackCIDR, loopbackCIDRv6())
	return MatchAddr{Side: Destination, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(p)}}
}

// offLoopback returns the match for the destinations of a family that are not loopback.
func (c *compiler) offLoopback(f Family) MatchAddr {
	m := c.loopbackOf(f)
	m.Not = true
	return m
}

// passthrough matches connections of the proxy to the application by their source address.
func passthrough(f Family) MatchAddr {
	a := ByFamily(f, PassthroughIPv4(), PassthroughIPv6())
	return MatchAddr{Side: Source, Ranges: oneAddress(a)}
}

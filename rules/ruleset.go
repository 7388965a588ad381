package rules

import (
	"cmp"
	"net/netip"
	"slices"
)

// A Ruleset contains the tables and routes of a network namespace, or the part of them that one
// program owns.
type Ruleset struct {
	// Tables are in any order: for the kernel a table is only a namespace of chains. Their order
	// matters only to [Ruleset.BaseChains], for chains whose order in the kernel is unknown.
	Tables []Table
	// Routing is the routing that the rules need.
	Routing Routing
}

// Family is an IP version, or both.
type Family uint8

// The families of tables, packets and routes.
const (
	Inet Family = 0 // both, as nft's inet tables
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf returns the family of an address; an IPv4-mapped address is IPv6.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// ByFamily returns the value for the family of an address: ipv6 for IPv6, and otherwise ipv4.
func ByFamily[T any](f Family, ipv4, ipv6 T) T {
	if f == IPv6 {
		return ipv6
	}
	return ipv4
}

// String returns the family of a table in nft's syntax: "inet", "ip" or "ip6".
func (f Family) String() string {
	switch f {
	case IPv4:
		return "ip"
	case IPv6:
		return "ip6"
	}
	return "inet"
}

// ipName returns "ipv4" or "ipv6", as in the names of sets.
func (f Family) ipName() string { return "ipv" + string('0'+rune(f)) }

// A Table is a named group of chains.
type Table struct {
	Family Family
	Name   string
	// Comment has at most 128 bytes. It has no effect and is not compared.
	Comment string
	Chains  []Chain
	// XTables reports that this is a table of iptables-legacy: all its rules consist of matches and
	// targets of xtables; see [Rule.XTables]. It is not compared.
	XTables bool
	// UnusedSets are the names of sets that no rule of the table uses.
	UnusedSets []string
	// Owned reports that the table has nftables' flag owner: only the process that owns the table
	// can change it. When the process ends, the kernel deletes the table without a notification and
	// without a new generation, or clears the flag if the table also has the flag persist.
	Owned bool
}

// Chain returns the chain with the name, or nil.
func (t *Table) Chain(name string) *Chain {
	i := slices.IndexFunc(t.Chains, func(c Chain) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &t.Chains[i]
}

// ReachableFrom returns the chains and all chains of the table to which their rules may jump, each
// once. A chain comes after the chains to which it jumps, except in a loop of jumps. An unsupported
// action may be a verdict map of nftables, which may jump to each user-defined chain of the table.
// The time is linear in the number of rules.
func (t *Table) ReachableFrom(chains ...*Chain) []*Chain {
	byName := make(map[string]*Chain, len(t.Chains))
	for i := range t.Chains {
		byName[t.Chains[i].Name] = &t.Chains[i]
	}
	var reachable []*Chain
	seen := map[*Chain]bool{}
	var visit func(c *Chain)
	reachesAll := false // an unsupported action may jump to each user-defined chain
	visitUserDefined := func() {
		for i := range t.Chains {
			if t.Chains[i].Base == nil {
				visit(&t.Chains[i])
			}
		}
	}
	visit = func(c *Chain) {
		if c == nil || seen[c] {
			return
		}
		seen[c] = true
		for i := range c.Rules {
			r := &c.Rules[i]
			for _, a := range r.Actions {
				switch a := a.(type) {
				case Jump:
					visit(byName[a.Chain])
				case Unknown:
					if a.Effect == AnyEffect && !r.XTables && !t.XTables && !reachesAll {
						reachesAll = true
						visitUserDefined()
					}
				}
			}
		}
		reachable = append(reachable, c)
	}
	for _, c := range chains {
		visit(c)
	}
	return reachable
}

// A Chain is a list of rules, evaluated for each packet at a hook (a base chain) or when another
// chain jumps to it.
type Chain struct {
	Name string
	// Base is nil for a user-defined chain, to which other chains jump.
	Base  *Base
	Rules []Rule
}

// Base describes how a base chain is registered.
type Base struct {
	Type     ChainType
	Hook     Hook
	Priority int // chains of a hook run in ascending priority, except for NAT: see [Base.Position]
	// Order is the order of chains at equal positions, ascending. It is 0 unless it was read from
	// the kernel, and is not compared. At [ConntrackPriority] a chain with a negative order runs
	// before conntrack, and a chain with a positive order runs after conntrack; for order 0 this is
	// unknown.
	Order int
	// Drop reports that the policy is drop: packets at the end of the chain are dropped.
	Drop bool
}

// The positions of all chains of NAT: NF_IP_PRI_NAT_DST and NF_IP_PRI_NAT_SRC in
// linux/netfilter_ipv4.h.
const (
	destinationNATPosition = -100
	sourceNATPosition      = 100
)

// Position returns the position of the chain among the functions of its hook: its priority, except
// for chains of NAT. These run together at the position of NAT (nf_nat_register_fn in
// net/netfilter/nf_nat_core.c), in the order of their priorities.
func (b *Base) Position() int {
	switch {
	case b.Type != NAT:
		return b.Priority
	case b.Hook == Input || b.Hook == Postrouting:
		return sourceNATPosition
	}
	return destinationNATPosition
}

// Hook is a hook of netfilter: one of the constants, which are the kernel's numbers (enum
// nf_inet_hooks in linux/netfilter.h). Methods panic for other values.
type Hook uint8

// The hooks of redirection, and others at which foreign chains may be registered.
const (
	Prerouting  Hook = iota // packets that arrive, from a device or over lo, before routing
	Input                   // packets for local sockets
	Forward                 // packets that pass through
	Output                  // packets of local sockets
	Postrouting             // packets that leave
	Ingress                 // packets of one device, before all else
)

// String returns nft's name of the hook.
func (h Hook) String() string {
	return [...]string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}[h]
}

// ChainType is the type of a base chain.
type ChainType uint8

// The chain types of nftables.
const (
	Filter ChainType = iota
	NAT              // sees only the first packet of each connection
	Route            // a filter at output; if it changes the mark, the kernel routes again
)

// String returns nft's name of the type.
func (t ChainType) String() string { return [...]string{"filter", "nat", "route"}[t] }

// Priorities that determine the order of Sluice's chains relative to others. Lower priorities run
// first. Conntrack runs at -200 (NF_IP_PRI_CONNTRACK in linux/netfilter_ipv4.h): zones are assigned
// before it, states are known after it.
const (
	// The priorities of iptables' tables and of istio-nftables: NF_IP_PRI_RAW, _MANGLE and
	// _NAT_DST.
	IstioRawPriority    = -300
	IstioManglePriority = -150
	IstioNATPriority    = -100
	// The priority of source NAT: NF_IP_PRI_NAT_SRC.
	IstioSourceNATPriority = 100

	// Sluice's priorities are lower by ten, so that its chains run first: at equal priority the
	// chain registered last would run first, and only the first translation of a connection and
	// the first assignment of a zone take effect.
	RawPriority    = IstioRawPriority - 10
	ManglePriority = IstioManglePriority - 10
	NATPriority    = IstioNATPriority - 10

	SourceNATPriority = IstioSourceNATPriority - 10
)

// A Rule applies its actions, in order, to the packets that meet all its matches.
type Rule struct {
	// Matches are in the canonical order of [SortMatches].
	Matches []Match
	// Actions end with at most one verdict; without one the evaluation continues with the next
	// rule.
	Actions []Action
	// Comment describes the purpose of the rule in at most 128 bytes, as the nft command shows it.
	Comment string
	// Role is the outcome of the connections that the rule decides about; NoRole for rules that
	// were read.
	Role Role

	// XTables reports that a rule read from nf_tables consists of matches and targets of xtables,
	// as iptables-nft writes it. Some of them treat packets without a connection differently from
	// the expressions of nftables. It is not compared.
	XTables bool

	// Handle is the handle of a rule read from nf_tables, otherwise 0.
	Handle Handle
	// Line is the line of a rule read from a text, otherwise 0.
	Line Line
	// Hits is the value of the rule's counter when the rule was read, and the initial value of the
	// counter when the rule is created in nftables. It is 0 without a counter.
	Hits Hits
}

// A Handle identifies a rule in a table of nf_tables. The kernel counts from 1.
type Handle uint64

// A Line is a line number, counted from 1.
type Line int

// Routing is the part of a redirection that is not part of an nftables transaction.
type Routing struct {
	// Policies are the policy routes, at most one for each family.
	Policies []PolicyRoute
	// LoopbackAddrs are additional addresses of lo: ::6, the source of the proxy's connections to
	// the application. (127.0.0.6 is not needed, because all of 127.0.0.0/8 is local.)
	LoopbackAddrs []netip.Addr

	// Unrouted are policy rules whose route is missing. They have no effect.
	Unrouted []PolicyRoute
	// Others are descriptions of foreign policy rules with the priority of Sluice's policy rules,
	// and of foreign routes in the tables of Sluice's policy rules.
	Others []string
}

// IsZero reports whether no routing is needed.
func (r Routing) IsZero() bool { return len(r.Policies) == 0 && len(r.LoopbackAddrs) == 0 }

// A PolicyRoute makes packets with a mark local: a policy rule "fwmark Mark lookup Table" with the
// Priority, and the route "local default dev lo" in that table.
type PolicyRoute struct {
	Family Family
	Mark   uint32
	// Mask selects the bits of the packet's mark that are compared with Mark; 0 selects all.
	Mask     uint32
	Table    uint32
	Priority int // of the policy rule, 1 to 32765
}

// Marked returns the match of the marks that the policy rule selects.
func (p PolicyRoute) Marked() MatchMark {
	return MatchMark{Value: p.Mark, Mask: cmp.Or(p.Mask, ^uint32(0))}
}

package rules

import (
	"net/netip"
	"slices"
)

// A Ruleset is all that decides about the packets of one network namespace, or the part of it that
// one program owns.
type Ruleset struct {
	// Tables in an order that means nothing to the kernel, where a table is only a name space for
	// chains, but see BaseChains.
	Tables []Table
	// Routing is what the rules need of the routing tables.
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

// String returns nft's name for the family as a table family: "inet", "ip" or "ip6".
func (f Family) String() string {
	switch f {
	case IPv4:
		return "ip"
	case IPv6:
		return "ip6"
	}
	return "inet"
}

// A Table is a named group of chains.
type Table struct {
	Family Family
	Name   string
	// Comment is a note to readers, at most 128 bytes. It has no part in what the table does, nor
	// in a comparison.
	Comment string
	Chains  []Chain
	// XTables reports that the rules are of iptables, where some matches and targets treat packets
	// without a connection otherwise than those of nftables. It has no part in a comparison of the
	// text of rules.
	XTables bool
	// UnusedSets are the names of sets that were read and that no rule of the table uses: they do
	// nothing.
	UnusedSets []string
}

// Chain returns the chain with the name, or nil.
func (t *Table) Chain(name string) *Chain {
	i := slices.IndexFunc(t.Chains, func(c Chain) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &t.Chains[i]
}

// A Chain is a list of rules: run for each packet at a hook (a base chain), or when another chain
// jumps to it.
type Chain struct {
	Name string
	// Base says where the kernel calls the chain; nil for a chain that is only jumped to.
	Base  *Base
	Rules []Rule
}

// Base is how a base chain is attached.
type Base struct {
	Type     ChainType
	Hook     Hook
	Priority int // chains of a hook run in ascending priority; see [Base.Position] for those of NAT
	// Order says which of several chains at one position runs first: the one with the smaller
	// number. It is 0 but where the kernel's order has been read, and has no part in a comparison.
	// At [ConntrackPriority] a chain with a negative number runs before conntrack, one with a
	// positive number after it; 0 is not known.
	Order int
	// Drop is the policy: what happens to a packet that leaves the chain at its end.
	Drop bool
}

// Where the kernel runs all chains of NAT: NF_IP_PRI_NAT_DST and NF_IP_PRI_NAT_SRC in
// linux/netfilter_ipv4.h.
const (
	destinationNATPosition = -100
	sourceNATPosition      = 100
)

// Position is where the chain runs among the functions of its hook. That is its priority, but not
// for chains of NAT: these run all together, where the kernel translates (nf_nat_register_fn in
// net/netfilter/nf_nat_core.c), and there in the order of their priorities.
func (b *Base) Position() int {
	switch {
	case b.Type != NAT:
		return b.Priority
	case b.Hook == Input || b.Hook == Postrouting:
		return sourceNATPosition
	}
	return destinationNATPosition
}

// Hook is the place in the packet's way through the kernel: one of the constants. To name or to
// encode another number panics.
type Hook uint8

// The hooks that redirection uses, and those where other owners' chains may be found.
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

// ChainType says what a base chain may do.
type ChainType uint8

// The chain types of nftables.
const (
	Filter ChainType = iota
	NAT              // sees only the first packet of each connection
	Route            // a filter after which a changed mark makes the kernel route again; at output only
)

// String returns nft's name of the type.
func (t ChainType) String() string { return [...]string{"filter", "nat", "route"}[t] }

// Priorities of the hooks that decide in which order Sluice's chains run beside others. Smaller
// runs first. Conntrack itself runs at -200 (NF_IP_PRI_CONNTRACK, linux/netfilter_ipv4.h): zones
// are set before, states known after.
const (
	// The priorities of iptables' tables and of istio-nftables: NF_IP_PRI_RAW, _MANGLE and
	// _NAT_DST.
	IstioRawPriority    = -300
	IstioManglePriority = -150
	IstioNATPriority    = -100

	// Ours are ten earlier: at equal priority the chain registered last runs first, and the first
	// NAT chain that maps a connection, like the first rule that sets a zone, decides.
	RawPriority    = IstioRawPriority - 10
	ManglePriority = IstioManglePriority - 10
	NATPriority    = IstioNATPriority - 10
)

// A Rule applies its actions, in order, to the packets that all its matches match.
type Rule struct {
	// Matches in the canonical order of [SortMatches].
	Matches []Match
	// Actions ends with at most one verdict; without one the packet goes on to the next rule.
	Actions []Action
	// Comment says what the rule is for, at most 128 bytes (what the nft command shows).
	Comment string

	// Handle is the kernel's number of a rule that was read from nf_tables, 0 for any other rule.
	Handle Handle
	// Line is where a rule was read that comes from a text, 0 for any other rule.
	Line Line
	// Hits is the value of the rule's counter when it was read.
	Hits Hits
}

// A Handle is the number by which nf_tables names a rule of a table. The kernel counts from 1.
type Handle uint64

// A Line is the number of a line in a text, counted from 1.
type Line int

// Hits is the value of a rule's counter.
type Hits struct{ Packets, Bytes uint64 }

// Routing is what redirection needs beyond rules: it is not part of an nftables transaction.
type Routing struct {
	// Policies are the policy routes, at most one a family.
	Policies []PolicyRoute
	// LoopbackAddrs are addresses of lo besides the kernel's own: ::6, from which the proxy makes
	// its inbound connections. (127.0.0.6 needs none: all of 127.0.0.0/8 is local.)
	LoopbackAddrs []netip.Addr

	// Unrouted are policy routes of which the rule was read, but not the route: they do nothing.
	Unrouted []PolicyRoute
	// Others are, in words, what else was read at the priority of our policy rules, and in the
	// tables that these look up.
	Others []string
}

// IsZero reports whether nothing is needed of the routing tables.
func (r Routing) IsZero() bool { return len(r.Policies) == 0 && len(r.LoopbackAddrs) == 0 }

// A PolicyRoute makes packets with a mark local: a rule "fwmark Mark lookup Table" with the given
// Priority, and in that table the route "local default dev lo".
type PolicyRoute struct {
	Family   Family
	Mark     uint32 // compared in all bits
	Table    uint32
	Priority int // of the policy rule, 1 to 32765
}

// ipName is "ipv4" or "ipv6", as in the names of sets.
func (f Family) ipName() string { return "ipv" + string('0'+rune(f)) }

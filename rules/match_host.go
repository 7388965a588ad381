package rules

import (
	"fmt"
	"strings"
)

// The matches of this file depend on routes, addresses, sockets and lists of the host. Two rulesets
// are compared for the same host, so such a condition has the same result in both. [MatchListed]
// documents an exception.

// AddrType is the type of an address in routing: a route type (enum in linux/rtnetlink.h).
type AddrType uint8

// The address types.
const (
	AddrTypeUnknown AddrType = iota // not known; RTN_UNSPEC in a match
	Unicast
	Local // of this host
	Broadcast
	Anycast
	Multicast
	Blackhole
	Unreachable
	Prohibit
	Throw
	TranslatedType // RTN_NAT, which current kernels do not use
	ResolvedType   // RTN_XRESOLVE, which current kernels do not use
)

// addrTypeNames are nft's names of the types.
var addrTypeNames = [...]string{
	"unspec", "unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable",
	"prohibit", "throw", "nat", "xresolve",
}

// String returns nft's name of the type.
func (t AddrType) String() string { return addrTypeNames[t] }

// ParseAddrType parses nft's or iptables' name of a type, in either case.
func ParseAddrType(text string) (AddrType, error) {
	for i, name := range addrTypeNames {
		if strings.EqualFold(text, name) {
			return AddrType(i), nil
		}
	}
	return 0, fmt.Errorf("address type %q is not one of %s", text,
		strings.Join(addrTypeNames[:], ", "))
}

// AddrTypeSet is a set of types: bit 1<<t for each type t.
type AddrTypeSet uint16

// AddrTypes returns the set of the types.
func AddrTypes(types ...AddrType) AddrTypeSet {
	var set AddrTypeSet
	for _, t := range types {
		set |= 1 << t
	}
	return set
}

// Has reports whether the type is in the set.
func (s AddrTypeSet) Has(t AddrType) bool { return s&(1<<t) != 0 }

// MatchAddrType matches packets by the type of an address. The lookup of the type does not depend
// on an interface.
type MatchAddrType struct {
	Side  Side
	Not   bool
	Types AddrTypeSet
}

// MatchReversePath matches packets that arrived on the interface over which the host routes to
// their source, or with Not other packets. Kind describes the lookup; matches of one kind are the
// same condition.
type MatchReversePath struct {
	Not  bool
	Kind string
}

// NFTSocket is the Kind of a [MatchSocket] of nftables. xtables has other kinds.
const NFTSocket = "nft"

// MatchSocket matches packets for which the host has a transparent socket, or with Not other
// packets. Kind describes the lookup; matches of one kind are the same condition.
type MatchSocket struct {
	Not  bool
	Kind string
}

// MatchListed matches packets by a list whose contents are not part of the rules: an ipset, or a
// set of nftables that rules change. Lists of the same name in two rulesets are assumed to have
// equal contents, unless the two rulesets write to the list differently.
type MatchListed struct {
	Not bool
	// List is the name of the list: "@name" for a set of nftables, "ipset name" for an ipset.
	List string
	// Parts are the fields to look up: "src", "dst,dst", "ip saddr".
	Parts string
	// Source and Destination report that a translation of the source or the destination changes a
	// field. OtherFields reports that a field may be neither an address nor a port, for example an
	// interface or the mark.
	Source, Destination, OtherFields bool
	// State names the state that rules write when they change the list (see [Unknown.State]).
	State string
	// Contents represents the contents of the list when it was read, as far as they are known.
	Contents string
}

func (m MatchAddrType) rank() int    { return 13 }
func (m MatchListed) rank() int      { return 13 }
func (m MatchReversePath) rank() int { return 13 }
func (m MatchSocket) rank() int      { return 13 }

// String returns the match in nft's syntax.
func (m MatchAddrType) String() string {
	var types []AddrType
	for t := range addrTypeNames {
		if m.Types.Has(AddrType(t)) {
			types = append(types, AddrType(t))
		}
	}
	return "fib " + m.Side.letter() + "addr type " + operand(m.Not, types, AddrType.String)
}

// String returns the match in nft's syntax; for an ipset, in a similar notation, which nft does not
// accept.
func (m MatchListed) String() string { return m.Parts + " " + not(m.Not) + m.List }

// String returns the match in a notation similar to nft's, which nft does not accept.
func (m MatchReversePath) String() string {
	if m.Not {
		return "fib saddr . iif oif missing" + kindText(m.Kind)
	}
	return "fib saddr . iif oif exists" + kindText(m.Kind)
}

// String returns the match in a notation similar to nft's, which nft does not accept.
func (m MatchSocket) String() string {
	value := "1"
	if m.Not {
		value = "0"
	}
	return "socket transparent " + value + kindText(m.Kind)
}

// kindText returns the kind of a lookup, if there is one, in parentheses after a blank.
func kindText(kind string) string {
	if kind == "" {
		return ""
	}
	return " (" + kind + ")"
}

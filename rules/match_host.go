package rules

import (
	"fmt"
	"strings"
)

// The matches of this file depend on more than the packet: on the routes, addresses and sockets of
// its host. Two rulesets that are compared run on the same host, so that such a condition is
// fulfilled on both sides or on neither.

// AddrType is what routing makes of an address: a route's type (enum of linux/rtnetlink.h).
type AddrType uint8

// The types.
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
	TranslatedType // RTN_NAT, which no kernel has any more
	ResolvedType   // RTN_XRESOLVE, which no kernel has any more
)

var addrTypeNames = [...]string{
	"unspec", "unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable", "prohibit", "throw", "nat", "xresolve",
}

// String returns nft's word for the type.
func (t AddrType) String() string { return addrTypeNames[t] }

// ParseAddrType reads a type by nft's or iptables' word for it, in either case.
func ParseAddrType(text string) (AddrType, error) {
	for i, name := range addrTypeNames {
		if strings.EqualFold(text, name) {
			return AddrType(i), nil
		}
	}
	return 0, fmt.Errorf("address type %q is not one of %s", text, strings.Join(addrTypeNames[:], ", "))
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

// MatchAddrType matches packets of one family by the type of an address, whatever the interface.
type MatchAddrType struct {
	Side  Side
	Not   bool
	Types AddrTypeSet
}

// MatchReversePath matches packets whose source the host would reach by the interface that they
// came in by, or with Not those of which it would not. Kind says how the route is looked up;
// conditions of one kind are the same condition.
type MatchReversePath struct {
	Not  bool
	Kind string
}

// MatchSocket matches packets for which the host has a transparent socket, or with Not those for
// which it has none. Kind says how the socket is looked up; conditions of one kind are the same
// condition.
type MatchSocket struct {
	Not  bool
	Kind string
}

// MatchListed matches packets of which parts are in a list that the rules name and do not contain:
// an ipset, or a set of nftables that changes by itself. For two rulesets a list of one name is one
// list, unless rules of one of them write to it and rules of the other do not, or for other
// packets.
type MatchListed struct {
	Not bool
	// List names it.
	List string
	// Parts are what is looked up: "src", "dst,dst", "ip saddr".
	Parts string
	// Destination reports that the parts have something that translation changes, More that they
	// have more than addresses and ports.
	Destination, More bool
	// State names what rules write to that change the list, and Contents stands for what it held
	// when it was read, as far as that was.
	State, Contents string
}

func (m MatchAddrType) rank() int    { return 13 }
func (m MatchListed) rank() int      { return 13 }
func (m MatchReversePath) rank() int { return 13 }
func (m MatchSocket) rank() int      { return 13 }

// String writes the match in nft's syntax.
func (m MatchAddrType) String() string {
	var types []AddrType
	for t := range addrTypeNames {
		if m.Types.Has(AddrType(t)) {
			types = append(types, AddrType(t))
		}
	}
	return "fib " + m.Side.letter() + "addr type " + operand(m.Not, types, AddrType.String)
}

// String writes the match as nft does.
func (m MatchListed) String() string { return m.Parts + " " + not(m.Not) + m.List }

// String writes the match as nft does, with the kind in parentheses.
func (m MatchReversePath) String() string {
	if m.Not {
		return "fib saddr . iif oif missing" + kindText(m.Kind)
	}
	return "fib saddr . iif oif exists" + kindText(m.Kind)
}

// String writes the match as nft does, with the kind in parentheses.
func (m MatchSocket) String() string {
	value := "1"
	if m.Not {
		value = "0"
	}
	return "socket transparent " + value + kindText(m.Kind)
}

func kindText(kind string) string {
	if kind == "" {
		return ""
	}
	return " (" + kind + ")"
}

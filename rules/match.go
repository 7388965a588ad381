package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go4.org/netipx"
)

// A Match is a condition on a packet. The implementations are the types of this package whose names
// begin with Match, and [Unknown].
//
// A condition on something that the packet lacks (a port, a socket, a connection) is false, even if
// it is negated, unless the type documents otherwise. The name of a missing interface is empty.
type Match interface {
	// String returns the condition in nft's syntax or, where the type documents it, in a similar
	// notation that nft does not accept.
	String() string
	// rank determines the order of the matches of a rule: cheap and selective ones first.
	rank() int
}

// SortMatches sorts the matches of a rule into the canonical order, in which rules are compared.
// The sort is stable.
func SortMatches(matches []Match) {
	slices.SortStableFunc(matches, func(a, b Match) int { return cmp.Compare(a.rank(), b.rank()) })
}

// Side is the source or the destination.
type Side uint8

// The sides.
const (
	Source Side = iota
	Destination
)

// letter returns "s" or "d", as in saddr and dport.
func (s Side) letter() string { return [...]string{"s", "d"}[s] }

// MatchInterface matches the name of a network interface.
type MatchInterface struct {
	Out   bool // the output interface, otherwise the input interface
	Not   bool
	Names []InterfaceName // in ascending order
}

// MatchFamily matches the IP version.
type MatchFamily struct{ Family Family }

// MatchAddr matches packets of one family by an address.
type MatchAddr struct {
	Side Side
	Not  bool
	// Ranges are normalized and of one family. With Not, packets of that family with any other
	// address match.
	Ranges []netipx.IPRange
	// Set is the name of the nftables set that contains the ranges, or empty if there is no named
	// set.
	Set string
}

// MatchProtocol matches the transport protocol.
type MatchProtocol struct {
	Not       bool
	Protocols []Protocol // in ascending order
}

// MatchPort matches packets by a port. The rule must also have a MatchProtocol that selects only
// protocols with ports (see [Protocol.HasPorts]).
type MatchPort struct {
	Side  Side
	Not   bool
	Ports []PortRange // normalized
}

// MatchTCPFlags matches TCP packets whose flags under Mask are equal to Value.
type MatchTCPFlags struct {
	Not         bool
	Mask, Value TCPFlags
}

// MatchOwner matches the user or group of the sending socket, as numeric ids of the network
// namespace's user namespace.
type MatchOwner struct {
	Group bool // compare the socket's group instead of its user
	Not   bool
	IDs   []IDRange // normalized
	// Socketless reports that, with Not, a packet without a socket matches, as in xtables but not
	// in nftables.
	Socketless bool
}

// MatchCgroup matches packets of a socket that was created in a cgroup of version 2, or in a cgroup
// below it. nf_tables compares and stores only ID and Level, iptables only Path.
type MatchCgroup struct {
	// Path is the path below the root of the hierarchy, such as "system.slice/kubelet.service", or
	// empty if it is not known. Level is the number of its elements.
	Path  string
	Level uint8
	// ID is the number of the cgroup: the inode number of its directory, or 0 if it is not known. A
	// cgroup that is removed and created again has another number.
	ID uint64
}

// CgroupOf returns the match of the cgroup with the path, without its number. The root of the
// hierarchy, whose path is empty, cannot be matched.
func CgroupOf(path string) MatchCgroup {
	elements := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	return MatchCgroup{Path: strings.Join(elements, "/"), Level: uint8(len(elements))}
}

// Same reports whether m and o match the same cgroup. It compares the levels, and the numbers if
// both are known, otherwise the paths.
func (m MatchCgroup) Same(o MatchCgroup) bool {
	if m.ID != 0 && o.ID != 0 {
		return m.ID == o.ID && m.Level == o.Level
	}
	return m.Path == o.Path && m.Level == o.Level
}

// InterfaceName is the name of a network interface, or with Prefix the prefix of several names.
type InterfaceName struct {
	Name   string
	Prefix bool
}

// Contains reports whether name is equal to this name, or begins with this prefix.
func (n InterfaceName) Contains(name string) bool {
	return name == n.Name || n.Prefix && strings.HasPrefix(name, n.Name)
}

// String returns the name in nft's syntax: a prefix ends in "*".
func (n InterfaceName) String() string {
	if n.Prefix {
		return n.Name + "*"
	}
	return n.Name
}

// Family returns the family of the addresses, or Inet if there are none. Packets of another family
// do not match.
func (m MatchAddr) Family() Family {
	if len(m.Ranges) == 0 {
		return Inet
	}
	return FamilyOf(m.Ranges[0].From())
}

func (m MatchInterface) rank() int { return 0 }
func (m MatchFamily) rank() int    { return 1 }
func (m MatchAddr) rank() int      { return 2 + int(m.Side) }
func (m MatchProtocol) rank() int  { return 4 }
func (m MatchPort) rank() int      { return 5 + int(m.Side) }
func (m MatchTCPFlags) rank() int  { return 7 }
func (m MatchCgroup) rank() int    { return 8 }

func (m MatchOwner) rank() int {
	if m.Group {
		return 9
	}
	return 8
}

// String returns the match in nft's syntax.
func (m MatchInterface) String() string {
	key := "iifname"
	if m.Out {
		key = "oifname"
	}
	return key + " " + operand(m.Not, m.Names, func(n InterfaceName) string {
		return strconv.Quote(n.String())
	})
}

// String returns the match in nft's syntax.
func (m MatchFamily) String() string {
	return "meta nfproto " + map[Family]string{Inet: "inet", IPv4: "ipv4", IPv6: "ipv6"}[m.Family]
}

// String returns the match in nft's syntax.
func (m MatchAddr) String() string {
	key := m.Family().String() + " " + m.Side.letter() + "addr "
	if m.Set != "" {
		return key + not(m.Not) + "@" + m.Set
	}
	return key + operand(m.Not, m.Ranges, FormatAddrRange)
}

// FormatAddrRange returns an address, a prefix, or the first and the last address ("a-b").
func FormatAddrRange(r netipx.IPRange) string {
	p, ok := r.Prefix()
	switch {
	case r.From() == r.To():
		return r.From().String()
	case ok:
		return p.String()
	}
	return r.String()
}

// String returns the match in nft's syntax.
func (m MatchProtocol) String() string {
	return "meta l4proto " + operand(m.Not, m.Protocols, Protocol.String)
}

// String returns the match in nft's syntax.
func (m MatchPort) String() string {
	return "th " + m.Side.letter() + "port " + operand(m.Not, m.Ports, PortRange.String)
}

// String returns the match in nft's syntax.
func (m MatchTCPFlags) String() string {
	return fmt.Sprintf("tcp flags & (%s) %s %s", m.Mask, equality(m.Not), m.Value)
}

// String returns the match in nft's syntax.
func (m MatchOwner) String() string {
	key := "meta skuid "
	if m.Group {
		key = "meta skgid "
	}
	return key + operand(m.Not, m.IDs, IDRange.String)
}

// String returns the match in nft's syntax, or with the number of the cgroup if its path is not
// known.
func (m MatchCgroup) String() string {
	if m.Path == "" {
		return fmt.Sprintf("socket cgroupv2 level %d %d", m.Level, m.ID)
	}
	return fmt.Sprintf("socket cgroupv2 level %d %q", m.Level, m.Path)
}

// not returns nft's operator before a value if negated is set, and otherwise an empty text.
func not(negated bool) string {
	if negated {
		return "!= "
	}
	return ""
}

// equality returns nft's operator for equal values or, if negated is set, for different values.
func equality(negated bool) string {
	if negated {
		return "!="
	}
	return "=="
}

// textsOf returns the text of each value.
func textsOf[T any](values []T, format func(T) string) []string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = format(v)
	}
	return texts
}

// operand returns the right side of a comparison: a single value, or several values as an anonymous
// set, after "!=" if negated is set.
func operand[T any](negated bool, values []T, format func(T) string) string {
	texts := textsOf(values, format)
	if len(texts) == 1 {
		return not(negated) + texts[0]
	}
	return not(negated) + "{ " + strings.Join(texts, ", ") + " }"
}

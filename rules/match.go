package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go4.org/netipx"
)

// A Match is one condition on a packet. The types of this file are the only ones.
type Match interface {
	// Matches tells whether the packet fulfils the condition, as the kernel would: a condition on something that the
	// packet does not have (a port, a socket, a connection) is not fulfilled, not even when it is negated. An interface that
	// it does not have is one without a name.
	Matches(p *Packet) bool
	// String writes the condition in nft's syntax.
	String() string
	// rank orders the matches of a rule: cheap and telling conditions first.
	rank() int
}

// SortMatches brings the matches of a rule into the canonical order, in which rules are compared. Conditions on equal
// fields keep their order.
func SortMatches(matches []Match) {
	slices.SortStableFunc(matches, func(a, b Match) int { return cmp.Compare(a.rank(), b.rank()) })
}

// Side is an end of the packet.
type Side uint8

// The two ends.
const (
	Source Side = iota
	Destination
)

// letter is "s" or "d", as in saddr and dport.
func (s Side) letter() string { return [...]string{"s", "d"}[s] }

// MatchInterface matches the name of a network interface.
type MatchInterface struct {
	Out   bool // the interface it leaves by, else the one it came in by
	Not   bool
	Names []InterfaceName // in ascending order
}

// MatchFamily matches the IP version.
type MatchFamily struct{ Family Family }

// MatchAddr matches packets of one family by an address.
type MatchAddr struct {
	Side Side
	Not  bool
	// Ranges of one family, normalised. With Not, packets of that family with any other address match.
	Ranges []netipx.IPRange
	// Set is the name under which nftables keeps the ranges when there are many, or empty.
	Set string
}

// MatchProtocol matches the transport protocol.
type MatchProtocol struct {
	Not       bool
	Protocols []Protocol // in ascending order
}

// MatchPort matches a TCP or UDP port; it stands beside a MatchProtocol of these.
type MatchPort struct {
	Side  Side
	Not   bool
	Ports []PortRange // normalised
}

// MatchTCPFlags matches TCP packets of which the flags under Mask have Value.
type MatchTCPFlags struct {
	Not         bool
	Mask, Value TCPFlags
}

// MatchOwner matches the user or group of the socket that sent the packet, as numeric ids of the network namespace's user
// namespace.
type MatchOwner struct {
	Group bool // the socket's group, else its user
	Not   bool
	IDs   []IDRange // normalised
	// Socketless tells that a packet without socket matches when Not is set: xtables matches it, nftables does not.
	Socketless bool
}

// MatchMark matches the packet's mark, or that of its connection.
type MatchMark struct {
	Conntrack   bool
	Not         bool
	Value, Mask uint32 // the mark is compared in the bits of Mask
}

// MatchState matches the state of the packet's connection.
type MatchState struct {
	Not    bool
	States StateSet
}

// Unknown is a condition that the model has no word for. Nothing is known of which packets match: an evaluation that
// depends on it is undecided.
type Unknown struct{ Text string }

// InterfaceName is the name of a network interface, or with Prefix the beginning of the names of several.
type InterfaceName struct {
	Name   string
	Prefix bool
}

// Contains tells whether the name stands for the interface.
func (n InterfaceName) Contains(name string) bool {
	return name == n.Name || n.Prefix && strings.HasPrefix(name, n.Name)
}

// String writes the name as nft does: a prefix ends in "*".
func (n InterfaceName) String() string {
	if n.Prefix {
		return n.Name + "*"
	}
	return n.Name
}

// Matches implements Match.
func (m MatchInterface) Matches(p *Packet) bool {
	name := p.InInterface
	if m.Out {
		name = p.OutInterface
	}
	return slices.ContainsFunc(m.Names, func(n InterfaceName) bool { return n.Contains(name) }) != m.Not
}

// Matches implements Match.
func (m MatchFamily) Matches(p *Packet) bool { return m.Family == Inet || p.Family() == m.Family }

// Matches implements Match.
func (m MatchAddr) Matches(p *Packet) bool {
	a := p.Source.Addr()
	if m.Side == Destination {
		a = p.Destination.Addr()
	}
	return FamilyOf(a) == m.Family() && containsAddr(m.Ranges, a) != m.Not
}

// Family is the family of the addresses, which is also the only one of which packets match.
func (m MatchAddr) Family() Family {
	if len(m.Ranges) == 0 {
		return Inet
	}
	return FamilyOf(m.Ranges[0].From())
}

// Matches implements Match.
func (m MatchProtocol) Matches(p *Packet) bool {
	return slices.Contains(m.Protocols, p.Protocol) != m.Not
}

// Matches implements Match.
func (m MatchPort) Matches(p *Packet) bool {
	if p.Protocol != TCP && p.Protocol != UDP {
		return false
	}
	port := p.Source.Port()
	if m.Side == Destination {
		port = p.Destination.Port()
	}
	return Contains(m.Ports, port) != m.Not
}

// Matches implements Match.
func (m MatchTCPFlags) Matches(p *Packet) bool {
	return p.Protocol == TCP && (p.Flags&m.Mask == m.Value) != m.Not
}

// Matches implements Match.
func (m MatchOwner) Matches(p *Packet) bool {
	if p.Owner == nil {
		return m.Not && m.Socketless
	}
	id := p.Owner.UID
	if m.Group {
		id = p.Owner.GID
	}
	return Contains(m.IDs, id) != m.Not
}

// Matches implements Match.
func (m MatchMark) Matches(p *Packet) bool {
	mark := p.Mark
	if m.Conntrack {
		if !p.State.HasConnection() {
			return false
		}
		mark = p.ConntrackMark
	}
	return (mark&m.Mask == m.Value) != m.Not
}

// Matches implements Match.
func (m MatchState) Matches(p *Packet) bool { return m.States.Has(p.State) != m.Not }

// Matches implements Match. It is never called: the evaluation stops before.
func (m Unknown) Matches(*Packet) bool { return false }

func (m MatchInterface) rank() int { return 0 }
func (m MatchFamily) rank() int    { return 1 }
func (m MatchAddr) rank() int      { return 2 + int(m.Side) }
func (m MatchProtocol) rank() int  { return 4 }
func (m MatchPort) rank() int      { return 5 + int(m.Side) }
func (m MatchTCPFlags) rank() int  { return 7 }

func (m MatchOwner) rank() int {
	if m.Group {
		return 9
	}
	return 8
}

func (m MatchMark) rank() int {
	if m.Conntrack {
		return 11
	}
	return 10
}
func (m MatchState) rank() int { return 12 }
func (m Unknown) rank() int    { return 13 }

// String writes the match in nft's syntax.
func (m MatchInterface) String() string {
	key := "iifname"
	if m.Out {
		key = "oifname"
	}
	return key + " " + operand(m.Not, m.Names, func(n InterfaceName) string { return strconv.Quote(n.String()) })
}

// String writes the match in nft's syntax.
func (m MatchFamily) String() string {
	return "meta nfproto " + map[Family]string{Inet: "inet", IPv4: "ipv4", IPv6: "ipv6"}[m.Family]
}

// String writes the match in nft's syntax.
func (m MatchAddr) String() string {
	key := m.Family().String() + " " + m.Side.letter() + "addr "
	if m.Set != "" {
		return key + not(m.Not) + "@" + m.Set
	}
	return key + operand(m.Not, m.Ranges, formatAddrRange)
}

func formatAddrRange(r netipx.IPRange) string {
	p, ok := r.Prefix()
	switch {
	case r.From() == r.To():
		return r.From().String()
	case ok:
		return p.String()
	}
	return r.String()
}

// String writes the match in nft's syntax.
func (m MatchProtocol) String() string {
	return "meta l4proto " + operand(m.Not, m.Protocols, Protocol.String)
}

// String writes the match in nft's syntax.
func (m MatchPort) String() string {
	return "th " + m.Side.letter() + "port " + operand(m.Not, m.Ports, PortRange.String)
}

// String writes the match in nft's syntax.
func (m MatchTCPFlags) String() string {
	return fmt.Sprintf("tcp flags & (%s) %s %s", m.Mask, equality(m.Not), m.Value)
}

// String writes the match in nft's syntax.
func (m MatchOwner) String() string {
	key := "meta skuid "
	if m.Group {
		key = "meta skgid "
	}
	return key + operand(m.Not, m.IDs, IDRange.String)
}

// String writes the match in nft's syntax.
func (m MatchMark) String() string {
	key := "meta mark"
	if m.Conntrack {
		key = "ct mark"
	}
	if m.Mask == ^uint32(0) {
		return fmt.Sprintf("%s %s0x%x", key, not(m.Not), m.Value)
	}
	return fmt.Sprintf("%s & 0x%x %s 0x%x", key, m.Mask, equality(m.Not), m.Value)
}

// String writes the match in nft's syntax.
func (m MatchState) String() string { return "ct state " + not(m.Not) + m.States.String() }

// String returns the text that the model has no word for.
func (m Unknown) String() string { return "unknown(" + m.Text + ")" }

func not(negated bool) string {
	if negated {
		return "!= "
	}
	return ""
}

func equality(negated bool) string {
	if negated {
		return "!="
	}
	return "=="
}

// operand writes one value as such and several as an anonymous set.
func operand[T any](negated bool, values []T, format func(T) string) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = format(v)
	}
	if len(texts) == 1 {
		return not(negated) + texts[0]
	}
	return not(negated) + "{ " + strings.Join(texts, ", ") + " }"
}

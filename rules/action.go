package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// An Action is what a rule does with a packet. The implementations are the types of this file and
// [Unknown].
type Action interface {
	// String returns the action in nft's syntax, if nft has a syntax for it.
	String() string
	action()
}

// Verdict ends the rule. All verdicts except Return also end the evaluation of the base chain.
type Verdict uint8

// The verdicts without an argument.
const (
	// Accept ends the evaluation of the base chain. Later base chains still evaluate the packet.
	Accept Verdict = iota
	// Drop drops the packet.
	Drop
	// Return continues with the rule after the jump to this chain. In a base chain it applies the
	// policy.
	Return
)

// Jump continues with another chain of the same table. At the end of that chain, the evaluation
// continues with the rule after the jump. Later actions of the rule have no effect.
type Jump struct {
	Chain string
	// If Goto is set, the end of Chain returns to the caller of the chain that contains this rule.
	Goto bool
}

// RedirectTo changes the destination to this host: at output to the loopback address, at prerouting
// to the address of the interface on which the packet arrived. It ends the evaluation of the base
// chain. Port 0 keeps the port. If Last is not 0, the kernel selects a port from Port to Last: the
// original port if it is in this range and free.
type RedirectTo struct{ Port, Last uint16 }

// DNATPort changes the destination port; it ends the evaluation of the base chain. If Last is not
// 0, the kernel selects a port from Port to Last.
type DNATPort struct{ Port, Last uint16 }

// DNATTo changes the destination address; it ends the evaluation of the base chain. If LastAddr is
// valid, the kernel selects an address from Addr to LastAddr. If Last is not 0, it selects a port
// from Port to Last. Port 0 keeps the port.
type DNATTo struct {
	Addr, LastAddr netip.Addr
	Port, Last     uint16
}

// SNATTo changes the source address, and keeps the source port if it is free at that address; it
// ends the evaluation of the base chain. Only NAT chains at postrouting and input can contain it.
type SNATTo struct{ Addr netip.Addr }

// TProxy assigns the packet to the transparent socket that listens on Port, and on Addr if it is
// valid. If such a socket exists, nftables continues with the later actions of this rule, otherwise
// with the next rule. Port 0 means the packet's destination port.
type TProxy struct {
	Port uint16
	Addr netip.Addr
}

// TProxyDrop is the TPROXY target of xtables: if a transparent socket listens, it assigns the
// packet to the socket, sets the mark and accepts the packet; otherwise it drops the packet.
type TProxyDrop struct {
	Port        uint16
	Value, Mask uint32 // as in [SetMark]
	Addr        netip.Addr
}

// Reject drops the packet and sends a reply. With is the reply in nft's syntax, or empty for nft's
// default. "tcp reset" is sent only for TCP.
type Reject struct{ With string }

// SetMark clears the bits of Mask in the packet's mark, and then xors the mark with Value.
type SetMark struct{ Value, Mask uint32 }

// SaveMark copies the packet's mark to the mark of its connection.
type SaveMark struct{}

// RestoreMark copies the connection's mark to the packet's mark. In nftables it ends the rule for a
// packet without a connection.
type RestoreMark struct{}

// MixMark sets the mark of the packet, or with Conntrack the mark of its connection, to (packet
// mark & Mark) ^ (connection mark & ConntrackMark) ^ Xor. If MixMark reads or writes the connection
// mark, it has no effect on a packet without a connection.
type MixMark struct {
	Conntrack bool
	// Mark and ConntrackMark are the masks of the packet's and the connection's mark.
	Mark, ConntrackMark uint32
	Xor                 uint32
}

// SetZone assigns a conntrack zone, unless an earlier rule assigned one. If Helper is not empty and
// the packet begins a connection, SetZone also assigns Helper as the connection's conntrack helper.
// Connections that the helper detects are related to this connection.
type SetZone struct {
	Zone   uint16
	Helper string
}

// Notrack disables conntrack for the packet, unless an earlier rule assigned a zone.
type Notrack struct{}

// Require ends the rule for packets that do not match. It represents a match after an action.
type Require struct{ Match Match }

// Count counts the packet and has no other effect.
type Count struct{}

// NoEffect is an action that has no effect on packets, such as log. Text is the action in nft's
// syntax, possibly without its options.
type NoEffect struct{ Text string }

// AffectsPackets reports whether the action may affect packets: Count and NoEffect do not.
func AffectsPackets(a Action) bool {
	switch a.(type) {
	case Count, NoEffect:
		return false
	}
	return true
}

// Effective returns the actions that may affect packets.
func Effective(actions []Action) []Action {
	return slices.DeleteFunc(slices.Clone(actions), func(a Action) bool { return !AffectsPackets(a) })
}

func (Verdict) action()     {}
func (Jump) action()        {}
func (RedirectTo) action()  {}
func (DNATPort) action()    {}
func (TProxy) action()      {}
func (TProxyDrop) action()  {}
func (SetMark) action()     {}
func (SaveMark) action()    {}
func (RestoreMark) action() {}
func (SetZone) action()     {}
func (Count) action()       {}
func (NoEffect) action()    {}
func (DNATTo) action()      {}
func (SNATTo) action()      {}
func (Reject) action()      {}
func (MixMark) action()     {}
func (Notrack) action()     {}
func (Require) action()     {}

// String returns the verdict in nft's syntax.
func (v Verdict) String() string { return [...]string{"accept", "drop", "return"}[v] }

// String returns the action in nft's syntax.
func (a Jump) String() string {
	if a.Goto {
		return "goto " + a.Chain
	}
	return "jump " + a.Chain
}

// portText returns ":80" or ":80-90", or an empty string if both ports are 0.
func portText(first, last uint16) string {
	if first == 0 && last == 0 {
		return ""
	}
	return ":" + portRange(first, last)
}

// portRange returns "80", or "80-90" if last is neither 0 nor equal to first.
func portRange(first, last uint16) string {
	return PortRange{First: first, Last: cmp.Or(last, first)}.String()
}

// String returns the action in nft's syntax.
func (a RedirectTo) String() string {
	if a.Port == 0 && a.Last == 0 {
		return "redirect"
	}
	return "redirect to " + portText(a.Port, a.Last)
}

// String returns the action in nft's syntax.
func (a DNATPort) String() string { return "dnat to " + portText(a.Port, a.Last) }

// String returns the action in nft's syntax.
func (a DNATTo) String() string {
	return "dnat " + FamilyOf(a.Addr).String() + " to " + a.destination()
}

// destination returns the addresses, and the ports if they are translated.
func (a DNATTo) destination() string {
	format := netip.Addr.String
	if a.Port != 0 {
		format = addrText
	}
	text := format(a.Addr)
	if a.LastAddr.IsValid() && a.LastAddr != a.Addr {
		text += "-" + format(a.LastAddr)
	}
	return text + portText(a.Port, a.Last)
}

// String returns the action in nft's syntax.
func (a SNATTo) String() string {
	return "snat " + FamilyOf(a.Addr).String() + " to " + a.Addr.String()
}

// String returns the action in nft's syntax.
func (a TProxy) String() string {
	if a.Addr.IsValid() {
		return "tproxy " + FamilyOf(a.Addr).String() + " to " + addrText(a.Addr) +
			portText(a.Port, 0)
	}
	return "tproxy to " + portText(a.Port, 0)
}

// addrText returns an address, in brackets if it is an IPv6 address.
func addrText(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}

// String returns the action in the form of iptables -L, because nft has no syntax for it.
func (a TProxyDrop) String() string {
	addr := "0.0.0.0"
	if a.Addr.IsValid() {
		addr = addrText(a.Addr)
	}
	return fmt.Sprintf("TPROXY redirect %s:%d mark 0x%x/0x%x", addr, a.Port, a.Value, a.Mask)
}

// For returns the action with the reply that the kernel sends to packets of the family, if the
// reply depends on the family: the default and the codes of icmpx (icmp_code_v4 and icmp_code_v6 in
// net/netfilter/nft_reject.c).
func (a Reject) For(f Family) Reject {
	if a.With == "" {
		a.With = "icmpx port-unreachable"
	}
	code, isICMPX := strings.CutPrefix(a.With, "icmpx ")
	if !isICMPX {
		return a
	}
	kind, codes := "icmp", map[string]string{"no-route": "net-unreachable"}
	if f == IPv6 {
		kind, codes = "icmpv6", map[string]string{"host-unreachable": "addr-unreachable"}
	}
	return Reject{With: kind + " " + cmp.Or(codes[code], code)}
}

// String returns the action in nft's syntax.
func (a Reject) String() string {
	if a.With == "" {
		return "reject"
	}
	return "reject with " + a.With
}

// String returns the action in nft's syntax.
func (a SetMark) String() string {
	switch {
	case a.Mask == ^uint32(0):
		return fmt.Sprintf("meta mark set 0x%x", a.Value)
	case a.Value&^a.Mask != 0:
		return fmt.Sprintf("meta mark set meta mark & 0x%x ^ 0x%x", ^a.Mask, a.Value)
	}
	return fmt.Sprintf("meta mark set meta mark & 0x%x | 0x%x", ^a.Mask, a.Value)
}

// String returns the action in nft's syntax. Old versions of nft do not accept a text with both
// marks.
func (a MixMark) String() string {
	var terms []string
	addTerm := func(key string, mask uint32) {
		switch mask {
		case 0:
		case ^uint32(0):
			terms = append(terms, key)
		default:
			terms = append(terms, fmt.Sprintf("%s & 0x%x", key, mask))
		}
	}
	addTerm("meta mark", a.Mark)
	addTerm("ct mark", a.ConntrackMark)
	if a.Xor != 0 || len(terms) == 0 {
		terms = append(terms, fmt.Sprintf("0x%x", a.Xor))
	}
	return markKey(a.Conntrack) + " set " + strings.Join(terms, " ^ ")
}

// String returns the action in nft's syntax.
func (Notrack) String() string { return "notrack" }

// String returns the text of the match.
func (a Require) String() string { return a.Match.String() }

// String returns the action in nft's syntax.
func (SaveMark) String() string { return "ct mark set meta mark" }

// String returns the action in nft's syntax.
func (RestoreMark) String() string { return "meta mark set ct mark" }

// String returns the action in nft's syntax.
func (a SetZone) String() string {
	text := fmt.Sprintf("ct zone set %d", a.Zone)
	if a.Helper != "" {
		text += fmt.Sprintf(" ct helper set %q", a.Helper)
	}
	return text
}

// String returns the action in nft's syntax.
func (Count) String() string { return "counter" }

// String returns the action in nft's syntax, without options.
func (a NoEffect) String() string { return a.Text }

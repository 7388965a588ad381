package rules

import (
	"fmt"
	"net/netip"
	"strings"
)

// An Action is something that a rule does with a packet. The types of this file, and [Unknown], are
// the only ones.
type Action interface {
	// String writes the action in nft's syntax.
	String() string
	action()
}

// Verdict ends the rule, and all but Continue-like returns end the chain.
type Verdict uint8

// The verdicts without an argument.
const (
	Accept Verdict = iota // the packet passes this hook's chain of this table; later chains still see it
	Drop                  // the packet is gone
	Return                // back to the rule after the jump; from a base chain, to its policy
)

// Jump continues in another chain of the same table and comes back at its end.
type Jump struct {
	Chain string
	// Goto does not come back here, but to where this chain was called from.
	Goto bool
}

// RedirectTo sends the connection to this host: to its loopback address at output, and at
// prerouting to the address of the interface by which the packet came. It ends the evaluation. Port
// 0 leaves the port as it is; Last, if it is not 0, makes it a range of which the kernel takes one,
// the connection's own if it is in the range and free.
type RedirectTo struct{ Port, Last uint16 }

// DNATPort sends the connection to another port of its destination; it ends the evaluation. Last,
// if it is not 0, makes it a range.
type DNATPort struct{ Port, Last uint16 }

// DNATTo sends the connection to another address; it ends the evaluation. LastAddr, if it is valid,
// makes it a range of which the kernel takes one, and so does Last for the port. Port 0 leaves the
// port as it is.
type DNATTo struct {
	Addr, LastAddr netip.Addr
	Port, Last     uint16
}

// TProxy hands the packet to the socket that listens transparently on the port, and on Addr if that
// is valid. nftables goes on with the next rule when no socket listens, and lets later actions of
// the rule set the mark and accept. Port 0 is the packet's own.
type TProxy struct {
	Port uint16
	Addr netip.Addr
}

// TProxyDrop is TProxy as xtables has it: it sets the mark and accepts when a socket listens, and
// drops when none does.
type TProxyDrop struct {
	Port        uint16
	Value, Mask uint32 // the mark loses the bits of Mask and is then xored with Value
	Addr        netip.Addr
}

// Reject drops the packet and answers it. With says by what, in nft's words; "tcp reset" answers
// TCP packets only.
type Reject struct{ With string }

// SetMark sets the packet's mark: it loses the bits of Mask and is then xored with Value.
type SetMark struct{ Value, Mask uint32 }

// SaveMark copies the packet's mark to its connection.
type SaveMark struct{}

// RestoreMark copies the connection's mark to its packet. In nftables a packet without connection
// ends the rule.
type RestoreMark struct{}

// MixMark sets the mark of the packet, or with Conntrack the mark of its connection, to (packet
// mark & Mark) ^ (connection mark & ConntrackMark) ^ Xor. If the packet has no connection and the
// connection's mark is read or written, the rule continues and changes nothing.
type MixMark struct {
	Conntrack           bool
	Mark, ConntrackMark uint32
	Xor                 uint32
}

// SetZone puts the packet into a conntrack zone, unless an earlier rule has put it into one. With a
// Helper it gives a connection that the packet begins conntrack's helper of that name, by which
// connections that this one announces are related to it.
type SetZone struct {
	Zone   uint16
	Helper string
}

// Notrack keeps conntrack from the packet, unless an earlier rule has put it into a zone.
type Notrack struct{}

// Require ends the rule for packets that do not fulfil the match. It represents a match after an
// action.
type Require struct{ Match Match }

// Count counts the packet and has no other effect.
type Count struct{}

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
func (DNATTo) action()      {}
func (Reject) action()      {}
func (MixMark) action()     {}
func (Notrack) action()     {}
func (Require) action()     {}

// String returns nft's word.
func (v Verdict) String() string { return [...]string{"accept", "drop", "return"}[v] }

// String writes the action in nft's syntax.
func (a Jump) String() string {
	if a.Goto {
		return "goto " + a.Chain
	}
	return "jump " + a.Chain
}

// portText writes ":80", ":80-90", or nothing for port 0.
func portText(first, last uint16) string {
	switch {
	case first == 0 && last == 0:
		return ""
	case last == 0 || last == first:
		return fmt.Sprintf(":%d", first)
	}
	return fmt.Sprintf(":%d-%d", first, last)
}

// String writes the action in nft's syntax.
func (a RedirectTo) String() string {
	if a.Port == 0 && a.Last == 0 {
		return "redirect"
	}
	return "redirect to " + portText(a.Port, a.Last)
}

// String writes the action in nft's syntax.
func (a DNATPort) String() string { return "dnat to " + portText(a.Port, a.Last) }

// String writes the action in nft's syntax.
func (a DNATTo) String() string {
	text := a.Addr.String()
	if a.Addr.Is6() && a.Port != 0 {
		text = "[" + text + "]"
	}
	if a.LastAddr.IsValid() && a.LastAddr != a.Addr {
		text += "-" + a.LastAddr.String()
	}
	return "dnat " + FamilyOf(a.Addr).String() + " to " + text + portText(a.Port, a.Last)
}

// String writes the action in nft's syntax.
func (a TProxy) String() string {
	if a.Addr.IsValid() {
		return "tproxy " + FamilyOf(a.Addr).String() + " to " + addrText(a.Addr) + portText(a.Port, 0)
	}
	return "tproxy to " + portText(a.Port, 0)
}

// addrText puts an IPv6 address into brackets.
func addrText(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}

// String writes the action in iptables' words: nft has none for it.
func (a TProxyDrop) String() string {
	addr := "0.0.0.0"
	if a.Addr.IsValid() {
		addr = addrText(a.Addr)
	}
	return fmt.Sprintf("TPROXY redirect %s:%d mark 0x%x/0x%x", addr, a.Port, a.Value, a.Mask)
}

// String writes the action in nft's syntax.
func (a Reject) String() string {
	if a.With == "" {
		return "reject"
	}
	return "reject with " + a.With
}

// String writes the action in nft's syntax.
func (a SetMark) String() string {
	switch {
	case a.Mask == ^uint32(0):
		return fmt.Sprintf("meta mark set 0x%x", a.Value)
	case a.Value&^a.Mask != 0:
		return fmt.Sprintf("meta mark set meta mark & 0x%x ^ 0x%x", ^a.Mask, a.Value)
	}
	return fmt.Sprintf("meta mark set meta mark & 0x%x | 0x%x", ^a.Mask, a.Value)
}

// String writes the action in nft's syntax, as far as nft has one for it.
func (a MixMark) String() string {
	var terms []string
	term := func(key string, mask uint32) {
		switch mask {
		case 0:
		case ^uint32(0):
			terms = append(terms, key)
		default:
			terms = append(terms, fmt.Sprintf("%s & 0x%x", key, mask))
		}
	}
	term("meta mark", a.Mark)
	term("ct mark", a.ConntrackMark)
	if a.Xor != 0 || len(terms) == 0 {
		terms = append(terms, fmt.Sprintf("0x%x", a.Xor))
	}
	return markKey(a.Conntrack) + " set " + strings.Join(terms, " ^ ")
}

// String writes the action in nft's syntax.
func (Notrack) String() string { return "notrack" }

// String writes the match.
func (a Require) String() string { return a.Match.String() }

// String writes the action in nft's syntax.
func (SaveMark) String() string { return "ct mark set meta mark" }

// String writes the action in nft's syntax.
func (RestoreMark) String() string { return "meta mark set ct mark" }

// String writes the action in nft's syntax.
func (a SetZone) String() string {
	text := fmt.Sprintf("ct zone set %d", a.Zone)
	if a.Helper != "" {
		text += fmt.Sprintf(" ct helper set %q", a.Helper)
	}
	return text
}

// String writes the action in nft's syntax.
func (Count) String() string { return "counter" }

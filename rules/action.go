package rules

import "fmt"

// An Action is something that a rule does with a packet. The types of this file, and [Unknown], are the only ones.
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

// RedirectTo sends the connection to a port of this host (of lo for outbound connections); it ends the evaluation.
type RedirectTo struct{ Port uint16 }

// DNATPort sends the connection to another port of its destination; it ends the evaluation.
type DNATPort struct{ Port uint16 }

// TProxy hands the packet to the socket that listens transparently on the port. nftables goes on with the next rule when no
// socket listens, and lets later actions of the rule set the mark and accept.
type TProxy struct{ Port uint16 }

// TProxyDrop is TProxy as xtables has it: it sets the mark and accepts when a socket listens, and drops when none does.
type TProxyDrop struct {
	Port        uint16
	Value, Mask uint32 // the mark, set in the bits of Mask
}

// SetMark sets the packet's mark, in the bits of Mask.
type SetMark struct{ Value, Mask uint32 }

// SaveMark copies the packet's mark to its connection.
type SaveMark struct{}

// RestoreMark copies the connection's mark to its packet.
type RestoreMark struct{}

// SetZone puts the packet into a conntrack zone, unless an earlier rule has put it into one.
type SetZone struct{ Zone uint16 }

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
func (Unknown) action()     {}

// String returns nft's word.
func (v Verdict) String() string { return [...]string{"accept", "drop", "return"}[v] }

// String writes the action in nft's syntax.
func (a Jump) String() string {
	if a.Goto {
		return "goto " + a.Chain
	}
	return "jump " + a.Chain
}

// String writes the action in nft's syntax.
func (a RedirectTo) String() string { return fmt.Sprintf("redirect to :%d", a.Port) }

// String writes the action in nft's syntax.
func (a DNATPort) String() string { return fmt.Sprintf("dnat to :%d", a.Port) }

// String writes the action in nft's syntax.
func (a TProxy) String() string { return fmt.Sprintf("tproxy to :%d", a.Port) }

// String writes the action in iptables' words: nft has none for it.
func (a TProxyDrop) String() string {
	return fmt.Sprintf("TPROXY redirect 0.0.0.0:%d mark 0x%x/0x%x", a.Port, a.Value, a.Mask)
}

// String writes the action in nft's syntax.
func (a SetMark) String() string {
	if a.Mask == ^uint32(0) {
		return fmt.Sprintf("meta mark set 0x%x", a.Value)
	}
	return fmt.Sprintf("meta mark set meta mark & 0x%x | 0x%x", ^a.Mask, a.Value)
}

// String writes the action in nft's syntax.
func (SaveMark) String() string { return "ct mark set meta mark" }

// String writes the action in nft's syntax.
func (RestoreMark) String() string { return "meta mark set ct mark" }

// String writes the action in nft's syntax.
func (a SetZone) String() string { return fmt.Sprintf("ct zone set %d", a.Zone) }

// String writes the action in nft's syntax.
func (Count) String() string { return "counter" }

package rules

import (
	"fmt"
	"strings"
)

// MatchState matches packets that are in one of the states. In addition to its [State] a packet is
// in [SNAT] or [DNAT], or in both, if its connection is translated.
type MatchState struct {
	Not    bool
	States StateSet
}

// MatchStatus matches packets of a connection with any of the status bits. A packet without a
// connection does not match, even with Not.
type MatchStatus struct {
	Not    bool
	Status Status
}

// MatchDirection matches packets of a connection in the original direction, or with Reply in the
// reply direction. A packet without a connection does not match.
type MatchDirection struct{ Reply bool }

func (m MatchState) rank() int     { return 12 }
func (m MatchStatus) rank() int    { return 12 }
func (m MatchDirection) rank() int { return 12 }

// String returns the match in nft's syntax.
func (m MatchState) String() string { return "ct state " + not(m.Not) + m.States.String() }

// String returns the match in nft's syntax.
func (m MatchStatus) String() string { return "ct status " + not(m.Not) + m.Status.String() }

// String returns the match in nft's syntax.
func (m MatchDirection) String() string {
	if m.Reply {
		return "ct direction reply"
	}
	return "ct direction original"
}

// Status is a set of status bits of a connection: enum ip_conntrack_status in
// linux/netfilter/nf_conntrack_common.h, except the kernel's internal ones.
type Status uint8

// The status bits.
const (
	StatusExpected  Status = 1 << iota // another connection announced the connection
	StatusSeenReply                    // packets were seen in both directions
	StatusAssured                      // a full conntrack table does not drop the connection early
	StatusConfirmed                    // the first packet has passed the last hook
	StatusSNAT                         // the source is translated
	StatusDNAT                         // the destination is translated

	// AllStatus contains all status bits.
	AllStatus = StatusExpected | StatusSeenReply | StatusAssured | StatusConfirmed | StatusSNAT |
		StatusDNAT
)

var statusNames = [...]string{"expected", "seen-reply", "assured", "confirmed", "snat", "dnat"}

// String returns the bits in nft's syntax, or 0 if there are none.
func (s Status) String() string {
	if s == 0 {
		return "0"
	}
	return strings.Join(namesOfBits(uint8(s), statusNames[:]), ",")
}

// MatchMark matches packets whose mark has the Value in the bits of Mask. With Conntrack the mark
// of the connection is compared; a packet without a connection does not match.
type MatchMark struct {
	Conntrack   bool
	Not         bool
	Value, Mask uint32
}

// MatchMarkRange matches packets whose mark is in one of the ranges. With Conntrack the mark of the
// connection is compared; a packet without a connection does not match.
type MatchMarkRange struct {
	Conntrack bool
	Not       bool
	Values    []Range[uint32] // normalized
}

func (m MatchMark) rank() int      { return rankOfMark(m.Conntrack) }
func (m MatchMarkRange) rank() int { return rankOfMark(m.Conntrack) }

// rankOfMark returns the rank of a match on a mark of the packet or, if conntrack is set, of its
// connection.
func rankOfMark(conntrack bool) int {
	if conntrack {
		return 11
	}
	return 10
}

// markKey returns nft's name of the packet's mark or, if conntrack is set, of its connection's
// mark.
func markKey(conntrack bool) string {
	if conntrack {
		return "ct mark"
	}
	return "meta mark"
}

// String returns the match in nft's syntax.
func (m MatchMark) String() string {
	if m.Mask == ^uint32(0) {
		return fmt.Sprintf("%s %s0x%x", markKey(m.Conntrack), not(m.Not), m.Value)
	}
	return fmt.Sprintf("%s & 0x%x %s 0x%x", markKey(m.Conntrack), m.Mask, equality(m.Not), m.Value)
}

// String returns the match in nft's syntax.
func (m MatchMarkRange) String() string {
	return markKey(m.Conntrack) + " " + operand(m.Not, m.Values, Range[uint32].String)
}

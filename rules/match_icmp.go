package rules

import (
	"fmt"
)

// MatchICMP matches ICMP packets by type and code.
type MatchICMP struct {
	V6     bool // ICMPv6 instead of ICMP
	Not    bool
	Values []Range[uint16] // type<<8 | code; normalized
}

func (m MatchICMP) rank() int { return 6 }

// String returns the match in a notation similar to nft's, which nft does not accept.
func (m MatchICMP) String() string {
	key := "icmp type . code "
	if m.V6 {
		key = "icmpv6 type . code "
	}
	return key + operand(m.Not, m.Values, func(r Range[uint16]) string {
		switch {
		case r.IsSingle():
			return fmt.Sprintf("%d . %d", r.First>>8, r.First&0xff)
		case r.First&0xff == 0 && r.Last == r.First|0xff:
			return fmt.Sprintf("%d . *", r.First>>8)
		}
		return fmt.Sprintf("%d . %d-%d . %d", r.First>>8, r.First&0xff, r.Last>>8, r.Last&0xff)
	})
}

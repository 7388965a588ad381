package trace

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// A Filter selects the packets to trace. The zero value selects all packets.
type Filter struct {
	// In selects packets that arrive from another host, and Out packets that local sockets send. If
	// both are false, both kinds are selected.
	In, Out bool
	// To and From are the destination and the source of the packet when it enters its first hook.
	// An invalid address means any address, and port 0 any port.
	To, From netip.AddrPort
	// Port is the destination port. 0 means any port.
	Port uint16
	// UID is the user of the sending socket. nil means any user. Only packets of local sockets
	// have a user.
	UID *uint32
}

// HasHook reports whether the filter selects packets at the hook.
func (f Filter) HasHook(h rules.Hook) bool {
	if f.In == f.Out {
		// Both kinds of packets are selected. Only packets of local sockets have a user.
		return h == rules.Output || f.UID == nil
	}
	return f.Out == (h == rules.Output)
}

// Matches returns the conditions of the filter on packets at all hooks.
func (f Filter) Matches() []rules.Match {
	var list []rules.Match
	add := func(s rules.Side, a netip.Addr, port uint16) {
		if a.IsValid() {
			list = append(list, rules.MatchAddr{
				Side: s, Ranges: []netipx.IPRange{netipx.IPRangeFrom(a, a)},
			})
		}
		if port != 0 {
			list = append(list, rules.MatchPort{Side: s, Ports: rules.Singles(port)})
		}
	}
	add(rules.Source, f.From.Addr(), f.From.Port())
	add(rules.Destination, f.To.Addr(), cmp.Or(f.To.Port(), f.Port))
	if f.UID != nil {
		list = append(list, rules.MatchOwner{IDs: rules.Singles(*f.UID)})
	}
	return list
}

// NotFromLoopback returns the condition on packets at prerouting: packets from lo were sent by
// local sockets, and are selected at output.
func NotFromLoopback() rules.Match {
	return rules.MatchInterface{Not: true, Names: []rules.InterfaceName{{Name: "lo"}}}
}

// FirstSegment returns the conditions on the first TCP segment of a connection.
func FirstSegment() []rules.Match {
	return []rules.Match{
		rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}},
		rules.MatchTCPFlags{
			Mask: rules.FIN | rules.SYN | rules.RST | rules.ACK, Value: rules.SYN,
		},
	}
}

// firstPacket returns the conditions on packets of protocols other than TCP in the conntrack state
// new.
func firstPacket() []rules.Match {
	return []rules.Match{
		rules.MatchProtocol{Not: true, Protocols: []rules.Protocol{rules.TCP}},
		rules.MatchState{States: rules.States(rules.New)},
	}
}

// expressions returns the expressions of a rule at a hook. The rule enables tracing of the packets
// that meet the conditions and that the filter selects, for at most rate packets per second on
// average, with a burst of the same number.
func (f Filter) expressions(
	h rules.Hook, conditions []rules.Match, rate uint32,
) ([]expr.Any, error) {
	matches := slices.Concat(conditions, f.Matches())
	if h == rules.Prerouting {
		matches = append(matches, NotFromLoopback())
	}
	rules.SortMatches(matches)
	list, err := nft.MatchExpressions(matches)
	return append(list,
		&expr.Limit{
			Type: expr.LimitTypePkts, Rate: uint64(rate), Unit: expr.LimitTimeSecond, Burst: rate,
		},
		&expr.Immediate{Register: unix.NFT_REG_1, Data: []byte{1}},
		&expr.Meta{Key: expr.MetaKeyNFTRACE, SourceRegister: true, Register: unix.NFT_REG_1},
	), err
}

package trace

import (
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/conntrack"
	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// Attributes of a logged packet (linux/netfilter/nfnetlink_log.h).
const (
	attrPacketHeader   = 1
	attrLoggedMark     = 2
	attrInDevice       = 4
	attrOutDevice      = 5
	attrPayload        = 9
	attrPrefix         = 10
	attrUID            = 11
	attrGID            = 14
	attrConnection     = 18 // a connection of conntrack, linux/netfilter/nfnetlink_conntrack.h
	attrConnectionInfo = 19 // enum ip_conntrack_info
)

// decodeLogged decodes a logged packet. It returns false if the prefix does not belong to a trace,
// for example because a rule with the target NFLOG logged the packet, or if the message is
// incomplete.
func decodeLogged(payload []byte) (Event, bool) {
	if len(payload) < nfgenmsgLength {
		return Event{}, false
	}
	family, a := payload[0], nlmsg.Attributes(payload[nfgenmsgLength:])
	header := a.Get(attrPacketHeader) // struct nfulnl_msg_packet_hdr, whose third byte is the hook
	connection := nlmsg.Attributes(a.Get(attrConnection))
	_, original := conntrack.DecodeTuple(connection.Get(nl.CTA_TUPLE_ORIG))
	e := Event{
		Family: route.FamilyOf(int(family)), Mark: a.Number(attrLoggedMark), In: a.Number(attrInDevice),
		Out: a.Number(attrOutDevice), Confirmed: isConfirmed(connection.Number(nl.CTA_STATUS)),
	}
	if original.Destination.Addr().IsValid() {
		e.Original = original.Destination
	}
	if a.Get(attrConnectionInfo) != nil {
		e.setConnectionState(a.Number(attrConnectionInfo))
	}
	if len(header) < 3 || rules.Hook(header[2]) >= rules.Ingress || !e.setPosition(a.Text(attrPrefix)) {
		return Event{}, false
	}
	e.Hook = rules.Hook(header[2])
	if a.Get(attrUID) != nil && a.Get(attrGID) != nil {
		e.Owner = &rules.Owner{UID: a.Number(attrUID), GID: a.Number(attrGID)}
	}
	network, transport := splitPacket(family, a.Get(attrPayload))
	e.Header = decodeHeader(uint32(family), network, transport)
	return e, e.Header != nil
}

// setPosition sets the table, the chain and the number from the prefix of a trace, such as
// "TRACE: nat:OUTPUT:rule:1 ". It returns false if it cannot decode the prefix.
func (e *Event) setPosition(prefix string) bool {
	words := strings.Split(strings.TrimSpace(prefix), ":")
	if len(words) != 5 || words[0] != "TRACE" {
		return false // for example because the name of the chain contains a colon
	}
	n, err := strconv.Atoi(words[4])
	if err != nil || n < 1 {
		return false
	}
	e.Table, e.Chain, e.Number = strings.TrimSpace(words[1]), words[2], n
	// words[3] does not distinguish the end of a chain: the kernel also writes "policy" or "return"
	// instead of "rule" for every rule without conditions whose target is ACCEPT, DROP or RETURN.
	e.Kind = Rule
	return true
}

// splitPacket returns the network header of a packet and the bytes after it. The network header
// contains IPv4 options, but no IPv6 extension headers.
func splitPacket(family uint8, packet []byte) (network, transport []byte) {
	length := 40 // of the IPv6 header
	if family == unix.AF_INET {
		if len(packet) == 0 {
			return nil, nil
		}
		length = 4 * int(packet[0]&0xf)
	}
	if len(packet) < length {
		return packet, nil
	}
	return packet[:length], packet[length:]
}

// setConnectionState sets the state and the direction. info is a number of enum ip_conntrack_info
// (linux/netfilter/nf_conntrack_common.h).
func (e *Event) setConnectionState(info uint32) {
	const related, isNew, establishedReply, relatedReply, untracked = 1, 2, 3, 4, 7
	e.HasState, e.Reply = true, info >= establishedReply && info < untracked
	switch info {
	case untracked:
		e.State = rules.Untracked
	case isNew:
		e.State = rules.New
	case related, relatedReply:
		e.State = rules.Related
	default:
		e.State = rules.Established
	}
}

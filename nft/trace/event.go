package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// Kind is the type of an event (enum nft_trace_types in linux/netfilter/nf_tables.h).
type Kind uint32

// The kinds.
const (
	// Policy is the end of a base chain, where its policy decides.
	Policy Kind = unix.NFT_TRACETYPE_POLICY
	// Return is the end of a chain that a rule jumped to.
	Return Kind = unix.NFT_TRACETYPE_RETURN
	// Rule is a rule that matched.
	Rule Kind = unix.NFT_TRACETYPE_RULE
)

// Verdict is the result of a rule or a policy. Its values are the kernel's: negative values of enum
// nft_verdicts, and other values of linux/netfilter.h.
type Verdict int32

// The verdicts.
const (
	Drop     Verdict = 0
	Accept   Verdict = 1
	Stolen   Verdict = 2
	Queue    Verdict = 3
	Continue Verdict = unix.NFT_CONTINUE
	Break    Verdict = unix.NFT_BREAK
	Jump     Verdict = unix.NFT_JUMP
	Goto     Verdict = unix.NFT_GOTO
	Returned Verdict = unix.NFT_RETURN
)

// verdictMask is NF_VERDICT_MASK. It removes the upper bits of a verdict, which are the number of a
// queue or an error.
const verdictMask = 0xff

// An Event is one message of the kernel about one packet.
type Event struct {
	Kind Kind
	// ID is the kernel's id of the packet. The kernel assigns a new id when the packet passes an
	// interface, such as lo. Events of iptables-legacy have no id.
	ID uint32
	// Family is the family of the table.
	Family       rules.Family
	Table, Chain string
	Handle       rules.Handle // of the rule, if Kind is Rule
	Verdict      Verdict      // of a rule, or the policy
	Target       string       // chain of Jump and Goto
	Mark         uint32
	// In and Out are interface indexes. 0 means that the packet has no such interface, or that the
	// event omits the index.
	In, Out uint32
	// Header contains the headers of the packet. It is nil if the event omits them. The kernel
	// sends them in the first event of each base chain.
	Header *Header
	// State is the conntrack state, if HasState. nf_tables sends State, Reply and Confirmed from
	// Linux 6.16 on.
	State    rules.State
	HasState bool
	Reply    bool // the packet has the reply direction of its connection
	// Confirmed reports that conntrack has confirmed the connection: an earlier packet has passed
	// all hooks, or this packet has passed the hooks before lo.
	Confirmed bool

	// Number is 0 for events of nf_tables. For events of iptables-legacy, it is the number of the
	// rule in its chain, from 1 on. The policy of a chain, and the return at the end of a
	// user-defined chain, have the number after the last rule. Events of iptables-legacy have Hook
	// instead of Handle and Verdict, always a Header, and always the Kind Rule.
	Number int
	Hook   rules.Hook
	// Owner is the owner of the sending socket, if the event has it.
	Owner *rules.Owner
	// Original is the destination of the connection before NAT, if the event has it.
	Original netip.AddrPort
}

// isLegacy reports whether the event is of iptables-legacy.
func (e *Event) isLegacy() bool { return e.Number > 0 }

// isSelection reports whether the event is of a rule of a session's own table. These rules select
// the packets to trace. The end of a chain of this table is not a selection: the kernel also
// reports it for packets that another program's rule selected.
func (e *Event) isSelection() bool { return e.Kind == Rule && e.Table == Table && !e.isLegacy() }

// A Header contains the headers of a packet. Ports are 0 if the protocol has none or the header is
// incomplete.
type Header struct {
	Protocol            rules.Protocol
	Source, Destination netip.AddrPort
	Flags               rules.TCPFlags // only for TCP
	Sequence            uint32         // only for TCP
	// ICMPType and ICMPCode are only for ICMP and ICMPv6.
	ICMPType, ICMPCode uint8
}

// Attributes that golang.org/x/sys/unix lacks (Linux 6.16, linux/netfilter/nf_tables.h).
const (
	attrDirection = 19
	attrStatus    = 20
	attrState     = 21
)

// Bits of NFTA_TRACE_CT_STATUS (enum ip_conntrack_status). A template is a conntrack entry that
// "-j CT" of xtables attaches to a packet. It has the bit of a confirmed connection, but is not the
// connection of the packet.
const (
	statusConfirmed = 1 << 3  // IPS_CONFIRMED
	statusTemplate  = 1 << 11 // IPS_TEMPLATE
)

// errMalformed is the error for a message whose attributes are not well-formed.
var errMalformed = errors.New("malformed trace message")

// Decode decodes the payload of a message NFT_MSG_TRACE, which begins with the nfnetlink header.
func Decode(payload []byte) (Event, error) {
	if len(payload) < nfgenmsgLength || !isWellFormed(payload[nfgenmsgLength:]) {
		return Event{}, errMalformed
	}
	a := nlmsg.Attributes(payload[nfgenmsgLength:])
	e := Event{
		Kind: Kind(a.Number(unix.NFTA_TRACE_TYPE)), ID: a.Number(unix.NFTA_TRACE_ID),
		Family: route.FamilyOf(int(payload[0])),
		Table:  a.Text(unix.NFTA_TRACE_TABLE), Chain: a.Text(unix.NFTA_TRACE_CHAIN),
		Handle:  rules.Handle(a.Number64(unix.NFTA_TRACE_RULE_HANDLE)),
		Verdict: Verdict(a.Number(unix.NFTA_TRACE_POLICY) & verdictMask),
		Mark:    a.Number(unix.NFTA_TRACE_MARK), In: a.Number(unix.NFTA_TRACE_IIF),
		Out:   a.Number(unix.NFTA_TRACE_OIF),
		Reply: bytes.Equal(a.Get(attrDirection), []byte{1}), Confirmed: isConfirmed(a.Number(attrStatus)),
	}
	if v := nlmsg.Attributes(a.Get(unix.NFTA_TRACE_VERDICT)); v != nil {
		if e.Verdict = Verdict(int32(v.Number(unix.NFTA_VERDICT_CODE))); e.Verdict >= 0 {
			e.Verdict &= verdictMask
		}
		e.Target = v.Text(unix.NFTA_VERDICT_CHAIN)
	}
	e.State, e.HasState = decodeState(a.Number(attrState))
	if e.Kind == Rule && e.Handle == 0 {
		e.Kind = Return // Linux 6.18 reports the end of a chain as a rule without a handle
	}
	e.Header = decodeHeader(a.Number(unix.NFTA_TRACE_NFPROTO), a.Get(unix.NFTA_TRACE_NETWORK_HEADER),
		a.Get(unix.NFTA_TRACE_TRANSPORT_HEADER))
	return e, nil
}

// isWellFormed reports whether the attributes of a trace message are well-formed, and all numbers
// have the expected lengths.
func isWellFormed(a nlmsg.Attributes) bool {
	hasExpectedLengths := true
	return a.Each(func(kind uint16, value []byte) {
		switch kind {
		case unix.NFTA_TRACE_TYPE, unix.NFTA_TRACE_ID, unix.NFTA_TRACE_POLICY, unix.NFTA_TRACE_MARK,
			unix.NFTA_TRACE_IIF, unix.NFTA_TRACE_OIF, unix.NFTA_TRACE_NFPROTO, attrStatus, attrState:
			hasExpectedLengths = hasExpectedLengths && len(value) == 4
		case unix.NFTA_TRACE_RULE_HANDLE:
			hasExpectedLengths = hasExpectedLengths && len(value) == 8
		}
	}) && hasExpectedLengths
}

// nfgenmsgLength is the size of struct nfgenmsg.
const nfgenmsgLength = 4

// isConfirmed reports whether the bits are the status of a confirmed connection.
func isConfirmed(status uint32) bool {
	return status&(statusConfirmed|statusTemplate) == statusConfirmed
}

// decodeState returns the conntrack state for the bits of NFTA_TRACE_CT_STATE. ok is false if no
// bit of a known state is set.
func decodeState(bits uint32) (state rules.State, ok bool) {
	for _, s := range []rules.State{
		rules.New, rules.Established, rules.Related, rules.Untracked, rules.Invalid,
	} {
		if bits&nft.StateBit(s) != 0 {
			return s, true
		}
	}
	return 0, false
}

// decodeHeader decodes the headers (RFC 791, 792, 8200, 9293). It returns nil if the network header
// is incomplete.
func decodeHeader(family uint32, network, transport []byte) *Header {
	var h Header
	var source, destination netip.Addr
	switch {
	case family == unix.NFPROTO_IPV4 && len(network) >= 20:
		h.Protocol = rules.Protocol(network[9])
		source, _ = netip.AddrFromSlice(network[12:16])
		destination, _ = netip.AddrFromSlice(network[16:20])
	case family == unix.NFPROTO_IPV6 && len(network) >= 40:
		h.Protocol = rules.Protocol(network[6])
		source, _ = netip.AddrFromSlice(network[8:24])
		destination, _ = netip.AddrFromSlice(network[24:40])
	default:
		return nil
	}
	var ports [2]uint16
	switch {
	case h.Protocol.HasPorts() && len(transport) >= 4:
		ports = [2]uint16{
			binary.BigEndian.Uint16(transport), binary.BigEndian.Uint16(transport[2:]),
		}
		if h.Protocol == rules.TCP && len(transport) >= 14 {
			h.Flags = rules.TCPFlags(transport[13])
			h.Sequence = binary.BigEndian.Uint32(transport[4:])
		}
	case (h.Protocol == rules.ICMP || h.Protocol == rules.ICMPv6) && len(transport) >= 2:
		h.ICMPType, h.ICMPCode = transport[0], transport[1]
	}
	h.Source = netip.AddrPortFrom(source, ports[0])
	h.Destination = netip.AddrPortFrom(destination, ports[1])
	return &h
}

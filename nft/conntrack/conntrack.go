// Package conntrack lists and deletes the conntrack entries of a network namespace.
//
// A process of the namespace can open as many connections as the node's sysctl
// net.netfilter.nf_conntrack_max allows, often a million. Therefore the package keeps no list: the
// caller decides which entries to keep.
package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// An Entry is the conntrack entry of a TCP or UDP connection.
type Entry struct {
	Protocol rules.Protocol
	// Original contains the addresses of the first packet, and Reply the addresses that conntrack
	// expects in an answer, after NAT.
	Original, Reply Tuple
	// Zone is the conntrack zone of both directions; 0 if it is the default zone or each direction
	// has its own.
	Zone uint16

	// message is the kernel's message in the receive buffer.
	message []byte
}

// A Tuple contains the addresses of one direction of a connection.
type Tuple struct{ Source, Destination netip.AddrPort }

// The types of messages.
const (
	messageNew    = unix.NFNL_SUBSYS_CTNETLINK<<8 | nl.IPCTNL_MSG_CT_NEW
	messageGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | nl.IPCTNL_MSG_CT_GET
	messageDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | nl.IPCTNL_MSG_CT_DELETE
)

// headerSize is the size of struct nfgenmsg, which attributes follow.
const headerSize = 4

// List iterates over the entries of TCP and UDP connections in the namespace of the thread. It
// needs CAP_NET_ADMIN in the user namespace that owns the network namespace. An error is the last
// element.
//
// A list may lack entries that are added or removed during the iteration. The loop may delete the
// entries that it has received.
func List() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		request := nlmsg.NewRequest(messageGet, unix.NLM_F_DUMP,
			unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0)
		for m, err := range nlmsg.Dump(unix.NETLINK_NETFILTER, request) {
			if err != nil {
				yield(Entry{}, fmt.Errorf("list conntrack entries: %w", err))
				return
			}
			if e, ok := decode(m); ok && !yield(e, nil) {
				return
			}
		}
	}
}

// Delete deletes an entry. It must be called before the iteration of [List] that has returned the
// entry continues. It returns no error if the entry no longer exists.
func (e Entry) Delete() error {
	// The kernel compares the id in the message.
	request := nlmsg.NewRequest(messageDelete, unix.NLM_F_ACK, e.message...)
	_, err := nlmsg.Request(unix.NETLINK_NETFILTER, request, func(nlmsg.Message) error { return nil })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete a conntrack entry: %w", err)
	}
	return nil
}

// decode decodes the entry of a TCP or UDP connection.
func decode(m nlmsg.Message) (e Entry, ok bool) {
	if m.Type != messageNew || len(m.Body) < headerSize {
		return Entry{}, false
	}
	a := nlmsg.Attributes(m.Body[headerSize:])
	e = Entry{Zone: number16(a.Get(nl.CTA_ZONE)), message: m.Body}
	e.Protocol, e.Original = DecodeTuple(a.Get(nl.CTA_TUPLE_ORIG))
	_, e.Reply = DecodeTuple(a.Get(nl.CTA_TUPLE_REPLY))
	return e, e.Protocol == rules.TCP || e.Protocol == rules.UDP
}

// DecodeTuple decodes the protocol and the addresses of a tuple, such as CTA_TUPLE_ORIG. A missing
// protocol or port is 0, and a missing address is invalid.
func DecodeTuple(tuple nlmsg.Attributes) (rules.Protocol, Tuple) {
	ip := nlmsg.Attributes(tuple.Get(nl.CTA_TUPLE_IP))
	protocol := nlmsg.Attributes(tuple.Get(nl.CTA_TUPLE_PROTO))
	var number rules.Protocol
	if value := protocol.Get(nl.CTA_PROTO_NUM); len(value) == 1 {
		number = rules.Protocol(value[0])
	}
	return number, Tuple{
		netip.AddrPortFrom(addr(ip, nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC),
			number16(protocol.Get(nl.CTA_PROTO_SRC_PORT))),
		netip.AddrPortFrom(addr(ip, nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST),
			number16(protocol.Get(nl.CTA_PROTO_DST_PORT))),
	}
}

// addr decodes an address that is one of two attributes. It is invalid if both are absent.
func addr(ip nlmsg.Attributes, attrIPv4, attrIPv6 uint16) netip.Addr {
	if a, ok := netip.AddrFromSlice(ip.Get(attrIPv4)); ok {
		return a
	}
	a, _ := netip.AddrFromSlice(ip.Get(attrIPv6))
	return a
}

// number16 decodes a 16-bit number in network byte order. It returns 0 if the value has another
// length.
func number16(value []byte) uint16 {
	if len(value) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(value)
}

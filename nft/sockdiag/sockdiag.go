// Package sockdiag lists and destroys the TCP and UDP sockets of a network namespace with the
// kernel's protocol NETLINK_SOCK_DIAG (CONFIG_INET_DIAG), see sock_diag(7).
//
// A process of the namespace can open any number of sockets. Therefore the package keeps no list:
// the caller decides which sockets to keep.
package sockdiag

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// A State is the state of a socket (include/net/tcp_states.h in the kernel). An unconnected UDP
// socket has the state Close.
type State uint8

// States of sockets.
const (
	TimeWait State = 6
	Close    State = 7
	Listen   State = 10
	Closing  State = 11
)

// States is a set of states: it includes the state n if the bit 1<<n is set.
type States uint32

// Sets of states.
const (
	AnyState  = ^States(0)
	Listening = States(1 << Listen)
	// Connected contains the states of TCP connections except TIME_WAIT. Sockets of incoming
	// connections whose handshake is not complete have the state SYN_RECV, and no user.
	Connected = States(1<<Listen-1)&^(1<<TimeWait|1<<Close) | 1<<Closing
)

// A Socket is a TCP or UDP socket.
type Socket struct {
	// Local and Peer are the local and the peer address. An IPv4-mapped address is returned as
	// IPv4.
	Local, Peer netip.AddrPort
	Properties
}

// Properties are the properties of a socket without its addresses.
type Properties struct {
	family uint8 // unix.AF_INET or unix.AF_INET6
	State  State
	// HasMark reports whether Mark is SO_MARK of the socket. Mark is unknown without CAP_NET_ADMIN
	// in the user namespace that owns the network namespace, and for a socket in TIME_WAIT.
	HasMark bool
	Mark    uint32
	// UID is the user of the socket, as an id of the user namespace of this process. INode is 0 if
	// no process can use the socket; UID is then 0.
	UID, INode uint32
	device     uint32
	cookie     [8]byte
}

// The layout of struct inet_diag_msg of linux/inet_diag.h, which attributes follow.
const (
	offsetID    = 4 // struct inet_diag_sockid
	offsetUID   = 64
	offsetINode = 68
	messageSize = 72
	// attrMark is INET_DIAG_MARK.
	attrMark = 15
)

// The layout of struct inet_diag_sockid.
const (
	offsetDestinationPort = 2
	offsetSource          = 4
	offsetDestination     = 20
	offsetDevice          = 36
	offsetCookie          = 40
	idSize                = 48
)

// List iterates over the sockets of the protocol, TCP or UDP, with one of the states in the
// namespace of the thread: first of IPv4, then of IPv6. An error is the last element.
//
// A list may lack sockets that are opened or closed during the iteration, and contain sockets that
// have just changed to another state.
func List(p rules.Protocol, states States) iter.Seq2[Socket, error] {
	return func(yield func(Socket, error) bool) {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			request := newRequest(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP, family, p, states,
				make([]byte, idSize))
			for m, err := range nlmsg.Dump(unix.NETLINK_SOCK_DIAG, request) {
				var s Socket
				if err == nil {
					s, err = decode(m.Body)
				}
				if err != nil {
					yield(Socket{}, fmt.Errorf("list %s sockets: %w", p, err))
					return
				}
				if !yield(s, nil) {
					return
				}
			}
		}
	}
}

// Destroy destroys a TCP socket, which resets its connection. It needs CAP_NET_ADMIN in the user
// namespace that owns the network namespace. The error is [unix.ENOENT] if the socket has been
// closed, and [unix.EOPNOTSUPP] if the kernel lacks CONFIG_INET_DIAG_DESTROY.
func Destroy(s Socket) error {
	id := make([]byte, idSize)
	binary.BigEndian.PutUint16(id, s.Local.Port())
	binary.BigEndian.PutUint16(id[offsetDestinationPort:], s.Peer.Port())
	putAddr(id[offsetSource:], s.family, s.Local.Addr())
	putAddr(id[offsetDestination:], s.family, s.Peer.Addr())
	binary.NativeEndian.PutUint32(id[offsetDevice:], s.device)
	copy(id[offsetCookie:], s.cookie[:])
	request := newRequest(unix.SOCK_DESTROY, unix.NLM_F_ACK, s.family, rules.TCP, AnyState, id)
	_, err := nlmsg.Request(unix.NETLINK_SOCK_DIAG, request, func(nlmsg.Message) error { return nil })
	if err != nil {
		return fmt.Errorf("destroy a socket: %w", err)
	}
	return nil
}

// putAddr encodes the address of a socket of the family.
func putAddr(b []byte, family uint8, a netip.Addr) {
	if family == unix.AF_INET {
		copy(b, a.AsSlice())
		return
	}
	addr := a.As16()
	copy(b, addr[:])
}

// newRequest returns a request, a struct inet_diag_req_v2 of linux/inet_diag.h, which ends with the
// identifier of a socket.
func newRequest(
	msgType, flags uint16, family uint8, p rules.Protocol, states States, id []byte,
) []byte {
	body := binary.NativeEndian.AppendUint32([]byte{family, uint8(p), 0, 0}, uint32(states))
	return nlmsg.NewRequest(msgType, flags, append(body, id...)...)
}

// decode decodes a struct inet_diag_msg with its attributes.
func decode(b []byte) (Socket, error) {
	if len(b) < messageSize {
		return Socket{}, nlmsg.ErrMalformed
	}
	id := b[offsetID : offsetID+idSize]
	s := Socket{
		Local: netip.AddrPortFrom(addr(b[0], id[offsetSource:]), binary.BigEndian.Uint16(id)),
		Peer: netip.AddrPortFrom(addr(b[0], id[offsetDestination:]),
			binary.BigEndian.Uint16(id[offsetDestinationPort:])),
		Properties: Properties{
			family: b[0], State: State(b[1]),
			UID:    binary.NativeEndian.Uint32(b[offsetUID:]),
			INode:  binary.NativeEndian.Uint32(b[offsetINode:]),
			device: binary.NativeEndian.Uint32(id[offsetDevice:]),
			cookie: [8]byte(id[offsetCookie:]),
		},
	}
	s.Mark, s.HasMark = nlmsg.Attributes(b[messageSize:]).HostNumber(attrMark)
	return s, nil
}

// addr decodes the address of a socket of the family.
func addr(family uint8, b []byte) netip.Addr {
	if family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(b))
	}
	return netip.AddrFrom16([16]byte(b)).Unmap()
}

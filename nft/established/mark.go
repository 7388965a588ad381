package established

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Layout of struct inet_diag_msg and an attribute of linux/inet_diag.h. The attribute follows the
// message for a reader with CAP_NET_ADMIN.
const (
	diagCookie      = 44 // offset
	diagSize        = 72
	diagMark        = 15 // INET_DIAG_MARK
	diagRequestSize = 56 // size of struct inet_diag_req_v2
)

// readMarks returns the marks of the TCP sockets in the namespace of the thread, by their cookies.
func readMarks() (map[[2]uint32]uint32, error) {
	marks := map[[2]uint32]uint32{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		messages, err := list("marks of sockets", func() ([][]byte, error) {
			request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
			request.AddRawData(inAnyState(family)[:diagRequestSize:diagRequestSize])
			return request.Execute(unix.NETLINK_INET_DIAG, 0)
		})
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			if err := addMark(marks, m); err != nil {
				return nil, err
			}
		}
	}
	return marks, nil
}

// addMark adds the mark in a message about a socket. Sockets in TIME_WAIT have none.
func addMark(marks map[[2]uint32]uint32, message []byte) error {
	if len(message) < diagSize {
		return fmt.Errorf("list marks of sockets: a message has %d bytes, want %d or more",
			len(message), diagSize)
	}
	attributes, err := nl.ParseRouteAttr(message[diagSize:])
	if err != nil {
		return fmt.Errorf("list marks of sockets: %w", err)
	}
	for _, a := range attributes {
		if a.Attr.Type == diagMark && len(a.Value) == 4 {
			cookie := [2]uint32{
				binary.NativeEndian.Uint32(message[diagCookie:]),
				binary.NativeEndian.Uint32(message[diagCookie+4:]),
			}
			marks[cookie] = binary.NativeEndian.Uint32(a.Value)
		}
	}
	return nil
}

// inAnyState begins a struct inet_diag_req_v2 for TCP sockets in any state. Its capacity is the
// size of the structure, whose identifier of a socket follows.
func inAnyState(family uint8) []byte {
	b := append(make([]byte, 0, diagRequestSize), family, unix.IPPROTO_TCP, 0, 0)
	return binary.NativeEndian.AppendUint32(b, ^uint32(0))
}

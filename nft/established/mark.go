package established

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
)

// Numbers of linux/inet_diag.h.
const (
	diagCookie = 44 // the offset of the cookie in struct inet_diag_msg
	diagSize   = 72 // the size of struct inet_diag_msg, which attributes follow
	// diagMark is the attribute INET_DIAG_MARK, which only a reader with CAP_NET_ADMIN receives.
	diagMark        = 15
	diagRequestSize = 56 // the size of struct inet_diag_req_v2
)

// readMarks returns the marks of the TCP sockets in the namespace of the thread, by their cookies.
func readMarks() (map[[2]uint32]uint32, error) {
	marks := map[[2]uint32]uint32{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		messages, err := list("marks of sockets", func() ([][]byte, error) {
			request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
			request.AddRawData(anyStateRequest(family)[:diagRequestSize:diagRequestSize])
			return executeDiag(request)
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

// anyStateRequest returns the beginning of a struct inet_diag_req_v2 for TCP sockets in any state.
// The caller appends the identifier of a socket, or extends the slice to diagRequestSize to list
// all sockets. The capacity suffices for both.
func anyStateRequest(family uint8) []byte {
	b := append(make([]byte, 0, diagRequestSize), family, unix.IPPROTO_TCP, 0, 0)
	return binary.NativeEndian.AppendUint32(b, ^uint32(0))
}

// executeDiag executes a request of the protocol NETLINK_INET_DIAG on a socket to which processes
// of the namespace cannot send.
func executeDiag(request *nl.NetlinkRequest) ([][]byte, error) {
	s, err := nl.Subscribe(unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := nlmsg.Connect(s.GetFd()); err != nil {
		return nil, err
	}
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_INET_DIAG: {Socket: s}}
	return request.Execute(unix.NETLINK_INET_DIAG, 0)
}

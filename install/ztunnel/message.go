package ztunnel

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/plugin/text"
	"github.com/sluice-mesh/sluice/rules"
)

// maxMessage is the maximum size of a message of ztunnel in bytes. Messages without an error have a
// few bytes.
const maxMessage = 64 << 10

// maxError is the maximum length of a stored error in bytes.
const maxError = 1 << 10

// readPacket reads one packet. The kernel discards file descriptors in it.
func readPacket(conn *net.UnixConn, buffer []byte) ([]byte, error) {
	n, _, flags, _, err := conn.ReadMsgUnix(buffer, nil)
	if err != nil {
		return nil, err
	}
	if flags&unix.MSG_TRUNC != 0 {
		return nil, fmt.Errorf("a message has more than %d bytes", len(buffer))
	}
	return buffer[:n], nil
}

// readHello reads ztunnel's first message, and returns the version of the protocol.
func readHello(conn *net.UnixConn) (zds.Version, error) {
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
	data, err := readPacket(conn, make([]byte, maxMessage))
	if err != nil {
		return 0, err
	}
	_ = conn.SetReadDeadline(time.Time{})
	var hello zds.Hello
	if err := proto.Unmarshal(data, &hello); err != nil {
		return 0, err
	}
	return hello.GetVersion(), nil
}

// decodeAck returns ztunnel's error in an acknowledgement, or an empty string for success.
func decodeAck(data []byte) (string, error) {
	var response zds.Response
	if err := proto.Unmarshal(data, &response); err != nil {
		return "", fmt.Errorf("decode an acknowledgement: %w", err)
	}
	ack := response.GetAck()
	if ack == nil {
		return "", errors.New("a message of ztunnel is not an acknowledgement")
	}
	return text.Truncate(rules.Printable(ack.GetError()), maxError), nil
}

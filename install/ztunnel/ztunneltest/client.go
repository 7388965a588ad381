// Package ztunneltest implements ztunnel's side of the protocol of package ztunnel for tests.
package ztunneltest

import (
	"errors"
	"fmt"
	"net"

	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Client is a connection to the server. It is not safe for concurrent use.
type Client struct {
	conn   *net.UnixConn
	buffer []byte
	rights []byte
}

// Dial connects to the socket at the path, and sends a hello with the version.
func Dial(path string, version zds.Version) (*Client, error) {
	c, err := Connect(path)
	if err != nil {
		return nil, err
	}
	hello, err := proto.Marshal(&zds.Hello{Version: version})
	if err == nil {
		err = c.Write(hello)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Connect connects to the socket at the path, and sends nothing.
func Connect(path string) (*Client, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	return &Client{
		conn: conn, buffer: make([]byte, 64<<10), rights: make([]byte, unix.CmsgSpace(4*4)),
	}, nil
}

// Write sends a packet.
func (c *Client) Write(packet []byte) error {
	_, err := c.conn.Write(packet)
	return err
}

// Next waits for the next message, and returns it with the network namespace in the packet, which
// the caller must close; nil if the packet has no descriptor. More than one descriptor is an error.
// After the connection has ended, the error is io.EOF.
func (c *Client) Next() (*zds.Request, *netns.NS, error) {
	n, rights, flags, _, err := c.conn.ReadMsgUnix(c.buffer, c.rights)
	if err != nil {
		return nil, nil, err
	}
	ns, err := namespace(c.rights[:rights])
	if err != nil {
		return nil, nil, err
	}
	request := &zds.Request{}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = fmt.Errorf("the packet is truncated: flags %#x", flags)
	} else {
		err = proto.Unmarshal(c.buffer[:n], request)
	}
	if err != nil {
		_ = ns.Close()
		return nil, nil, err
	}
	return request, ns, nil
}

// namespace returns the network namespace in ancillary data.
func namespace(data []byte) (*netns.NS, error) {
	messages, err := unix.ParseSocketControlMessage(data)
	if err != nil {
		return nil, err
	}
	var received []int
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, err
		}
		received = append(received, fds...)
	}
	defer func() {
		for _, fd := range received {
			_ = unix.Close(fd)
		}
	}()
	switch len(received) {
	case 0:
		return nil, nil
	case 1:
		return netns.FromHandle(vishnetns.NsHandle(received[0]))
	}
	return nil, errors.New("the packet has more than one descriptor")
}

// Ack acknowledges a message, with an error unless failure is empty.
func (c *Client) Ack(failure string) error {
	data, err := proto.Marshal(&zds.Response{
		Payload: &zds.Response_Ack{Ack: &zds.Ack{Error: failure}},
	})
	if err != nil {
		return err
	}
	return c.Write(data)
}

// Close closes the connection.
func (c *Client) Close() { _ = c.conn.Close() }

package testbed

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/socket"
)

// datagram is a received datagram with its source and destination addresses.
type datagram struct {
	text        string
	from        unix.Sockaddr
	local, peer netip.AddrPort
}

// receiveDst makes the kernel report the destination address of each datagram.
var receiveDst = socket.Option{Level: unix.SOL_IPV6, Name: unix.IPV6_RECVPKTINFO, Value: 1}

// answerDatagrams answers datagrams until the socket is closed.
func (s *server) answerDatagrams(l socket.Socket, e endpoint) {
	for {
		d, err := receive(l, e.port)
		if err != nil {
			return
		}
		r, err := s.accept(e, Hop{To: d.local, Local: d.local, Peer: d.peer})
		if err != nil {
			continue
		}
		token := strings.TrimSuffix(d.text, "\n")
		// Ignore the error, which may be an ICMP error about an earlier answer.
		_ = sendAnswer(l, d, encode(token, r.respond()))
		r.close()
	}
}

// receive waits for a datagram. It returns an error only if the socket is closed.
func receive(l socket.Socket, port uint16) (datagram, error) {
	text, oob := make([]byte, 256), make([]byte, 128)
	for {
		var n, oobn int
		var from unix.Sockaddr
		err := l.WhenReadable(func(fd int) (err error) {
			n, oobn, _, from, err = unix.Recvmsg(fd, text, oob, 0)
			return err
		})
		if errno := unix.Errno(0); errors.As(err, &errno) {
			continue // an ICMP error about an earlier answer
		}
		if err != nil {
			return datagram{}, err
		}
		if dst, ok := dstAddr(oob[:oobn]); ok {
			return datagram{
				string(text[:n]), from, netip.AddrPortFrom(dst, port), socket.AddrPort(from),
			}, nil
		}
	}
}

// sendAnswer sends text to the source of d, from the destination address of d.
func sendAnswer(l socket.Socket, d datagram, text string) error {
	info := unix.PktInfo6(&unix.Inet6Pktinfo{Addr: d.local.Addr().As16()})
	return l.Control(func(fd int) error {
		_, err := unix.SendmsgN(fd, []byte(text), info, d.from, 0)
		return err
	})
}

// dstAddr returns the destination address in the control messages of a datagram, and whether they
// contain one.
func dstAddr(oob []byte) (netip.Addr, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.Addr{}, false
	}
	for _, m := range messages {
		var info unix.Inet6Pktinfo
		if m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_PKTINFO {
			if _, err := binary.Decode(m.Data, binary.NativeEndian, &info); err == nil {
				return netip.AddrFrom16(info.Addr).Unmap(), true
			}
		}
	}
	return netip.Addr{}, false
}

package testbed

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// datagram is what a server receives and what it needs to answer from the address that was asked.
type datagram struct {
	text        string
	from        unix.Sockaddr
	local, peer netip.AddrPort
}

// answerDatagrams answers until the socket is closed.
func (s *server) answerDatagrams(l socket, e endpoint) {
	for {
		d, err := l.receive(e.port)
		if err != nil {
			return
		}
		r, err := s.greet(e, Hop{To: d.local, Local: d.local, Peer: d.peer})
		if err != nil {
			continue
		}
		token := strings.TrimSuffix(d.text, "\n")
		// A caller who has gone makes the next call on the socket fail, not this one: nothing to do about either.
		_ = l.reply(d, encode(token, r.respond(token)))
		r.close()
	}
}

// receive waits for a datagram. It fails only when the socket is closed.
func (s socket) receive(port uint16) (datagram, error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return datagram{}, err
	}
	text, oob := make([]byte, 256), make([]byte, 128)
	for {
		var n, oobn int
		var from unix.Sockaddr
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, oobn, _, from, failed = unix.Recvmsg(int(fd), text, oob, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err != nil {
			return datagram{}, err
		}
		if failed != nil {
			continue // an ICMP error about an earlier answer
		}
		if dst, ok := asked(oob[:oobn]); ok {
			return datagram{string(text[:n]), from, netip.AddrPortFrom(dst, port), addrPort(from)}, nil
		}
	}
}

// reply sends text to where d came from, from where d was sent to.
func (s socket) reply(d datagram, text string) error {
	info := unix.PktInfo6(&unix.Inet6Pktinfo{Addr: d.local.Addr().As16()})
	return s.control(func(fd int) error {
		_, err := unix.SendmsgN(fd, []byte(text), info, d.from, 0)
		return err
	})
}

// asked returns the destination address that a control message tells.
func asked(oob []byte) (netip.Addr, bool) {
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

package socket

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Accept waits for a connection. The accepted socket belongs to the user and group of the calling
// thread.
func (s Socket) Accept() (Socket, error) {
	fd := -1
	err := s.WhenReadable(func(l int) (err error) {
		for {
			fd, _, err = unix.Accept4(l, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			// ECONNABORTED: the client has closed the connection in the backlog.
			if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNABORTED) {
				return err
			}
		}
	})
	if err != nil {
		return Socket{}, err
	}
	return FromFD(fd), nil
}

// WhenReadable calls fn with the descriptor each time that the socket may be readable, until fn
// returns nil or an error other than EAGAIN, and returns fn's result. If waiting fails, for example
// because the deadline has passed, WhenReadable returns an error that is not a [unix.Errno].
func (s Socket) WhenReadable(fn func(fd int) error) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var fnErr error
	err = raw.Read(func(fd uintptr) bool {
		fnErr = fn(int(fd))
		return !errors.Is(fnErr, unix.EAGAIN)
	})
	if err != nil {
		return err
	}
	return fnErr
}

// WaitConnected waits until the connection is established, and returns the error of the connection
// attempt: [unix.ECONNRESET] if the peer has already reset the connection.
func (s Socket) WaitConnected() error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var connectErr error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		connectErr = err
		if err != nil {
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	if connectErr != nil {
		return connectErr
	}
	return err
}

// Control calls fn with the descriptor, and returns fn's error.
func (s Socket) Control(fn func(fd int) error) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var fnErr error
	return errors.Join(raw.Control(func(fd uintptr) { fnErr = fn(int(fd)) }), fnErr)
}

// Addrs returns the local address of the socket and the address of its peer. The peer is invalid if
// the socket is not connected, and both addresses are invalid if the socket is closed.
func (s Socket) Addrs() (local, peer netip.AddrPort) {
	_ = s.Control(func(fd int) error {
		local = LocalAddr(fd)
		if sa, err := unix.Getpeername(fd); err == nil {
			peer = AddrPort(sa)
		}
		return nil
	})
	return local, peer
}

// OriginalDst returns the destination of an accepted connection before NAT. Without NAT this is
// the socket's own address.
func (s Socket) OriginalDst() netip.AddrPort {
	local, _ := s.Addrs()
	dst := local
	_ = s.Control(func(fd int) error {
		// The option has the same number for both families (IP6T_SO_ORIGINAL_DST in
		// linux/netfilter_ipv6/ip6_tables.h). The kernel writes a sockaddr; the result types of
		// these calls only provide enough memory for it.
		if local.Addr().Is4() {
			sa, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
			if err == nil {
				m := sa.Multiaddr
				dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(m[4:8])),
					binary.BigEndian.Uint16(m[2:4]))
			}
			return err
		}
		sa, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
		if err == nil {
			var port [2]byte
			binary.NativeEndian.PutUint16(port[:], sa.Addr.Port)
			dst = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr.Addr),
				binary.BigEndian.Uint16(port[:]))
		}
		return err
	})
	return dst
}

// Abort closes a connection with a reset and discards unsent data. The connection does not enter
// TIME_WAIT, which would occupy its port.
func (s Socket) Abort() {
	_ = s.Control(func(fd int) error {
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	_ = s.Close()
}

package socket

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Accept waits for a connection, whose socket is of the calling thread's ids.
func (s Socket) Accept() (Socket, error) {
	fd := -1
	err := s.WhenReadable(func(l int) (err error) {
		for {
			fd, _, err = unix.Accept4(l, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			// ECONNABORTED: the caller has gone while the connection waited.
			if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNABORTED) {
				return err
			}
		}
	})
	if err != nil {
		return Socket{}, err
	}
	return Of(fd), nil
}

// WhenReadable calls fn with the descriptor whenever it may be readable, until fn returns something
// else than EAGAIN. That is returned; what the kernel has refused to fn is a [unix.Errno], what
// ends the waiting is none.
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

// Connected waits until the connection is made, or returns why it is not: [unix.ECONNRESET] if it
// was, but the other end has hung up already.
func (s Socket) Connected() error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		if failed = err; failed != nil {
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	if failed != nil {
		return failed
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

// Ends returns the socket's own address and its peer's; invalid ones if it has none.
func (s Socket) Ends() (local, peer netip.AddrPort) {
	_ = s.Control(func(fd int) error {
		local = BoundTo(fd)
		if sa, err := unix.Getpeername(fd); err == nil {
			peer = AddrPort(sa)
		}
		return nil
	})
	return local, peer
}

// Original returns the destination that the caller of an accepted connection had asked for. Where
// it was not translated that is the socket's own address.
func (s Socket) Original() netip.AddrPort {
	local, _ := s.Ends()
	dst := local
	_ = s.Control(func(fd int) error {
		// The option is the same for both families (IP6T_SO_ORIGINAL_DST in
		// linux/netfilter_ipv6/ip6_tables.h). The structures of these calls are only room for what
		// the kernel writes, a sockaddr.
		if local.Addr().Is4() {
			sa, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
			if err == nil {
				m := sa.Multiaddr
				dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(m[4:8])), binary.BigEndian.Uint16(m[2:4]))
			}
			return err
		}
		sa, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
		if err == nil {
			var port [2]byte
			binary.NativeEndian.PutUint16(port[:], sa.Addr.Port)
			dst = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr.Addr), binary.BigEndian.Uint16(port[:]))
		}
		return err
	})
	return dst
}

// Abort closes a connection with a reset: neither a byte nor a TIME_WAIT remains of it, which would
// use up ports.
func (s Socket) Abort() {
	_ = s.Control(func(fd int) error {
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	_ = s.Close()
}

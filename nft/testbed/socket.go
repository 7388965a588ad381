package testbed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// A socket is one of the kernel's, without Go's net package around it: that would hide who owns it, the marks and the original
// destinations.
type socket struct{ *os.File }

// newSocket makes a socket of the calling thread's namespace and ids. The kind is SOCK_STREAM or SOCK_DGRAM.
func newSocket(family, kind int, options ...option) (fd int, err error) {
	fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			_ = unix.Close(fd)
			return -1, fmt.Errorf("socket option %d.%d: %w", o.level, o.name, err)
		}
	}
	return fd, nil
}

type option struct{ level, name, value int }

// transparent lets a socket have addresses that are not the host's.
func transparent(family int) option {
	if family == unix.AF_INET6 {
		return option{unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1}
	}
	return option{unix.SOL_IP, unix.IP_TRANSPARENT, 1}
}

var (
	reuseAddr = option{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}
	both      = option{unix.SOL_IPV6, unix.IPV6_V6ONLY, 0} // families
	wantDst   = option{unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1}
)

// asSocket takes fd into the runtime's poller.
func asSocket(fd int) socket { return socket{os.NewFile(uintptr(fd), "socket")} }

// listen makes a socket on a port of every address of both families.
func listen(kind int, port uint16, options ...option) (socket, error) {
	options = append(options, both)
	if kind == unix.SOCK_DGRAM {
		// With reuseAddr two could listen on a port.
		options = append(options, wantDst)
	} else {
		options = append(options, reuseAddr)
	}
	fd, err := newSocket(unix.AF_INET6, kind, options...)
	if err != nil {
		return socket{}, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet6{Port: int(port)})
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		_ = unix.Close(fd)
		return socket{}, fmt.Errorf("listen on port %d: %w", port, err)
	}
	return asSocket(fd), nil
}

// accept waits for a connection, whose socket is of the calling thread's ids.
func (s socket) accept() (socket, error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return socket{}, err
	}
	var fd int
	var acceptErr error
	err = raw.Read(func(l uintptr) bool {
		for {
			fd, _, acceptErr = unix.Accept4(int(l), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			// ECONNABORTED: the caller has gone while the connection waited.
			if !errors.Is(acceptErr, unix.EINTR) && !errors.Is(acceptErr, unix.ECONNABORTED) {
				return !errors.Is(acceptErr, unix.EAGAIN)
			}
		}
	})
	if err = errors.Join(err, acceptErr); err != nil {
		return socket{}, err
	}
	return asSocket(fd), nil
}

// connected waits until the connection is made, or returns why it is not.
func (s socket) connected() error {
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
	return errors.Join(failed, err)
}

// control calls fn with the descriptor.
func (s socket) control(fn func(fd int) error) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var fnErr error
	return errors.Join(raw.Control(func(fd uintptr) { fnErr = fn(int(fd)) }), fnErr)
}

// ends returns the socket's own address and its peer's.
func (s socket) ends() (local, peer netip.AddrPort) {
	_ = s.control(func(fd int) error {
		if sa, err := unix.Getsockname(fd); err == nil {
			local = addrPort(sa)
		}
		if sa, err := unix.Getpeername(fd); err == nil {
			peer = addrPort(sa)
		}
		return nil
	})
	return local, peer
}

// original returns the destination that the caller of an accepted connection had asked for. Where it was not translated that is
// the socket's own address.
func (s socket) original() netip.AddrPort {
	local, _ := s.ends()
	dst := local
	_ = s.control(func(fd int) error {
		// The option is the same for both families (IP6T_SO_ORIGINAL_DST in linux/netfilter_ipv6/ip6_tables.h). The structures of
		// these calls are only room for what the kernel writes, a sockaddr.
		if local.Addr().Is4() {
			sa, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
			if err == nil {
				m := sa.Multiaddr
				dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(m[4:8])), uint16(m[2])<<8|uint16(m[3]))
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

// abort closes a connection with a reset, which leaves no TIME_WAIT behind to run out of ports.
func (s socket) abort() {
	_ = s.control(func(fd int) error {
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	_ = s.Close()
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// sockaddr is the kernel's form of an address.
func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

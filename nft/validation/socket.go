package validation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// A socket is one of the kernel's, without Go's net package around it: that would hide who owns it and what the kernel answers.
type socket struct{ *os.File }

type option struct{ level, name, value int }

// newSocket makes a socket of the calling thread's namespace and owner.
func newSocket(family rules.Family, protocol rules.Protocol, options ...option) (fd int, err error) {
	domain, kind := unix.AF_INET, unix.SOCK_STREAM
	if family == rules.IPv6 {
		domain = unix.AF_INET6
		// A listener of one family leaves the other to whom it may concern.
		options = append(options, option{unix.SOL_IPV6, unix.IPV6_V6ONLY, 1})
	}
	if protocol == rules.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err = unix.Socket(domain, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			_ = unix.Close(fd)
			return -1, os.NewSyscallError("setsockopt", err)
		}
	}
	return fd, nil
}

// transparent lets a socket have addresses that are not the host's; it needs CAP_NET_ADMIN or CAP_NET_RAW.
func transparent(family rules.Family) option {
	if family == rules.IPv6 {
		return option{unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1}
	}
	return option{unix.SOL_IP, unix.IP_TRANSPARENT, 1}
}

// asSocket takes fd into the runtime's poller.
func asSocket(fd int) socket { return socket{os.NewFile(uintptr(fd), "socket")} }

// accept waits for a connection.
func (s socket) accept() (socket, error) {
	fd := -1
	err := s.read(func(l int) (err error) {
		for {
			fd, _, err = unix.Accept4(l, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			// ECONNABORTED: the caller has gone while the connection waited.
			if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNABORTED) {
				return err
			}
		}
	})
	if err != nil {
		return socket{}, err
	}
	return asSocket(fd), nil
}

// receive waits for a datagram, or for the error that an ICMP message brought.
func (s socket) receive(buf []byte) (n int, from netip.AddrPort, err error) {
	err = s.read(func(fd int) (err error) {
		var sa unix.Sockaddr
		n, sa, err = unix.Recvfrom(fd, buf, 0)
		from = addrPort(sa)
		return err
	})
	return n, from, err
}

// read calls fn whenever the socket may be readable, until it no longer returns EAGAIN.
func (s socket) read(fn func(fd int) error) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var fnErr error
	err = raw.Read(func(fd uintptr) bool {
		fnErr = fn(int(fd))
		return !errors.Is(fnErr, unix.EAGAIN)
	})
	return errors.Join(err, fnErr)
}

// connected waits until the connection is made, or returns why it is not.
func (s socket) connected(deadline time.Time) error {
	if err := s.SetDeadline(deadline); err != nil {
		return err
	}
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
	if errors.Is(failed, unix.ECONNRESET) {
		return nil // it was made, and the other end has hung up already
	}
	if failed != nil {
		return failed
	}
	return err
}

// ends returns the socket's own address and its peer's; invalid ones if it has none.
func (s socket) ends() (local, peer netip.AddrPort) {
	_ = s.control(func(fd int) error {
		local = boundTo(fd)
		if sa, err := unix.Getpeername(fd); err == nil {
			peer = addrPort(sa)
		}
		return nil
	})
	return local, peer
}

func boundTo(fd int) netip.AddrPort {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return addrPort(sa)
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

// control calls fn with the descriptor.
func (s socket) control(fn func(fd int) error) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var fnErr error
	return errors.Join(raw.Control(func(fd uintptr) { fnErr = fn(int(fd)) }), fnErr)
}

// abort closes a connection with a reset: neither a byte nor a TIME_WAIT remains of it.
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

// bind gives the socket an address, of which the port may be 0 for any.
func bind(fd int, a netip.AddrPort) error {
	if err := unix.Bind(fd, sockaddr(a)); err != nil {
		return fmt.Errorf("bind %s: %w", a, err)
	}
	return nil
}

// sockaddr is the kernel's form of an address.
func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// Package socket opens TCP and UDP sockets without Go's net package, which would hide their owners,
// marks, original destinations and errors.
package socket

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// A Socket is registered with the runtime's poller: waiting for a Socket blocks a goroutine, not a
// thread. Its methods respect the deadlines of the file and are safe for concurrent use.
type Socket struct{ *os.File }

// An Option is a socket option with an integer value.
type Option struct{ Level, Name, Value int }

// Options with fixed values.
var (
	ReuseAddr = Option{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}
	// BothFamilies makes an IPv6 socket accept IPv4 too.
	BothFamilies = Option{unix.SOL_IPV6, unix.IPV6_V6ONLY, 0}
)

// Transparent lets a socket of the family bind addresses that are not local. It needs
// CAP_NET_ADMIN or CAP_NET_RAW.
func Transparent(f rules.Family) Option {
	if f == rules.IPv6 {
		return Option{unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1}
	}
	return Option{unix.SOL_IP, unix.IP_TRANSPARENT, 1}
}

// Mark sets the mark of the packets that a socket sends. It needs CAP_NET_ADMIN or CAP_NET_RAW.
func Mark(mark uint32) Option { return Option{unix.SOL_SOCKET, unix.SO_MARK, int(mark)} }

// New opens a TCP or UDP socket with the namespace, user and group of the calling thread. The
// caller must close fd or pass it to [FromFD]. An IPv6 socket does not accept IPv4 unless
// [BothFamilies] is in the options.
func New(f rules.Family, p rules.Protocol, options ...Option) (fd int, err error) {
	domain, kind := unix.AF_INET, unix.SOCK_STREAM
	if f == rules.IPv6 {
		domain = unix.AF_INET6
		options = append([]Option{{unix.SOL_IPV6, unix.IPV6_V6ONLY, 1}}, options...)
	}
	if p == rules.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err = unix.Socket(domain, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.Level, o.Name, o.Value); err != nil {
			_ = unix.Close(fd)
			return -1, fmt.Errorf("setsockopt %d.%d: %w", o.Level, o.Name, err)
		}
	}
	return fd, nil
}

// FromFD registers fd with the runtime's poller. The Socket takes ownership of fd.
func FromFD(fd int) Socket { return Socket{os.NewFile(uintptr(fd), "socket")} }

// Bind binds a socket to an address. Port 0 means any free port.
func Bind(fd int, a netip.AddrPort) error {
	if err := unix.Bind(fd, sockaddr(a)); err != nil {
		return fmt.Errorf("bind %s: %w", a, err)
	}
	return nil
}

// Connect starts to connect a socket. [Socket.WaitConnected] waits for the result.
func Connect(fd int, to netip.AddrPort) error {
	if err := unix.Connect(fd, sockaddr(to)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return os.NewSyscallError("connect", err)
	}
	return nil
}

// LocalAddr returns the local address of a socket, or an invalid address if fd is not an IP socket.
// The address of a socket that is not bound is unspecified, with port 0.
func LocalAddr(fd int) netip.AddrPort {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return AddrPort(sa)
}

// AddrPort converts an address. It returns an IPv4-mapped address as IPv4, and an invalid address
// if sa is not an IP address.
func AddrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// sockaddr converts an address. It is the inverse of [AddrPort].
func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

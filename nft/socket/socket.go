// Package socket opens TCP and UDP sockets without Go's net package around them: that would hide
// who owns them, their marks, their original destinations and what the kernel answers.
package socket

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// A Socket is one that the runtime's poller knows, so that only the goroutine waits that uses it.
// Its methods obey the file's deadlines, and are safe for concurrent use.
type Socket struct{ *os.File }

// An Option is a socket option that is a number.
type Option struct{ Level, Name, Value int }

// Options that need no further words.
var (
	ReuseAddr = Option{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}
	// BothFamilies makes an IPv6 socket take IPv4 as well.
	BothFamilies = Option{unix.SOL_IPV6, unix.IPV6_V6ONLY, 0}
)

// Transparent lets a socket of the family have addresses that are not the host's; it needs
// CAP_NET_ADMIN or CAP_NET_RAW.
func Transparent(f rules.Family) Option {
	if f == rules.IPv6 {
		return Option{unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1}
	}
	return Option{unix.SOL_IP, unix.IP_TRANSPARENT, 1}
}

// Mark is the mark of the packets that a socket sends; it needs CAP_NET_ADMIN or CAP_NET_RAW.
func Mark(mark uint32) Option { return Option{unix.SOL_SOCKET, unix.SO_MARK, int(mark)} }

// New makes a socket of the calling thread's namespace and ids, which the caller closes or gives to
// [Of]. The family is IPv4 or IPv6; a socket of IPv6 leaves IPv4 to whom it may concern, unless
// BothFamilies is among the options.
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

// Of takes fd into the runtime's poller. It is the Socket's from then on.
func Of(fd int) Socket { return Socket{os.NewFile(uintptr(fd), "socket")} }

// Bind gives a socket an address, of which the port may be 0 for any.
func Bind(fd int, a netip.AddrPort) error {
	if err := unix.Bind(fd, sockaddr(a)); err != nil {
		return fmt.Errorf("bind %s: %w", a, err)
	}
	return nil
}

// Connect begins to connect a socket, and does not wait: [Socket.Connected] does.
func Connect(fd int, to netip.AddrPort) error {
	if err := unix.Connect(fd, sockaddr(to)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return os.NewSyscallError("connect", err)
	}
	return nil
}

// BoundTo returns a socket's own address; an invalid one if it has none.
func BoundTo(fd int) netip.AddrPort {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return AddrPort(sa)
}

// AddrPort is the address that the kernel's form holds, in IPv4 also where a socket of both
// families has it; an invalid one if it is of no IP socket.
func AddrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

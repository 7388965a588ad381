package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

// IsNoIPv6 reports whether err means that the host has no IPv6.
func IsNoIPv6(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)
}

// Transparent is a control function of net.Dialer and net.ListenConfig. It sets IP_TRANSPARENT, so
// that the socket can use addresses of other hosts.
func Transparent(network, _ string, c syscall.RawConn) error {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if strings.HasSuffix(network, "6") {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	return control(c, func(fd int) error { return unix.SetsockoptInt(fd, level, option, 1) })
}

// Marked is like Transparent, and also sets the mark, with which the pod's routing delivers replies
// to the socket.
func Marked(network, address string, c syscall.RawConn) error {
	return errors.Join(Transparent(network, address, c), control(c, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, mark)
	}))
}

// control calls do with the descriptor of a socket.
func control(c syscall.RawConn, do func(fd int) error) error {
	var failed error
	if err := c.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// Original returns the original destination of an accepted connection. Without NAT, this is the
// local address.
func Original(c *net.TCPConn) (netip.AddrPort, error) {
	local := path.AddrPort(c.LocalAddr())
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var found netip.AddrPort
	// The kernel writes a sockaddr, but package unix has no function that returns the sockaddr of
	// a socket option. The functions used here are meant for other options; the types that they
	// return are large enough.
	err = control(raw, func(fd int) error {
		if local.Addr().Is4() {
			sa, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
			if err == nil {
				found = netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa.Multiaddr[4:8])),
					binary.BigEndian.Uint16(sa.Multiaddr[2:4]))
			}
			return err
		}
		// IP6T_SO_ORIGINAL_DST has the same number as SO_ORIGINAL_DST.
		sa, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
		if err == nil {
			var port [2]byte
			binary.NativeEndian.PutUint16(port[:], sa.Addr.Port)
			found = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr.Addr),
				binary.BigEndian.Uint16(port[:]))
		}
		return err
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOPROTOOPT) {
		return local, nil
	}
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("original destination of %s: %w", c.RemoteAddr(), err)
	}
	return found, nil
}

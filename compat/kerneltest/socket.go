package kerneltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/owner"
	"github.com/sluice-mesh/sluice/rules"
)

// asOwner runs fn in the namespace as the user and group of the owner, so that the owner owns the
// sockets that fn creates.
func asOwner(ns *netns.NS, o rules.Owner, fn func() error) error {
	return ns.Do(func() error { return owner.As(int(o.UID), int(o.GID), fn) })
}

// A rawKey identifies a raw socket.
type rawKey struct {
	owner  rules.Owner
	ipv6   bool
	device string // if not empty, the interface to which the socket is bound
	// transparent reports that the socket has the option IP_TRANSPARENT.
	transparent bool
}

// rawSocket returns a socket of the pod that sends packets with their headers. It creates the
// socket if necessary.
func (n *Network) rawSocket(k rawKey) (int, error) {
	if fd, ok := n.rawSockets[k]; ok {
		return fd, nil
	}
	domain := unix.AF_INET
	if k.ipv6 {
		domain = unix.AF_INET6
	}
	fd := -1
	err := asOwner(n.Pod, k.owner, func() (err error) {
		fd, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		// Without a timeout, sending would block forever if the kernel kept earlier packets in the
		// send buffer.
		timeout := unix.Timeval{Sec: 10}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO,
			&timeout); err != nil {
			return os.NewSyscallError("SO_SNDTIMEO", err)
		}
		if k.device != "" {
			err = os.NewSyscallError("SO_BINDTODEVICE", unix.BindToDevice(fd, k.device))
		}
		if k.transparent {
			err = errors.Join(err, setTransparent(fd, domain))
		}
		return errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
	})
	if err != nil {
		return -1, fmt.Errorf("raw socket of user %d: %w", k.owner.UID, err)
	}
	n.rawSockets[k] = fd
	return fd, nil
}

// setTransparent makes a socket of the domain transparent.
func setTransparent(fd, domain int) error {
	if domain == unix.AF_INET6 {
		return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
	}
	return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)
}

// htons returns the number in network byte order.
func htons(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

func (n *Network) openPacketSockets() error {
	return n.peer.Do(func() error {
		for _, name := range interfaces {
			d := n.devices[name]
			// With protocol 0 the socket receives nothing.
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return os.NewSyscallError("socket", err)
			}
			d.fd = fd
		}
		return nil
	})
}

// The kinds of frames: the first two bytes of the source address of a frame, which is a locally
// administered address.
const (
	ordinaryFrame   = 0x0200
	socketlessFrame = 0x0201 // the pod sends a copy without a socket; see observerTables
)

// writeFrame writes an IP packet to the other end of the interface. The source address of the frame
// contains the kind and the mark.
func (d *device) writeFrame(packet []byte, mark uint32, kind uint16) error {
	frame := make([]byte, 14, 14+len(packet))
	copy(frame, d.mac)
	binary.BigEndian.PutUint16(frame[6:], kind)
	binary.NativeEndian.PutUint32(frame[8:], mark)
	protocol := uint16(unix.ETH_P_IP)
	if packet[0]>>4 == 6 {
		protocol = unix.ETH_P_IPV6
	}
	binary.BigEndian.PutUint16(frame[12:], protocol)
	to := &unix.SockaddrLinklayer{Protocol: htons(protocol), Ifindex: d.peerIndex}
	return os.NewSyscallError("sendto", unix.Sendto(d.fd, append(frame, packet...), 0, to))
}

// writeRaw sends an IP packet from a socket of the pod.
func (n *Network) writeRaw(p *rules.Packet, packet []byte) error {
	to := p.Destination.Addr()
	k := rawKey{owner: *p.Owner, ipv6: to.Is6(), transparent: p.TransparentSender}
	if p.Bound {
		k.device = p.OutInterface
	}
	fd, err := n.rawSocket(k)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(p.Mark)); err != nil {
		return os.NewSyscallError("SO_MARK", err)
	}
	var addr unix.Sockaddr
	if to.Is4() {
		addr = &unix.SockaddrInet4{Addr: to.As4()}
	} else {
		addr = &unix.SockaddrInet6{Addr: to.As16()}
	}
	var control []byte
	if p.SelectsInterface {
		d := n.devices[p.OutInterface]
		control = unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: int32(d.index)})
	}
	_, err = unix.SendmsgN(fd, packet, control, addr, 0)
	// EINVAL, EACCES and EAGAIN mean that the packet was not sent. Ignore other errors: EPERM means
	// that a rule has dropped the packet, and the rest occur if the kernel cannot route the packet
	// after a rule has changed it.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EAGAIN) {
		return os.NewSyscallError("sendmsg", err)
	}
	return nil
}

// A Listener is a transparent listener of the pod, for TCP and UDP of both families. Its sockets
// belong to Owner. An observation identifies the listener by its owner, so no two listeners may
// have the same owner.
type Listener struct {
	Port  uint16
	Owner rules.Owner
}

// listenerMark is the mark of the listeners' sockets.
const listenerMark = 0x100

// Listen opens transparent listeners. If a port is in use, it retries for up to 5 seconds, because
// a process that is being started may have copies of the sockets of earlier listeners (see
// [Network.CloseListeners]).
func (n *Network) Listen(listeners []Listener) error {
	for begin := time.Now(); ; runtime.Gosched() {
		err := n.listenOnce(listeners)
		if err == nil {
			n.openListeners = append(n.openListeners, listeners...)
			return nil
		}
		n.CloseListeners()
		if !errors.Is(err, unix.EADDRINUSE) || time.Since(begin) > 5*time.Second {
			return err
		}
	}
}

func (n *Network) listenOnce(listeners []Listener) error {
	for _, l := range listeners {
		err := asOwner(n.Pod, l.Owner, func() error {
			for _, domain := range []int{unix.AF_INET, unix.AF_INET6} {
				for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
					if err := n.listen(domain, kind, l.Port); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("listen on port %d: %w", l.Port, err)
		}
	}
	return nil
}

func (n *Network) listen(domain, kind int, port uint16) error {
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	n.listenerFDs = append(n.listenerFDs, fd)
	var addr unix.Sockaddr = &unix.SockaddrInet4{Port: int(port)}
	if domain == unix.AF_INET6 {
		addr = &unix.SockaddrInet6{Port: int(port)}
		if err := unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return err
		}
	}
	if err := setTransparent(fd, domain); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, listenerMark); err != nil {
		return err
	}
	if err := unix.Bind(fd, addr); err != nil {
		return err
	}
	if kind == unix.SOCK_STREAM {
		return unix.Listen(fd, 16)
	}
	return nil
}

// CloseListeners closes the listeners of [Network.Listen].
func (n *Network) CloseListeners() {
	for _, fd := range n.listenerFDs {
		// A process that is just being started has a copy of the socket until it executes its
		// program. The copy shares the transparent flag of the socket: clear the flag, so that no
		// tproxy rule selects the copy.
		_ = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 0)
		_ = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 0)
		_ = unix.Close(fd)
	}
	n.listenerFDs, n.openListeners = nil, nil
}

// sentinelSource is the source address of the sentinel (see sentinelPort).
var sentinelSource = netip.MustParseAddr("198.18.0.1")

package socket_test

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/socket"
	"github.com/sluice-mesh/sluice/rules"
)

var loopbacks = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// open opens a TCP socket and binds it to the address.
func open(t *testing.T, ns *netns.NS, a netip.AddrPort, options ...socket.Option) (fd int) {
	t.Helper()
	err := ns.Do(func() (err error) {
		fd, err = socket.New(rules.FamilyOf(a.Addr()), rules.TCP, options...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := socket.Bind(fd, a); err != nil {
		_ = unix.Close(fd)
		t.Fatal(err)
	}
	return fd
}

// listen opens a listener, and closes it when the test ends.
func listen(
	t *testing.T, ns *netns.NS, a netip.AddrPort, options ...socket.Option,
) (s socket.Socket, addr netip.AddrPort) {
	t.Helper()
	fd := open(t, ns, a, options...)
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		t.Fatal(err)
	}
	s, addr = socket.FromFD(fd), socket.LocalAddr(fd)
	t.Cleanup(func() { _ = s.Close() })
	setDeadline(t, s)
	return s, addr
}

// dial starts a connection.
func dial(t *testing.T, ns *netns.NS, to netip.AddrPort) socket.Socket {
	t.Helper()
	fd := open(t, ns, netip.AddrPortFrom(to.Addr(), 0))
	err := socket.Connect(fd, to)
	s := socket.FromFD(fd)
	t.Cleanup(func() { _ = s.Close() })
	setDeadline(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// setDeadline limits the time that operations on the socket wait.
func setDeadline(t *testing.T, s socket.Socket) {
	t.Helper()
	if err := s.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
}

// connect establishes a connection to the listener.
func connect(
	t *testing.T, ns *netns.NS, l socket.Socket, to netip.AddrPort,
) (client, accepted socket.Socket) {
	t.Helper()
	client = dial(t, ns, to)
	if err := client.WaitConnected(); err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	setDeadline(t, accepted)
	return client, accepted
}

func TestConnectionHasItsAddressesAndAbortResetsIt(t *testing.T) {
	ns := netnstest.New(t)
	for _, a := range loopbacks {
		t.Run(a.String(), func(t *testing.T) {
			l, addr := listen(t, ns, netip.AddrPortFrom(a, 0))
			client, accepted := connect(t, ns, l, addr)
			local, peer := accepted.Addrs()
			if src, dst := client.Addrs(); local != addr || dst != addr || peer != src ||
				src.Addr() != a {
				t.Errorf("server: local %s, peer %s; client: local %s, peer %s; want %s and %s", local, peer,
					src, dst, addr, a)
			}
			if got := accepted.OriginalDst(); got != addr {
				t.Errorf("original destination %s of a connection without NAT, want %s", got, addr)
			}
			if _, peer := l.Addrs(); peer.IsValid() {
				t.Errorf("a listener has the peer %s, want none", peer)
			}
			if _, err := client.WriteString("x"); err != nil {
				t.Fatal(err)
			}
			if n, err := accepted.Read(make([]byte, 2)); n != 1 || err != nil {
				t.Errorf("read %d bytes, error %v; want 1 byte", n, err)
			}
			accepted.Abort()
			if _, err := client.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("after Abort the client's read returns %v, want %v", err, unix.ECONNRESET)
			}
		})
	}
}

func TestWaitConnectedReturnsTheError(t *testing.T) {
	ns := netnstest.New(t)
	for _, a := range loopbacks {
		// A bound socket that does not listen reserves the port.
		bound := socket.FromFD(open(t, ns, netip.AddrPortFrom(a, 0)))
		defer bound.Close()
		addr, _ := bound.Addrs()
		if err := dial(t, ns, addr).WaitConnected(); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connection to the closed port of %s: error %v, want %v", addr, err,
				unix.ECONNREFUSED)
		}
	}
	// A backlog of 0 allows one connection that waits to be accepted.
	fd := open(t, ns, netip.AddrPortFrom(loopbacks[0], 0))
	full := socket.FromFD(fd)
	defer full.Close()
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	if err := dial(t, ns, socket.LocalAddr(fd)).WaitConnected(); err != nil {
		t.Fatal(err)
	}
	late := dial(t, ns, socket.LocalAddr(fd))
	if err := late.SetDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := late.WaitConnected(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("connection to a full backlog: error %v, want %v", err, os.ErrDeadlineExceeded)
	}
}

func TestAcceptEndsAtTheDeadlineAndOnClose(t *testing.T) {
	ns := netnstest.New(t)
	l, _ := listen(t, ns, netip.AddrPortFrom(loopbacks[0], 0))
	if err := l.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Accept after the deadline: error %v, want %v", err, os.ErrDeadlineExceeded)
	}
	setDeadline(t, l)
	ended := make(chan error)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	_ = l.Close()
	err := <-ended
	if errno := unix.Errno(0); err == nil || errors.As(err, &errno) {
		t.Errorf("Accept on a closed listener: error %v, want an error that is not a unix.Errno",
			err)
	}
}

func TestIPv6ListenersAcceptIPv4OnlyWithBothFamilies(t *testing.T) {
	ns := netnstest.New(t)
	for _, row := range []struct {
		name    string
		options []socket.Option
		accepts bool
	}{
		{"an IPv6 listener does not accept IPv4", nil, false},
		{"a listener of both families accepts IPv4", []socket.Option{socket.BothFamilies}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, addr := listen(t, ns, netip.AddrPortFrom(netip.IPv6Unspecified(), 0), row.options...)
			to := netip.AddrPortFrom(loopbacks[0], addr.Port())
			if !row.accepts {
				listen(t, ns, to) // fails if the IPv6 listener accepts IPv4
				return
			}
			_, accepted := connect(t, ns, l, to)
			if local, peer := accepted.Addrs(); local != to || !peer.Addr().Is4() {
				t.Errorf("addresses %s and %s, want IPv4 addresses", local, peer)
			}
		})
	}
}

func TestOriginalDstOfATranslatedConnection(t *testing.T) {
	nft := netnstest.RequireBinary(t, "nft")
	ns := netnstest.New(t)
	cmd := exec.Command(nft, "-f", "-")
	cmd.Stdin = strings.NewReader(`
		add table inet t
		add chain inet t out { type nat hook output priority -100; }
		add rule inet t out tcp dport 80 redirect to :15001
	`)
	if err := ns.Do(cmd.Run); err != nil {
		t.Fatal(err)
	}
	any6 := netip.IPv6Unspecified()
	for _, row := range []struct {
		name    string
		addr    netip.Addr
		options []socket.Option
		clients []netip.Addr
	}{
		{"an IPv4 listener", loopbacks[0], nil, loopbacks[:1]},
		{"an IPv6 listener", any6, nil, loopbacks[1:]},
		{"a listener of both families", any6, []socket.Option{socket.BothFamilies}, loopbacks},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, addr := listen(t, ns, netip.AddrPortFrom(row.addr, 15001),
				append(row.options, socket.ReuseAddr)...)
			for _, a := range row.clients {
				want := netip.AddrPortFrom(a, 80)
				_, accepted := connect(t, ns, l, want)
				if got := accepted.OriginalDst(); got != want {
					t.Errorf("original destination %s, want %s", got, want)
				}
				if local, _ := accepted.Addrs(); local != netip.AddrPortFrom(a, addr.Port()) {
					t.Errorf("accepted on %s, want port %d", local, addr.Port())
				}
			}
		})
	}
}

func TestErrorsNameTheOptionOrTheAddress(t *testing.T) {
	ns := netnstest.New(t)
	fd, err := socket.New(rules.IPv4, rules.UDP, socket.Option{
		Level: unix.SOL_IP, Name: 250, Value: 1,
	})
	if fd != -1 || !errors.Is(err, unix.ENOPROTOOPT) || !strings.Contains(err.Error(), "0.250") {
		t.Errorf("descriptor %d, error %v; want -1 and %v for 0.250", fd, err, unix.ENOPROTOOPT)
	}
	bound := socket.FromFD(open(t, ns, netip.AddrPortFrom(loopbacks[0], 0)))
	defer bound.Close()
	addr, _ := bound.Addrs()
	var second int
	err = ns.Do(func() (err error) {
		second, err = socket.New(rules.IPv4, rules.TCP)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(second)
	err = socket.Bind(second, addr)
	if !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), addr.String()) {
		t.Errorf("bind: error %v, want %v for %s", err, unix.EADDRINUSE, addr)
	}
}

func TestMarkAndTransparentConfigureTheSocket(t *testing.T) {
	ns := netnstest.New(t)
	for family, nonlocal := range map[rules.Family]string{
		rules.IPv4: "192.0.2.1:53", rules.IPv6: "[2001:db8::1]:53",
	} {
		err := ns.Do(func() error {
			fd, err := socket.New(family, rules.UDP, socket.Mark(0x80000539),
				socket.Transparent(family))
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if mark, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET,
				unix.SO_MARK); uint32(mark) != 0x80000539 || err != nil {
				t.Errorf("mark %#x, error %v; want 0x80000539", mark, err)
			}
			return socket.Bind(fd, netip.MustParseAddrPort(nonlocal))
		})
		if err != nil {
			t.Errorf("IPv%d: %v", family, err)
		}
	}
}

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

// open makes a TCP socket that is bound to the address.
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

// listen opens a listener until the test ends.
func listen(t *testing.T, ns *netns.NS, a netip.AddrPort, options ...socket.Option) (s socket.Socket, at netip.AddrPort) {
	t.Helper()
	fd := open(t, ns, a, options...)
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		t.Fatal(err)
	}
	s, at = socket.Of(fd), socket.BoundTo(fd)
	t.Cleanup(func() { _ = s.Close() })
	within(t, s)
	return s, at
}

// dial begins a connection.
func dial(t *testing.T, ns *netns.NS, to netip.AddrPort) socket.Socket {
	t.Helper()
	fd := open(t, ns, netip.AddrPortFrom(to.Addr(), 0))
	err := socket.Connect(fd, to)
	s := socket.Of(fd)
	t.Cleanup(func() { _ = s.Close() })
	within(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// within lets no socket wait for ever.
func within(t *testing.T, s socket.Socket) {
	t.Helper()
	if err := s.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
}

// connect makes a connection to the listener.
func connect(t *testing.T, ns *netns.NS, l socket.Socket, to netip.AddrPort) (caller, accepted socket.Socket) {
	t.Helper()
	caller = dial(t, ns, to)
	if err := caller.Connected(); err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	within(t, accepted)
	return caller, accepted
}

func TestConnection(t *testing.T) {
	ns := netnstest.New(t)
	for _, a := range loopbacks {
		t.Run(a.String(), func(t *testing.T) {
			l, at := listen(t, ns, netip.AddrPortFrom(a, 0))
			caller, accepted := connect(t, ns, l, at)
			local, peer := accepted.Ends()
			if own, to := caller.Ends(); local != at || to != at || peer != own || own.Addr() != a {
				t.Errorf("the ends are %s and %s, and seen from the caller %s and %s", local, peer, to, own)
			}
			if got := accepted.Original(); got != at {
				t.Errorf("original destination %s of a connection that was not translated, want %s", got, at)
			}
			if _, none := l.Ends(); none.IsValid() {
				t.Errorf("a listener has the peer %s", none)
			}
			if _, err := caller.WriteString("x"); err != nil {
				t.Fatal(err)
			}
			if n, err := accepted.Read(make([]byte, 2)); n != 1 || err != nil {
				t.Errorf("read %d bytes, %v", n, err)
			}
			accepted.Abort()
			if _, err := caller.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("after an abort the caller reads %v, want a reset", err)
			}
		})
	}
}

func TestConnectedSaysWhyNot(t *testing.T) {
	ns := netnstest.New(t)
	for _, a := range loopbacks {
		// Who has bound the port does not listen.
		taken := socket.Of(open(t, ns, netip.AddrPortFrom(a, 0)))
		defer taken.Close()
		at, _ := taken.Ends()
		if err := dial(t, ns, at).Connected(); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: %v, want refused", at, err)
		}
	}
	// Nobody accepts: the backlog of 0 has room for one connection.
	fd := open(t, ns, netip.AddrPortFrom(loopbacks[0], 0))
	full := socket.Of(fd)
	defer full.Close()
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	if err := dial(t, ns, socket.BoundTo(fd)).Connected(); err != nil {
		t.Fatal(err)
	}
	late := dial(t, ns, socket.BoundTo(fd))
	if err := late.SetDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := late.Connected(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want that the deadline is over", err)
	}
}

func TestAcceptEnds(t *testing.T) {
	ns := netnstest.New(t)
	l, _ := listen(t, ns, netip.AddrPortFrom(loopbacks[0], 0))
	if err := l.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want that the deadline is over", err)
	}
	within(t, l)
	ended := make(chan error)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	_ = l.Close()
	err := <-ended
	if errno := unix.Errno(0); err == nil || errors.As(err, &errno) {
		t.Errorf("%v, want an error that is not the kernel's", err)
	}
}

func TestFamilies(t *testing.T) {
	ns := netnstest.New(t)
	for _, row := range []struct {
		name    string
		options []socket.Option
		takes4  bool
	}{
		{"a listener of IPv6 leaves IPv4 alone", nil, false},
		{"a listener of both families takes IPv4", []socket.Option{socket.BothFamilies}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, at := listen(t, ns, netip.AddrPortFrom(netip.IPv6Unspecified(), 0), row.options...)
			to := netip.AddrPortFrom(loopbacks[0], at.Port())
			if !row.takes4 {
				listen(t, ns, to) // it would be refused if the other took IPv4
				return
			}
			_, accepted := connect(t, ns, l, to)
			if local, peer := accepted.Ends(); local != to || !peer.Addr().Is4() {
				t.Errorf("the ends are %s and %s, want those of IPv4", local, peer)
			}
		})
	}
}

func TestOriginalOfATranslatedConnection(t *testing.T) {
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
		at      netip.Addr
		options []socket.Option
		callers []netip.Addr
	}{
		{"a listener of IPv4", loopbacks[0], nil, loopbacks[:1]},
		{"a listener of IPv6", any6, nil, loopbacks[1:]},
		{"a listener of both families", any6, []socket.Option{socket.BothFamilies}, loopbacks},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, at := listen(t, ns, netip.AddrPortFrom(row.at, 15001), append(row.options, socket.ReuseAddr)...)
			for _, a := range row.callers {
				want := netip.AddrPortFrom(a, 80)
				_, accepted := connect(t, ns, l, want)
				if got := accepted.Original(); got != want {
					t.Errorf("original destination %s, want %s", got, want)
				}
				if local, _ := accepted.Ends(); local != netip.AddrPortFrom(a, at.Port()) {
					t.Errorf("arrived at %s, want port %d", local, at.Port())
				}
			}
		})
	}
}

func TestRefusedOptionsAreNamed(t *testing.T) {
	ns := netnstest.New(t)
	fd, err := socket.New(rules.IPv4, rules.UDP, socket.Option{Level: unix.SOL_IP, Name: 250, Value: 1})
	if fd != -1 || !errors.Is(err, unix.ENOPROTOOPT) || !strings.Contains(err.Error(), "0.250") {
		t.Errorf("%d, %v", fd, err)
	}
	taken := socket.Of(open(t, ns, netip.AddrPortFrom(loopbacks[0], 0)))
	defer taken.Close()
	at, _ := taken.Ends()
	var second int
	err = ns.Do(func() (err error) {
		second, err = socket.New(rules.IPv4, rules.TCP)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(second)
	if err := socket.Bind(second, at); !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), at.String()) {
		t.Errorf("%v, want that %s is in use", err, at)
	}
}

func TestMarkAndTransparent(t *testing.T) {
	ns := netnstest.New(t)
	for family, abroad := range map[rules.Family]string{rules.IPv4: "192.0.2.1:53", rules.IPv6: "[2001:db8::1]:53"} {
		err := ns.Do(func() error {
			fd, err := socket.New(family, rules.UDP, socket.Mark(0x80000539), socket.Transparent(family))
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if mark, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK); uint32(mark) != 0x80000539 || err != nil {
				t.Errorf("mark %#x, %v", mark, err)
			}
			return socket.Bind(fd, netip.MustParseAddrPort(abroad))
		})
		if err != nil {
			t.Errorf("IPv%d: %v", family, err)
		}
	}
}

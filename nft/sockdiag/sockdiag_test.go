package sockdiag_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/sockdiag"
	"github.com/sluice-mesh/sluice/rules"
)

// list returns the sockets of the namespace.
func list(
	t *testing.T, ns *netns.NS, p rules.Protocol, states sockdiag.States,
) (sockets []sockdiag.Socket) {
	t.Helper()
	if err := ns.Do(func() error {
		for s, err := range sockdiag.List(p, states) {
			if err != nil {
				return err
			}
			sockets = append(sockets, s)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return sockets
}

// A connection is a TCP connection in a namespace.
type connection struct {
	listener       net.Listener
	client, server net.Conn
}

// endpoints contains the addresses of listeners, and the addresses to which clients connect. The
// last server's socket is an IPv6 socket with IPv4-mapped addresses.
var endpoints = []struct{ listen, to string }{
	{"127.0.0.1:0", "127.0.0.1"}, {"[::1]:0", "::1"}, {"[::]:0", "127.0.0.1"},
}

// connect opens a TCP connection over lo whose client has the mark 7.
func connect(t *testing.T, ns *netns.NS, listen, to string) (c connection) {
	t.Helper()
	setMark := func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, 7)
		}), err)
	}
	err := ns.Do(func() (err error) {
		if c.listener, err = net.Listen("tcp", listen); err != nil {
			return err
		}
		dialer := net.Dialer{Control: setMark}
		port := strconv.Itoa(c.listener.Addr().(*net.TCPAddr).Port)
		if c.client, err = dialer.Dial("tcp", net.JoinHostPort(to, port)); err != nil {
			return err
		}
		c.server, err = c.listener.Accept()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _, _ = c.client.Close(), c.server.Close(), c.listener.Close()
	})
	return c
}

// describe returns the properties of a socket that a caller can see, except its inode.
func describe(s sockdiag.Socket) string {
	text := fmt.Sprintf("%s > %s, state %d, uid %d", s.Local, s.Peer, s.State, s.UID)
	if s.HasMark {
		text += fmt.Sprintf(", mark %d", s.Mark)
	}
	return text
}

func TestListReturnsTCPSockets(t *testing.T) {
	for _, row := range endpoints {
		t.Run(row.listen, func(t *testing.T) {
			ns := netnstest.New(t)
			c := connect(t, ns, row.listen, row.to)
			client, server := c.client.LocalAddr(), c.server.LocalAddr()
			var connected []string
			for _, s := range list(t, ns, rules.TCP, sockdiag.Connected) {
				connected = append(connected, describe(s))
				if s.INode == 0 {
					t.Errorf("%s: no inode", describe(s))
				}
			}
			want := []string{
				fmt.Sprintf("%s > %s, state 1, uid 0, mark 7", client, server),
				fmt.Sprintf("%s > %s, state 1, uid 0, mark 0", server, client),
			}
			slices.Sort(connected)
			slices.Sort(want)
			if !slices.Equal(connected, want) {
				t.Errorf("connected sockets %q, want %q", connected, want)
			}
			listening := list(t, ns, rules.TCP, sockdiag.Listening)
			if len(listening) != 1 || listening[0].Local.String() != c.listener.Addr().String() ||
				listening[0].State != sockdiag.Listen {
				t.Errorf("listening sockets %+v, want one at %s", listening, c.listener.Addr())
			}
			if all := list(t, ns, rules.TCP, sockdiag.AnyState); len(all) != 3 {
				t.Errorf("sockets in any state %+v, want 3", all)
			}
		})
	}
}

// TestIncompleteHandshakesHaveNoUser covers a connection whose client receives no answer.
func TestIncompleteHandshakesHaveNoUser(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Run(t, ns, `table ip t {
		chain c { type filter hook output priority 0; tcp flags & (syn|ack) == syn|ack drop; }
	}`, "nft", "-f", "-")
	server := unix.SockaddrInet4{Port: 1000, Addr: [4]byte{127, 0, 0, 1}}
	if err := ns.Do(func() error {
		l, err := net.Listen("tcp4", "127.0.0.1:1000")
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		client, err := unix.Socket(unix.AF_INET,
			unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Close(client) })
		if err := unix.Connect(client, &server); !errors.Is(err, unix.EINPROGRESS) {
			t.Errorf("connect: error %v, want EINPROGRESS", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, states := range []sockdiag.States{sockdiag.Connected, sockdiag.AnyState} {
		const synRecv = 3
		incomplete := 0
		for _, s := range list(t, ns, rules.TCP, states) {
			if s.State == synRecv {
				incomplete++
				if s.INode != 0 || s.Local.String() != "127.0.0.1:1000" {
					t.Errorf("%s, inode %d; want the server's address, no inode", describe(s), s.INode)
				}
			}
		}
		if incomplete != 1 {
			t.Errorf("%d sockets with the state SYN_RECV, want 1", incomplete)
		}
	}
}

func TestListReturnsUDPSockets(t *testing.T) {
	ns := netnstest.New(t)
	var receiver, sender *net.UDPConn
	if err := ns.Do(func() (err error) {
		if receiver, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
			return err
		}
		sender, err = net.DialUDP("udp", nil, receiver.LocalAddr().(*net.UDPAddr))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = receiver.Close(), sender.Close() }()
	got := map[netip.AddrPort]netip.AddrPort{}
	for _, s := range list(t, ns, rules.UDP, sockdiag.AnyState) {
		got[s.Local] = s.Peer
		if isUnconnected := s.Peer.Port() == 0; isUnconnected != (s.State == sockdiag.Close) {
			t.Errorf("%s: state Close %t, want %t", describe(s), !isUnconnected, isUnconnected)
		}
	}
	local := receiver.LocalAddr().(*net.UDPAddr).AddrPort()
	if len(got) != 2 || got[local].Port() != 0 ||
		got[sender.LocalAddr().(*net.UDPAddr).AddrPort()] != local {
		t.Errorf("sockets %v, want a receiver and a sender to %s", got, local)
	}
}

func TestDestroyResetsTheConnection(t *testing.T) {
	for _, row := range endpoints {
		ns := netnstest.New(t)
		c := connect(t, ns, row.listen, row.to)
		destroyed := 0
		for _, s := range list(t, ns, rules.TCP, sockdiag.Connected) {
			if s.Local.String() != c.server.LocalAddr().String() {
				continue
			}
			destroyed++
			if err := ns.Do(func() error { return sockdiag.Destroy(s) }); err != nil {
				t.Fatal(err)
			}
			err := ns.Do(func() error { return sockdiag.Destroy(s) })
			if !errors.Is(err, unix.ENOENT) {
				t.Errorf("%s: error %v for a destroyed socket, want ENOENT", row.listen, err)
			}
		}
		if err := c.client.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err := c.client.Read(make([]byte, 1))
		if destroyed != 1 || !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: %d sockets were destroyed, the peer reads error %v; want 1, ECONNRESET",
				row.listen, destroyed, err)
		}
	}
}

// TestListNeedsLittleMemory checks that the memory does not depend on the number of sockets, which
// a process of the namespace determines, and that the list ends with the loop.
func TestListNeedsLittleMemory(t *testing.T) {
	ns := netnstest.New(t)
	const sockets = 3_000
	if err := ns.Do(func() error {
		for i := range sockets {
			l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.%d:%d", 1+i/1000, 2000+i%1000))
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = l.Close() })
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	budgettest.Bound{Processor: time.Second, Allocated: 512 << 10}.Check(t, "List", func() {
		if err := ns.Do(func() error {
			n := 0
			for _, err := range sockdiag.List(rules.TCP, sockdiag.Listening) {
				if err != nil {
					return err
				}
				n++
			}
			if n != sockets {
				t.Errorf("%d sockets, want %d", n, sockets)
			}
			for _, err := range sockdiag.List(rules.TCP, sockdiag.Listening) {
				return err
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

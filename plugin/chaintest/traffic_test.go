package chaintest_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// Names of the servers. Inbound and outbound are the proxy's listeners.
const (
	outside     = "outside"
	application = "application"
	inbound     = "inbound"
	outbound    = "outbound"
)

// proxyUID is the user of the proxy in the pods of these tests.
const proxyUID = 1337

// serve listens on the address in the namespace until the test ends, and answers each connection
// with the name.
func (n *node) serve(t testing.TB, ns *netns.NS, name, address string) {
	t.Helper()
	var listener net.Listener
	err := ns.Do(func() (err error) {
		config := net.ListenConfig{Control: transparent}
		listener, err = config.Listen(t.Context(), "tcp", address)
		return err
	})
	if err != nil {
		t.Fatalf("listen on %s for server %s: %v", address, name, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(name))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
}

// transparent sets IP_TRANSPARENT, which allows a listener to accept connections of tproxy.
func transparent(_, _ string, conn syscall.RawConn) error {
	var optionErr error
	err := conn.Control(func(fd uintptr) {
		optionErr = errors.Join(
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1))
	})
	return errors.Join(optionErr, err)
}

// timeout ends a test whose condition does not become true.
const timeout = 30 * time.Second

// dial connects from the namespace as the user, and returns the name of the server that answers.
func dial(ns *netns.NS, uid int, address string) (name string, err error) {
	err = ns.Do(func() error {
		return asUser(uid, func() error {
			conn, err := net.DialTimeout("tcp", address, timeout)
			if err != nil {
				return err
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(timeout))
			answer, err := io.ReadAll(conn)
			name = string(answer)
			return err
		})
	})
	return name, err
}

// asUser runs fn on this thread with the given filesystem uid, which also owns new sockets.
func asUser(uid int, fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(uid); err != nil {
		return fmt.Errorf("become user %d: %w", uid, err)
	}
	defer func() { _ = unix.Setfsuid(0) }()
	return fn()
}

// checkTraffic checks that the pod's connections, except the connections of the proxy, are captured
// if captured is true, and are not captured otherwise.
func (p *pod) checkTraffic(t testing.TB, captured bool) {
	t.Helper()
	out, in := outside, application
	if captured {
		out, in = outbound, inbound
	}
	type connection struct {
		name    string
		from    *netns.NS
		uid     int
		address string
		want    string
	}
	connections := []connection{
		{
			"from the node to the mapped port", p.node.ns, 0,
			net.JoinHostPort(outsideIPs[0], fmt.Sprint(p.hostPort)), in,
		},
	}
	for i, ip := range p.ips {
		remote := net.JoinHostPort(outsideIPs[i], "80")
		connections = append(connections,
			connection{"from the application to an outside address", p.ns, 0, remote, out},
			connection{"from the proxy to an outside address", p.ns, proxyUID, remote, outside},
			connection{
				"from the node to the application", p.node.ns, 0, net.JoinHostPort(ip, "8080"), in,
			})
	}
	for _, c := range connections {
		if got, err := dial(c.from, c.uid, c.address); err != nil || got != c.want {
			t.Errorf("%s at %s: answered by %q, error %v; want %q", c.name, c.address, got, err, c.want)
		}
	}
}

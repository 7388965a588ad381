package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/e2e/mesh/proxy"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// sockets contains the network and the address of every socket on which the proxy listens.
var sockets = [][2]string{
	{"tcp4", ":15001"},
	{"tcp6", ":15001"},
	{"tcp4", ":15006"},
	{"tcp6", ":15006"},
	{"tcp4", ":15008"},
	{"tcp6", ":15008"},
	{"tcp4", ":15020"},
	{"tcp6", ":15020"},
	{"tcp4", ":15021"},
	{"tcp6", ":15021"},
	{"tcp4", ":15090"},
	{"tcp6", ":15090"},
	{"tcp4", "127.0.0.1:15053"},
	{"tcp6", "[::1]:15053"},
	{"udp4", "127.0.0.1:15053"},
	{"udp6", "[::1]:15053"},
}

// listen opens a socket for connections or datagrams.
func listen(network, address string) (io.Closer, error) {
	if strings.HasPrefix(network, "udp") {
		return net.ListenPacket(network, address)
	}
	return net.Listen(network, address)
}

// call connects to a socket of the proxy, or sends a datagram to it. The error is ECONNREFUSED if
// the socket does not exist.
func call(network, address string) error {
	conn, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if strings.HasPrefix(network, "udp") {
		// The second Write returns the error for the first datagram.
		if _, err := conn.Write([]byte{0}); err != nil {
			return err
		}
		_, err = conn.Write([]byte{0})
	}
	return err
}

// startProxy runs a proxy in the namespace. The channel receives the result of Run.
func startProxy(ctx context.Context, ns *netns.NS) <-chan error {
	result := make(chan error, 1)
	go func() {
		result <- ns.Do(func() error { return proxy.Run(ctx, proxy.Options{Name: "pod"}) })
	}()
	return result
}

// requireUnused fails the test if a socket still exists in the namespace.
func requireUnused(t *testing.T, ns *netns.NS) {
	t.Helper()
	for _, s := range sockets {
		if err := ns.Do(func() error {
			l, err := listen(s[0], s[1])
			if err != nil {
				return err
			}
			return l.Close()
		}); err != nil {
			t.Errorf("listen after the end of the proxy: %v", err)
		}
	}
}

func TestListenersAreClosedWhenTheContextIsDone(t *testing.T) {
	ns := netnstest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	result := startProxy(ctx, ns)
	// Until the proxy listens, the error is ECONNREFUSED. Afterwards, the proxy resets connections
	// that are not redirected.
	for _, s := range sockets {
		for err := error(unix.ECONNREFUSED); errors.Is(err, unix.ECONNREFUSED); {
			err = ns.Do(func() error { return call(s[0], s[1]) })
			select {
			case err := <-result:
				t.Fatalf("proxy ended early: %v", err)
			default:
			}
		}
	}
	cancel()
	if err := <-result; err != nil {
		t.Errorf("error %v, want none", err)
	}
	requireUnused(t, ns)
}

func TestListenersAreClosedWhenAPortIsInUse(t *testing.T) {
	for _, s := range sockets {
		ns := netnstest.New(t)
		var other io.Closer
		if err := ns.Do(func() (err error) {
			other, err = listen(s[0], s[1])
			return err
		}); err != nil {
			t.Fatal(err)
		}
		err := <-startProxy(t.Context(), ns)
		_ = other.Close()
		if !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%s %s in use: error %v, want EADDRINUSE", s[0], s[1], err)
		}
		requireUnused(t, ns)
	}
}

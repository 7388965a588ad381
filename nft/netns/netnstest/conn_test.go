package netnstest_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// timeout ends a test that hangs. No successful test takes as long.
const timeout = 30 * time.Second

// listen starts a TCP server in ns that sends each client the address to which the client
// connected.
func listen(t *testing.T, ns *netns.NS, network, addr string) (l net.Listener) {
	t.Helper()
	err := ns.Do(func() (err error) {
		l, err = net.Listen(network, addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, c.LocalAddr().String())
			_ = c.Close()
		}
	})
	return l
}

// reachedAddr connects from ns to a server of listen and returns the address that the server sends.
func reachedAddr(t *testing.T, ns *netns.NS, addr string) string {
	t.Helper()
	answer, err := io.ReadAll(dial(t, ns, "tcp", addr))
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func dial(t *testing.T, ns *netns.NS, network, addr string) (c net.Conn) {
	t.Helper()
	err := ns.Do(func() (err error) {
		c, err = net.DialTimeout(network, addr, timeout)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	return c
}

// echo starts a UDP server in ns that sends each datagram back.
func echo(t *testing.T, ns *netns.NS, addr string) {
	t.Helper()
	var s net.PacketConn
	err := ns.Do(func() (err error) {
		s, err = net.ListenPacket("udp", addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = s.Close()
		wg.Wait()
	})
	wg.Go(func() {
		buf := make([]byte, 64)
		for {
			n, from, err := s.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = s.WriteTo(buf[:n], from)
		}
	})
}

// zone returns the IPv6 zone for binding ip on eth0, or "" if ip needs no zone.
func zone(ip net.IP) string {
	if ip.IsLinkLocalUnicast() {
		return "eth0"
	}
	return ""
}

// recorder is a testing.TB that records a skip or a failure instead of ending the test.
type recorder struct {
	testing.TB
	outcome, text string
}

func (r *recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) { r.end("skipped", format, args) }

func (r *recorder) Fatalf(format string, args ...any) { r.end("failed", format, args) }

func (r *recorder) end(outcome, format string, args []any) {
	r.outcome, r.text = outcome, fmt.Sprintf(format, args...)
	panic(r)
}

// run calls fn and recovers the panic of [recorder.end].
func (r *recorder) run(fn func()) {
	defer func() {
		if v := recover(); v != nil && v != any(r) {
			panic(v)
		}
	}()
	fn()
}

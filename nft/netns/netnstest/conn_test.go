package netnstest_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// timeout is for what must not happen; nothing waits for it otherwise.
const timeout = 30 * time.Second

// listen starts a server in ns that tells every client the address it asked.
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

// askTCP returns what a server of listen tells a client in ns.
func askTCP(t *testing.T, ns *netns.NS, addr string) string {
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

// echo starts a UDP server in ns that sends back what it receives.
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

// zone is the zone to bind ip in on eth0.
func zone(ip net.IP) string {
	if ip.IsLinkLocalUnicast() {
		return "eth0"
	}
	return ""
}

// descriptors returns how many the process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// recorder keeps a test's end to itself.
type recorder struct {
	testing.TB
	fate, text string
}

func (r *recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) { r.end("skipped", format, args) }

func (r *recorder) Fatalf(format string, args ...any) { r.end("failed", format, args) }

func (r *recorder) end(fate, format string, args []any) {
	r.fate, r.text = fate, fmt.Sprintf(format, args...)
	panic(r)
}

// run calls fn, which may end the test.
func (r *recorder) run(fn func()) {
	defer func() {
		if v := recover(); v != nil && v != any(r) {
			panic(v)
		}
	}()
	fn()
}

package netnstest_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

func TestNeighborAcceptsConnectionsToEveryAddress(t *testing.T) {
	p := netnstest.NewPair(t)
	listen(t, p.Neighbor, "tcp4", "0.0.0.0:80")
	listen(t, p.Neighbor, "tcp6", "[::]:80")
	for _, addr := range []string{
		net.JoinHostPort(p.NeighborIP4.String(), "80"),
		net.JoinHostPort(p.NeighborIP6.String(), "80"),
		"10.9.9.9:80", "10.244.2.1:80", "192.0.2.1:80", "8.8.8.8:80",
		"[2001:db8::1]:80", "[fd00:10:244:2::1]:80", "[2606:4700::1111]:80",
	} {
		if got := reachedAddr(t, p.Pod, addr); got != addr {
			t.Errorf("a connection to %s reached %s, want the same address", addr, got)
		}
	}
}

func TestNeighborAnswersDatagramsToEveryAddress(t *testing.T) {
	p := netnstest.NewPair(t)
	for _, addr := range []string{"10.9.9.9:53", "[2001:db8::53]:53"} {
		echo(t, p.Neighbor, addr)
		c := dial(t, p.Pod, "udp", addr)
		if _, err := c.Write([]byte("query")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		if n, err := c.Read(buf); err != nil || string(buf[:n]) != "query" {
			t.Errorf("%s: read %q, %v; want query", addr, buf[:n], err)
		}
	}
}

func TestPodAcceptsConnectionsFromEverySource(t *testing.T) {
	p := netnstest.NewPair(t)
	listen(t, p.Pod, "tcp", "[::]:8080")
	for _, tc := range []struct{ from, to string }{
		{p.NeighborIP4.String(), p.PodIP4.String()},
		{p.NeighborIP6.String(), p.PodIP6.String()},
		{"10.9.9.9", p.PodIP4.String()},
		{"2001:db8::1", p.PodIP6.String()},
	} {
		to := net.JoinHostPort(tc.to, "8080")
		err := p.Neighbor.Do(func() error {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(tc.from)}, Timeout: timeout}
			c, err := d.Dial("tcp", to)
			if err == nil {
				err = c.Close()
			}
			return err
		})
		if err != nil {
			t.Errorf("connection from %s to %s: %v", tc.from, to, err)
		}
	}
}

func TestAPortWithoutListenerRefusesConnections(t *testing.T) {
	p := netnstest.NewPair(t)
	for _, addr := range []string{"10.9.9.9:81", "[2001:db8::1]:81"} {
		err := p.Pod.Do(func() error {
			c, err := net.DialTimeout("tcp", addr, timeout)
			if err == nil {
				_ = c.Close()
			}
			return err
		})
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial %s: error %v, want %v", addr, err, syscall.ECONNREFUSED)
		}
	}
}

// TestNoAddressIsTentative checks that all addresses, including link-local addresses, can be bound
// immediately.
func TestNoAddressIsTentative(t *testing.T) {
	p := netnstest.NewPair(t)
	for _, n := range []*netns.NS{p.Pod, p.Neighbor} {
		err := n.Do(func() error {
			iface, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			addrs, err := iface.Addrs()
			if err != nil {
				return err
			}
			for _, a := range addrs {
				ip := a.(*net.IPNet).IP
				l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Zone: zone(ip)})
				if err != nil {
					t.Errorf("listen on %v: %v", a, err)
					continue
				}
				_ = l.Close()
			}
			if len(addrs) != 3 {
				t.Errorf("addresses %v, want IPv4, IPv6 and link-local", addrs)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestPairLeaksNothing(t *testing.T) {
	t.Run("warm up the runtime", func(t *testing.T) { netnstest.NewPair(t) })
	before := netnstest.Descriptors(t)
	t.Run("pair", func(t *testing.T) { netnstest.NewPair(t) })
	if after := netnstest.Descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after, want the same number", before, after)
	}
}

func BenchmarkNewPair(b *testing.B) {
	netnstest.RequireRoot(b)
	for b.Loop() {
		p := netnstest.NewPair(b)
		_ = p.Pod.Close()
		_ = p.Neighbor.Close()
	}
}

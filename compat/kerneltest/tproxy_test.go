package kerneltest_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// TestTProxyPrefersEstablishedSockets verifies that tproxy looks up the socket of an established
// connection by the addresses that a packet has when it reaches the rule. If NAT translates the
// destination later, tproxy therefore assigns the listener also to later packets of the connection,
// and the listener answers them with a reset.
func TestTProxyPrefersEstablishedSockets(t *testing.T) {
	netnstest.RequireRoot(t)
	for _, row := range []struct {
		name     string
		priority int // of tproxy; NAT has the priority -100
		want     error
	}{
		{"before NAT", -150, unix.ECONNRESET},
		{"after NAT", -90, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			network := newTestbed(t)
			istiotest.Run(t, network.Pod, fmt.Sprintf(`table ip t {
				chain assign { type filter hook prerouting priority %d;
					meta l4proto tcp tproxy to :15100
				}
				chain translate { type nat hook prerouting priority -100;
					meta l4proto tcp redirect to :15100
				}
			}`, row.priority), "nft", "-f", "-")
			var listener net.Listener
			err := network.Pod.Do(func() (err error) {
				config := net.ListenConfig{Control: transparent}
				listener, err = config.Listen(t.Context(), "tcp4", "0.0.0.0:15100")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go answer(listener)
			err = network.Neighbor.Do(func() error {
				c, err := net.Dial("tcp4", "10.244.1.5:81")
				if err != nil {
					return err
				}
				defer c.Close()
				if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
					return err
				}
				_, err = io.ReadFull(c, make([]byte, 1))
				return err
			})
			if !errors.Is(err, row.want) {
				t.Errorf("a connection: %v, want %v", err, row.want)
			}
		})
	}
}

// transparent sets IP_TRANSPARENT, which tproxy requires of a listener.
func transparent(_, _ string, c syscall.RawConn) (err error) {
	controlErr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
	})
	return errors.Join(controlErr, err)
}

// answer sends one byte to each client until the listener is closed.
func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte("x"))
		_ = c.Close()
	}
}

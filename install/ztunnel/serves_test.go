package ztunnel_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

func listenIn(t *testing.T, ns *netns.NS, network string, port int) net.Listener {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) {
		l, err = net.Listen(network, fmt.Sprintf(":%d", port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestServes checks that ztunnel serves a namespace as long as it has all of its listeners there.
func TestServes(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6", "tcp"} {
		t.Run(network, func(t *testing.T) {
			ns, other := netnstest.New(t), netnstest.New(t)
			wantServes := func(ns *netns.NS, want bool, reason string) {
				t.Helper()
				if got, err := ztunnel.Serves(ns); got != want || err != nil {
					t.Errorf("%s: Serves %t, error %v; want %t", reason, got, err, want)
				}
			}
			wantServes(ns, false, "an empty namespace")
			listenIn(t, ns, network, 15001)
			listenIn(t, ns, network, 15006)
			wantServes(ns, false, "a sidecar has no listener for HBONE")
			l := listenIn(t, ns, network, 15008)
			wantServes(ns, true, "all listeners")
			wantServes(other, false, "another namespace")
			_ = l.Close()
			wantServes(ns, false, "one listener is closed")
		})
	}
}

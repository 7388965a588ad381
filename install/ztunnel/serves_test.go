package ztunnel_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/vishvananda/netlink"

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

// TestServes checks that Serves is true only while a namespace has all listeners of ztunnel.
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

// TestServesIgnoresConnections checks that the memory that Serves needs does not depend on the
// number of connections in the network namespace, which a pod determines.
func TestServesIgnoresConnections(t *testing.T) {
	ns := netnstest.New(t)
	for _, port := range []int{15001, 15006, 15008} {
		listenIn(t, ns, "tcp", port)
	}
	allocations := func() float64 {
		return testing.AllocsPerRun(1, func() {
			if serves, err := ztunnel.Serves(ns); !serves || err != nil {
				t.Errorf("Serves %t, error %v; want true", serves, err)
			}
		})
	}
	before := allocations()
	if err := ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	}); err != nil {
		t.Fatal(err)
	}
	l := listenIn(t, ns, "tcp4", 8080)
	const connections = 200
	for range connections {
		var client net.Conn
		if err := ns.Do(func() (err error) { client, err = net.Dial("tcp4", "127.0.0.1:8080"); return err }); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = server.Close() }()
	}
	if got := allocations(); got > before+connections/2 {
		t.Errorf("%v allocations with %d connections, and %v without", got, connections, before)
	}
}

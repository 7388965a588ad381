package kerneltest_test

import (
	"net"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/testbed"
)

// newTestbed returns a pod and its neighbor, which are removed when the test ends.
func newTestbed(t *testing.T) *testbed.Network {
	t.Helper()
	network, err := testbed.New(testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	return network
}

// sendUDP sends a datagram over lo to a port without a listener.
func sendUDP(t *testing.T, ns *netns.NS) {
	t.Helper()
	err := ns.Do(func() error {
		c, err := net.Dial("udp4", "127.0.0.1:9")
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

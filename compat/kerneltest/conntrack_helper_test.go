package kerneltest_test

import (
	"net"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// TestHelpersAffectNAT verifies the fact ExpectationFollowsMaster. If the master connection is
// translated, a connection that a conntrack helper expects is translated in the same way, and
// traverses no NAT chain. Otherwise the expected connection traverses the NAT chains.
func TestHelpersAffectNAT(t *testing.T) {
	const (
		assigns = "table ip helper {\nct helper tftp {\ntype \"tftp\" protocol udp\n}\n" +
			"chain c {\ntype filter hook output priority 0;\n" +
			"udp dport { 69, 6969 } ct helper set \"tftp\"\n}\n}\n"
		translates = "table ip translates {\nchain c {\ntype nat hook output priority -100;\n" +
			"udp dport 6969 dnat to 10.244.1.1:69\n}\n}\n"
		redirects = "table ip redirects {\nchain c {\ntype nat hook prerouting priority -100;\n" +
			"udp dport 40000 redirect to :41000\n}\n}\n"
	)
	for _, tc := range []struct {
		name, rules string
		server      string // destination of the request
		port        int    // at which the data arrives
	}{
		{
			"a helper and a translated master connection", assigns + translates + redirects,
			"10.244.1.1:6969", 40000,
		},
		{
			"a helper and an untranslated master connection", assigns + redirects,
			"10.244.1.1:69", 41000,
		},
		{"no helper", translates + redirects, "10.244.1.1:6969", 41000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			network := newTestbed(t)
			istiotest.Run(t, network.Pod, tc.rules, "nft", "-f", "-")
			client, redirected := listenUDP(t, network.Pod, "10.244.1.5:40000"),
				listenUDP(t, network.Pod, "10.244.1.5:41000")
			data := listenUDP(t, network.Neighbor, "10.244.1.1:5000")
			server, err := net.ResolveUDPAddr("udp4", tc.server)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.WriteTo([]byte("\x00\x01file\x00octet\x00"), server); err != nil {
				t.Fatal(err)
			}
			if _, err := data.WriteTo([]byte("data"), client.LocalAddr()); err != nil {
				t.Fatal(err)
			}
			arrived := make(chan int, 2)
			for _, c := range []net.PacketConn{client, redirected} {
				go func() {
					buffer := make([]byte, 64)
					for {
						n, from, err := c.ReadFrom(buffer)
						if err != nil {
							return // closed
						}
						if string(buffer[:n]) == "data" && from.(*net.UDPAddr).Port == 5000 {
							arrived <- c.LocalAddr().(*net.UDPAddr).Port
						}
					}
				}()
			}
			select {
			case port := <-arrived:
				if port != tc.port {
					t.Errorf("the data arrived at port %d, want %d", port, tc.port)
				}
			case <-time.After(time.Minute):
				t.Errorf("the data arrived at no port within a minute, want port %d", tc.port)
			}
		})
	}
}

// listenUDP opens a socket in a namespace and closes it when the test ends.
func listenUDP(t *testing.T, ns *netns.NS, address string) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	err := ns.Do(func() (err error) {
		c, err = net.ListenPacket("udp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
